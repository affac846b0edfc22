"""Blobs of EIP-4844: 4096 elements of BLS12-381 Fr, the values of a polynomial.

An element is 32 bytes, big-endian. The values belong to the 4096th roots of unity in bit-reversed
order, which transforms call "reversed". All functions work on the host and on a device; leading
axes are a batch of blobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.field import BLS12_381_FR, FieldArray
from gpu_executor.primes.encoding import BytesLike

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

ELEMENTS = 4096
ELEMENT_BYTES = 32
BLOB_BYTES = ELEMENTS * ELEMENT_BYTES


def from_blob(blob: BytesLike, *, device: Backend | None = None) -> FieldArray:
    """The values in a blob, in the blob's order.

    Args:
        blob (bytes or numpy.ndarray): The bytes of a blob; each row of a uint8 array is one blob.
        device (Backend): The executor or backend on whose device the values are; None for the host.
    """
    try:
        rows = blob if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.uint8)
    except TypeError:
        raise ArgumentTypeError(f"a blob is bytes, not {type(blob).__name__}") from None
    if rows.shape[-1:] != (BLOB_BYTES,):
        raise ArgumentShapeError(f"a blob is {BLOB_BYTES} bytes; the shape is {rows.shape}")
    numbers = rows.reshape(*rows.shape[:-1], ELEMENTS, ELEMENT_BYTES)
    return BLS12_381_FR.from_bytes(numbers, device=device)


def to_blob(values: FieldArray) -> npt.NDArray[np.uint8]:
    """Values as the bytes of a blob; `.tobytes()` makes a `bytes` object of them.

    Args:
        values (FieldArray): The values of a blob, in the blob's order.
    """
    found = BLS12_381_FR.to_bytes(_check(values))
    return found.reshape(*values.shape[:-1], BLOB_BYTES)


def coefficients(values: FieldArray) -> FieldArray:
    """The coefficients of the polynomial with a blob's values, the constant term first.

    Args:
        values (FieldArray): The values of a blob, in the blob's order.
    """
    return BLS12_381_FR.intt(_check(values), order_in="reversed")


def values_of(coefficients: FieldArray) -> FieldArray:
    """The values of a polynomial in a blob's order.

    Args:
        coefficients (FieldArray): The coefficients, the constant term first.
    """
    return BLS12_381_FR.ntt(_check(coefficients), order_out="reversed")


def evaluate(values: FieldArray, points: Any) -> FieldArray:
    """The polynomial with one blob's values, evaluated at any points.

    Args:
        values (FieldArray): The values of one blob, in the blob's order.
        points (FieldArray or int or list or numpy.ndarray): The points, of any shape.
    """
    return BLS12_381_FR.poly_eval(coefficients(values), points)


def domain() -> FieldArray:
    """The roots of unity that a blob's values belong to, in the blob's order."""
    x = BLS12_381_FR.encode([int(power == 1) for power in range(ELEMENTS)])
    return values_of(x)  # the polynomial X has the root itself as its value


def _check(array: FieldArray) -> FieldArray:
    # The field's own methods reject arrays of other fields and everything else.
    if isinstance(array, FieldArray) and array.shape[-1:] != (ELEMENTS,):
        raise ArgumentShapeError(f"a blob is {ELEMENTS} elements; the shape is {array.shape}")
    return array
