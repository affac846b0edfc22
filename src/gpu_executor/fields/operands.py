"""What callers hand to a field: which arrays and integers it takes, and what they become."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_executor.device_array import Shape
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.array import FieldArray, Words
from gpu_executor.primes import Prime, words

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field

Operand = Any
"""A FieldArray, or an integer that stands for an element."""


def own(field: Field, array: FieldArray) -> FieldArray:
    """The array itself, which is one of this field."""
    if not isinstance(array, FieldArray):
        raise ArgumentTypeError(
            f"{field.name}: a FieldArray is wanted, not a {type(array).__name__}; "
            "encode(ints), from_bytes(data) and from_words(words, form) make one"
        )
    if array.field is not field and array.field != field:
        raise ArgumentTypeError(f"an array of {array.field.name}, and this is {field.name}")
    return array


def ready(field: Field, array: FieldArray) -> FieldArray:
    """An array of this field, in the form that the field computes in."""
    return own(field, array).in_form(field.form)


def as_array(field: Field, operand: Operand, like: FieldArray) -> FieldArray:
    """An operand ready to compute with; an integer becomes an element where `like` lives."""
    if isinstance(operand, FieldArray):
        return ready(field, operand)
    if isinstance(operand, bool) or not isinstance(operand, int | np.integer):
        raise ArgumentTypeError(
            f"{field.name}: an operand is a FieldArray or an integer, not a "
            f"{type(operand).__name__}"
        )
    prime, value = field.prime, int(operand) % field.modulus
    if not like.on_device:
        return FieldArray(field, _element(prime, value), field.form)
    device = like.device
    data = device.kept(("element", prime, value), lambda: device.put(_element(prime, value)))
    return FieldArray(field, data, field.form)


def _element(prime: Prime, value: int) -> Words:
    """A number below p as the words of an array without axes."""
    found = words.from_ints(prime, [prime.in_form(value)])
    return found.reshape(prime.element_shape)


def zeros(field: Field, shape: Shape, like: FieldArray) -> FieldArray:
    """As many zeros, where `like` lives."""
    found = np.zeros((*shape, *field.prime.element_shape), field.prime.column_dtype)
    data = like.device.put(found) if like.on_device else found
    return FieldArray(field, data, field.form)


def common_shape(field: Field, shapes: Sequence[Shape]) -> Shape:
    """What all are repeated to, over leading axes: a single element, or the last axes."""
    cores = [
        shape[next((axis for axis, n in enumerate(shape) if n != 1), len(shape)) :]
        for shape in shapes
    ]
    longest = max(cores, key=len)
    for core, shape in zip(cores, shapes, strict=True):
        if core != longest[len(longest) - len(core) :]:
            raise ArgumentShapeError(
                f"{field.name}: shapes {shape} and {longest} do not go together"
            )
    return (1,) * (max(map(len, shapes)) - len(longest)) + longest


def check_one_place(arrays: Iterable[FieldArray]) -> None:
    """Nothing is moved between the host and cards without being asked for."""
    if len({id(each.device) if each.on_device else None for each in arrays}) > 1:
        raise ArgumentTypeError(
            "operands on the host and on a card, or on two: gpu.to_device(array) moves one"
        )


def whole(number: Any, what: str) -> int:
    """A whole number of any kind; a boolean is none."""
    if isinstance(number, bool | np.bool_) or not hasattr(number, "__index__"):
        raise ArgumentTypeError(f"{what} is a whole number, not a {type(number).__name__}")
    return operator.index(number)
