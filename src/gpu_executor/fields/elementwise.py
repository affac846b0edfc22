"""Operations element by element: operands are made alike, and one kernel goes over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.applying import apply
from gpu_executor.fields.array import FieldArray, Words
from gpu_executor.fields.neighbours import by_neighbours
from gpu_executor.fields.operands import (
    Operand,
    as_array,
    check_one_place,
    common_shape,
    ready,
    whole,
    zeros,
)
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.ops import exponents

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field

AT_ONCE = 65_535 * 64
"""Elements that every device takes with a work-group for each 64; more need a kernel that strides,
which costs lavapipe a third of its products."""


def computed(
    field: Field, operation: str, *operands: Operand, commutes: bool = False
) -> FieldArray:
    """An operation whose operands and outcome are elements, by its element kernel's name."""
    arrays = _alike(field, operands, commutes=commutes)
    return FieldArray(field, _applied(field, operation, arrays), field.form)


def equal(field: Field, a: Operand, b: Operand) -> npt.NDArray[np.bool_]:
    """Where they are equal, on the host."""
    found = _applied(field, "equal", _alike(field, [a, b], commutes=True))
    host = found.numpy() if isinstance(found, DeviceArray) else found
    return host.astype(np.bool_)


def selected(field: Field, condition: npt.ArrayLike, a: Operand, b: Operand) -> FieldArray:
    """a where the condition holds, else b."""
    arrays = _alike(field, [a, b])
    first = arrays[0]
    chosen = np.array(condition, np.bool_).astype(np.uint32, order="C")
    if chosen.shape != first.shape:
        raise ArgumentShapeError(
            f"{field.name}: a condition of shape {chosen.shape} for elements of {first.shape}"
        )
    where = first.device.put(chosen) if first.on_device else chosen
    return FieldArray(field, _applied(field, "select", arrays, where), field.form)


def power(field: Field, a: FieldArray, exponent: int) -> FieldArray:
    """Every element to the same power; below 0 of the inverse, where 0 stays 0."""
    array = ready(field, a)
    exponent, order = whole(exponent, "an exponent"), field.modulus - 1
    # By Fermat's little theorem; but a power of 0 that is not the 0th stays 0.
    least = exponent and (exponent % order or order)
    words = exponents.on_device(array.device, least) if array.on_device else exponents.words(least)
    kernel = element_kernel(field.prime, "power", f64_limbs=array.by_doubles)
    return FieldArray(field, apply(kernel, [array.data, words], (words.size,)), field.form)


def _alike(
    field: Field, operands: Sequence[Operand], *, commutes: bool = False
) -> list[FieldArray]:
    """The operands as arrays in one place, the first the largest, the others its repeats."""
    arrays = [each for each in operands if isinstance(each, FieldArray)]
    if not arrays:
        raise ArgumentTypeError(f"{field.name}: one operand at least is a FieldArray")
    check_one_place(arrays)
    made = [as_array(field, each, arrays[0]) for each in operands]
    shape = common_shape(field, [each.shape for each in made])
    if commutes and made[0].shape != shape == made[1].shape:
        made.reverse()
    if made[0].shape != shape:
        made[0] = _repeated(field, made[0], shape)
    return made


def _repeated(field: Field, array: FieldArray, shape: Shape) -> FieldArray:
    """An array as large as the others need it."""
    if array.size == math.prod(shape):
        return array.reshape(*shape)
    sums = _applied(field, "add", [zeros(field, shape, array), array])
    return FieldArray(field, sums, field.form)


def _applied(
    field: Field,
    operation: str,
    arrays: Sequence[FieldArray],
    condition: Words | DeviceArray | None = None,
) -> Words | DeviceArray:
    """An element kernel, on a condition first where it takes one."""
    first, *others = arrays
    leading = [] if condition is None else [condition]
    sizes = [each.size for each in (others if condition is None else arrays)]
    repeats = any(size != first.size for size in sizes)
    strides = repeats or first.size > AT_ONCE
    data = [*leading, *(each.data for each in arrays)]
    kernel = element_kernel(
        field.prime,
        operation,
        broadcast=repeats,
        grid_stride=strides,
        f64_limbs=first.by_doubles,
        packed=by_neighbours(data),
    )
    push_words = tuple(0 if size == first.size else size for size in sizes) if repeats else ()
    if repeats and not first.on_device:
        columns = field.prime.element_shape
        data = [*leading, *(np.resize(each.numpy(), first.shape + columns) for each in arrays)]
        kernel = element_kernel(field.prime, operation)
    return apply(kernel, data, push_words)
