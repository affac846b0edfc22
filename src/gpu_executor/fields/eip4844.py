"""EIP-4844's blobs: 4096 elements of BLS12-381 Fr, the values of a polynomial.

Each is 32 bytes, big-endian. They are the values at the 4096th roots of unity, in bit-reversed
order: what `order_in="reversed"` and `order_out="reversed"` say of transforms. All of this works
on the host and on a card; leading axes are a batch of blobs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.array import FieldArray
from gpu_executor.fields.named import BLS12_381_FR
from gpu_executor.primes.encoding import BytesLike

ELEMENTS = 4096
ELEMENT_BYTES = 32
BLOB_BYTES = ELEMENTS * ELEMENT_BYTES


def from_blob(blob: BytesLike) -> FieldArray:
    """The values that a blob holds, as they lie in it; of an array of `uint8` each row is one."""
    try:
        rows = blob if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.uint8)
    except TypeError:
        raise ArgumentTypeError(f"a blob is bytes, not a {type(blob).__name__}") from None
    if rows.shape[-1:] != (BLOB_BYTES,):
        raise ArgumentShapeError(f"a blob is {BLOB_BYTES} bytes, and the shape is {rows.shape}")
    return BLS12_381_FR.from_bytes(rows.reshape(*rows.shape[:-1], ELEMENTS, ELEMENT_BYTES))


def to_blob(values: FieldArray) -> npt.NDArray[np.uint8]:
    """Values as the bytes of a blob; `.tobytes()` makes a string of them."""
    found = BLS12_381_FR.to_bytes(_checked(values))
    return found.reshape(*values.shape[:-1], BLOB_BYTES)


def coefficients(values: FieldArray) -> FieldArray:
    """Those of the polynomial that has a blob's values, the constant first."""
    return BLS12_381_FR.intt(_checked(values), order_in="reversed")


def values_of(coefficients: FieldArray) -> FieldArray:
    """A polynomial's values in the order that a blob has."""
    return BLS12_381_FR.ntt(_checked(coefficients), order_out="reversed")


def evaluate(values: FieldArray, points: FieldArray) -> FieldArray:
    """The polynomial that has one blob's values, at any points."""
    return BLS12_381_FR.poly_eval(coefficients(values), points)


def domain() -> FieldArray:
    """The roots of unity that a blob's values belong to, in its order: the values of X."""
    return values_of(BLS12_381_FR.encode([int(power == 1) for power in range(ELEMENTS)]))


def _checked(array: FieldArray) -> FieldArray:
    if isinstance(array, FieldArray) and array.shape[-1:] != (ELEMENTS,):
        raise ArgumentShapeError(f"a blob is {ELEMENTS} elements, and the shape is {array.shape}")
    return array  # what is no array of this field at all, the field refuses
