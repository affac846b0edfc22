"""The group of a curve's points, and scalars as callers give them: canonical words below its
order."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.calls.arguments import describe, is_masked
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.fields.layout_array import make_place_error
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.primes import encoding
from gpu_executor.primes.curve_key import CurveKey


class CurveGroup:
    """The group of prime order that the generator of a curve generates, in numbers. `Curve` is one,
    which has operations on its points too."""

    name: str
    key: CurveKey
    scalar_field: Field
    """The field of the order, whose elements are the scalars."""


def load_scalars(field: Field, place: ArrayDevice | None, scalars: Any) -> ElementData:
    """Canonical words of scalars for points in a place; None is the host. Scalars on the host go
    with any points, scalars on a device with points there."""
    if isinstance(scalars, FieldArray) and scalars.on_device and scalars.device is not place:
        raise make_place_error()
    return to_scalar_words(field, scalars)


def to_scalar_words(field: Field, scalars: Any) -> ElementData:
    """Scalars modulo the order, which is the field's modulus, as canonical words: those of a
    `FieldArray` of the scalar field, in its place, or on the host those of an integer, or of
    integers in lists or NumPy arrays. Integers of any dtype are integers, and never words."""
    if isinstance(scalars, FieldArray):
        if scalars.field != field:
            raise ArgumentTypeError(
                f"scalars are of {field.name}, the field of the curve's order; an array of "
                f"{scalars.field.name} was given"
            )
        return scalars.in_form("canonical").data
    if isinstance(scalars, DeviceArray | TypedArray):
        raise ArgumentTypeError(
            f"scalars are a FieldArray of {field.name}, and not {describe(scalars)}; words "
            "on a device become one by gpu.to_device(field.from_words(words, 'canonical'))"
        )
    if isinstance(scalars, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            f"scalars are integers or a FieldArray of {field.name}, and not {describe(scalars)}; "
            "field.from_bytes(data) makes one of bytes, with reduce=True of any bytes"
        )
    if isinstance(scalars, np.ndarray):
        if is_masked(scalars):
            raise ArgumentTypeError("scalars is a masked array; pass its .data or .filled(value)")
        scalars = np.asarray(scalars)  # a matrix keeps two axes whatever is done to it
        if scalars.dtype.kind not in "iuO":
            raise ArgumentTypeError(
                f"scalars are integers or a FieldArray of {field.name}; an array of "
                f"{scalars.dtype} was given"
            )
    return encoding.ints_to_words(field.prime, scalars, reduce=True)


def make_shape_error(field: Field, scalars: Any, message: str) -> ArgumentShapeError:
    """The error of scalars whose shape does not fit the points. Where their last axis is as long as
    the words or the bytes of a scalar, it says how these become scalars."""
    advice = ""
    if isinstance(scalars, np.ndarray) and scalars.ndim:
        prime, last = field.prime, scalars.shape[-1]
        if scalars.dtype == prime.column_dtype and (last,) == prime.element_shape:
            advice = "from_words(words, 'canonical')"
        if scalars.dtype == np.uint8 and last == encoding.byte_width(prime):
            advice = "from_bytes(data)"
    if advice:
        what = advice.split("_")[1].split("(")[0]
        advice = (
            f". An array of {scalars.dtype} is an integer for each entry; the {what} of scalars "
            f"become scalars by curve.scalar_field.{advice}"
        )
    return ArgumentShapeError(f"{message}{advice}")


def refuse_byte_order(byteorder: Any) -> None:
    """Raise for an argument `byteorder`, which functions of points had as long as they took bytes
    for scalars."""
    if byteorder is not None:
        raise ArgumentTypeError(
            "scalars are not bytes, so there is no byteorder=; "
            f"curve.scalar_field.from_bytes(data, byteorder={byteorder!r}) makes scalars of bytes"
        )
