"""The group of a curve's points, and scalars as callers give them: canonical words below its
order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.calls.arguments import describe, is_masked
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.fields.layout_array import make_place_error
from gpu_executor.ops.scalars import can_reduce_scalars, reduce_scalars
from gpu_executor.primes import encoding, words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.encoding import ByteOrder

Words = npt.NDArray[Any]


class CurveGroup:
    """The group of prime order that the generator of a curve generates, in numbers. `Curve` is one,
    which has operations on its points too."""

    name: str
    key: CurveKey
    scalar_field: Field
    """The field of the order, whose elements are the scalars."""


def load_scalars(
    field: Field,
    place: ArrayDevice | None,
    scalars: Any,
    byteorder: ByteOrder,
    *,
    streams: bool = False,
    reduces: bool = True,
) -> Any:
    """Canonical words, or with `reduces` = False words of any numbers, for points in a place; None
    is the host. Scalars on the host go with any points, scalars on a device with points there.
    Bytes and words of the host are copied to the place, unless `streams`: then they stay on the
    host, and parts of them are copied later."""
    if isinstance(scalars, FieldArray) and scalars.on_device and scalars.device is not place:
        raise make_place_error()
    device = None if streams else place
    return to_scalar_words(field, scalars, byteorder, device, reduces=reduces)


def to_scalar_words(
    field: Field,
    scalars: Any,
    byteorder: ByteOrder = "big",
    device: ArrayDevice | None = None,
    *,
    reduces: bool = True,
) -> Any:
    """Scalars modulo the order, which is the field's modulus: words (..., *columns of an element).
    With a device, bytes and words are copied there and reduced there; words only if `reduces`.

    - a `FieldArray` of the scalar field; one on a device gives a device array
    - an integer, or integers in lists or NumPy arrays of objects or signed integers
    - a NumPy array of uint8: bytes (..., width), one scalar along the last axis
    - a NumPy array of the field's words in canonical form: (..., columns)

    NumPy arrays of the dtype of words, in any byte order, are words, and never integers.
    """
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
    if isinstance(scalars, np.ndarray):
        if is_masked(scalars):
            raise ArgumentTypeError("scalars is a masked array; pass its .data or .filled(value)")
        scalars = np.asarray(scalars)  # a matrix keeps two axes whatever is done to it
        if scalars.dtype == np.uint8:
            return _read_bytes(field, scalars, byteorder, device)
        if scalars.dtype.newbyteorder("=") == field.prime.column_dtype:
            native = scalars.astype(field.prime.column_dtype, copy=False)
            return _read_words(field, native, device, reduces=reduces)
        if scalars.dtype.kind not in "iuO":
            raise ArgumentTypeError(
                f"scalars are integers, bytes (uint8), words ({field.prime.column_dtype}) or a "
                f"FieldArray of {field.name}; an array of {scalars.dtype} was given"
            )
    if isinstance(scalars, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            "scalars as bytes are an array of uint8, one scalar along the last axis; "
            f"np.frombuffer(data, np.uint8).reshape(-1, {encoding.byte_width(field.prime)}) makes "
            "one"
        )
    return encoding.ints_to_words(field.prime, scalars, reduce=True)


def refuse_ambiguous_row(field: Field, scalars: Any, points: Shape) -> None:
    """Raise if a row of words or bytes is one scalar, and as long as the points: whoever passes it
    may mean an integer for each point."""
    prime = field.prime
    if not isinstance(scalars, np.ndarray) or scalars.shape != points[-1:] or not points:
        return
    width = {np.dtype(np.uint8): encoding.byte_width(prime)}
    if prime.element_shape:  # else a row of words has a scalar for each point
        width[prime.column_dtype] = prime.columns
    if len(scalars) > 1 and width.get(scalars.dtype.newbyteorder("=")) == len(scalars):
        raise ArgumentShapeError(
            f"{len(scalars)} points are multiplied by a row of {len(scalars)} {scalars.dtype}: "
            f"scalars.reshape(1, {len(scalars)}) is one scalar for all points, in words or bytes, "
            "and scalars.tolist() is an integer for each point"
        )


def _read_bytes(
    field: Field,
    scalars: npt.NDArray[np.uint8],
    byteorder: ByteOrder,
    device: ArrayDevice | None,
) -> Any:
    prime = field.prime
    width = encoding.byte_width(prime)
    if byteorder not in ("big", "little"):
        raise ArgumentTypeError(f"byteorder is {byteorder!r}; it must be 'big' or 'little'")
    if scalars.shape[-1:] != (width,):
        raise ArgumentShapeError(
            f"the last axis of an array of uint8 holds the {width} bytes of a scalar of "
            f"{field.name}; the shape is {scalars.shape}"
        )
    if width == prime.element_bytes and can_reduce_scalars(device, prime, scalars.nbytes):
        return reduce_scalars(device, prime, scalars, big_endian=byteorder == "big")
    upward = scalars if byteorder == "little" else scalars[..., ::-1]
    padded = np.zeros((*scalars.shape[:-1], prime.element_bytes), np.uint8)
    padded[..., :width] = upward
    columns = padded.view(prime.column_dtype)
    return _reduce(field, columns.reshape((*scalars.shape[:-1], *prime.element_shape)))


def _read_words(field: Field, scalars: Words, device: ArrayDevice | None, *, reduces: bool) -> Any:
    shape = field.prime.element_shape
    if scalars.shape[scalars.ndim - len(shape) :] != shape:
        raise ArgumentShapeError(
            f"an array of {scalars.dtype} holds the words of scalars, {field.prime.columns} along "
            f"the last axis; the shape is {scalars.shape}. Integers are given as lists or as an "
            "array of int64 or objects"
        )
    if device is None and not reduces:
        return scalars
    if can_reduce_scalars(device, field.prime, scalars.nbytes):
        if not reduces:
            return device.put(scalars)
        return reduce_scalars(device, field.prime, scalars, big_endian=False)
    return _reduce(field, scalars)


def _reduce(field: Field, found: Words) -> Words:
    """Words modulo the order, in new memory."""
    prime = field.prime
    if words.first_not_below(prime, found) is None:
        return np.array(found)
    ints = [each % prime.modulus for each in words.to_ints(prime, found)]
    return words.from_ints(prime, ints).reshape(found.shape)
