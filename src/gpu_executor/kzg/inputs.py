"""The arguments of KZG functions: blobs, cells, field elements and points as rows of bytes.

Single functions take `bytes`, as ckzg does, and batches take arrays of uint8 with one item in each
row. Both become `ByteRows`, which know their argument's name for messages.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import describe, is_masked
from gpu_executor.errors import ElementRangeError, KzgArgumentError, KzgDataError
from gpu_executor.fields import BLS12_381_FR as FR
from gpu_executor.fields import FieldArray
from gpu_executor.ops.element_bytes import read_bytes

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

BYTES_PER_FIELD_ELEMENT = 32
BYTES_PER_COMMITMENT = 48
BYTES_PER_PROOF = 48
FIELD_ELEMENTS_PER_BLOB = 4096
FIELD_ELEMENTS_PER_CELL = 64
CELLS_PER_EXT_BLOB = 128
BYTES_PER_BLOB = FIELD_ELEMENTS_PER_BLOB * BYTES_PER_FIELD_ELEMENT
BYTES_PER_CELL = FIELD_ELEMENTS_PER_CELL * BYTES_PER_FIELD_ELEMENT


@dataclass(frozen=True)
class ByteRows:
    """Items of one argument: rows (n, bytes of an item)."""

    name: str
    """The argument's name."""
    data: Bytes
    numbers: Sequence[int] | None
    """The indices of the items in the argument, for messages; None for the argument of a single
    function."""

    def __len__(self) -> int:
        return len(self.data)

    def describe(self, index: int) -> str:
        """The item in words."""
        return self.name if self.numbers is None else f"{self.name}[{self.numbers[index]}]"

    def select(self, part: slice) -> ByteRows:
        """Some of the items."""
        numbers = None if self.numbers is None else self.numbers[part]
        return ByteRows(self.name, self.data[part], numbers)

    def send_elements(self, device: Backend) -> FieldArray:
        """The field elements of every item on the device: (n, elements of an item). The caller
        calls `check_elements` before anything is fetched."""
        encoded = device.to_device(self._get_numbers())
        return FieldArray(FR, read_bytes(FR.prime, encoded, big_endian=True), FR.form)

    def check_elements(self, elements: FieldArray) -> None:
        """Wait until the device has checked elements that were sent; raise for the first that is
        not below the modulus."""
        assert isinstance(elements.data, DeviceArray)
        try:
            elements.device.check(elements.data)
        except ElementRangeError as error:
            raise self._make_range_error(error.index) from None

    def load_elements(self) -> FieldArray:
        """The field elements of every item, on the host: (n, elements of an item)."""
        try:
            return FR.from_bytes(self._get_numbers())
        except ElementRangeError as error:
            raise self._make_range_error(error.index) from None

    def _get_numbers(self) -> Bytes:
        return self.data.reshape(len(self), self._count_elements(), BYTES_PER_FIELD_ELEMENT)

    def _count_elements(self) -> int:
        return int(self.data.shape[1]) // BYTES_PER_FIELD_ELEMENT

    def _make_range_error(self, index: int) -> KzgDataError:
        item, element = divmod(index, self._count_elements())
        which = f"element {element} of " if self._count_elements() > 1 else ""
        return KzgDataError(
            f"{which}{self.describe(item)} is not below the modulus of BLS12-381's scalar field"
        )

    def to_ints(self) -> list[int]:
        """The items as integers, each one field element."""
        values: list[int] = self.load_elements().ravel().tolist()
        return values


def make_point_error(rows: ByteRows, index: int, reason: str) -> KzgDataError:
    """The error for an item that is no point of the group."""
    return KzgDataError(
        f"{rows.describe(index)} is not a compressed point of BLS12-381 G1: {reason}"
    )


# --- what single functions take ---


def parse_bytes(name: str, value: Any, length: int) -> ByteRows:
    """One item, which must be `bytes`."""
    _check_bytes(name, value, length)
    return ByteRows(name, np.frombuffer(value, np.uint8).reshape(1, length), None)


def _check_bytes(name: str, value: Any, length: int) -> None:
    if not isinstance(value, bytes):
        raise KzgArgumentError(f"{name} must be bytes, not {describe(value)}")
    if len(value) != length:
        raise KzgArgumentError(f"{name} has {len(value):,} bytes; it must have {length:,}")


def parse_list(name: str, values: Any, length: int) -> ByteRows:
    """A list of `bytes`, or an array (n, bytes of an item)."""
    if isinstance(values, np.ndarray):
        return parse_array(name, values, length)
    if not isinstance(values, list):
        raise KzgArgumentError(
            f"{name} must be a list of bytes or an array, not {describe(values)}"
        )
    for index, value in enumerate(values):
        _check_bytes(f"{name}[{index}]", value, length)
    joined = np.frombuffer(b"".join(values), np.uint8)
    return ByteRows(name, joined.reshape(len(values), length), range(len(values)))


def parse_joined(name: str, value: Any, length: int) -> ByteRows:
    """Items one after the other in one `bytes`, or an array (n, bytes of an item)."""
    if isinstance(value, np.ndarray):
        return parse_array(name, value, length)
    if not isinstance(value, bytes):
        raise KzgArgumentError(f"{name} must be bytes or an array, not {describe(value)}")
    if len(value) % length:
        raise KzgArgumentError(
            f"{name} has {len(value):,} bytes; it must have a multiple of {length:,}"
        )
    rows = np.frombuffer(value, np.uint8).reshape(-1, length)
    return ByteRows(name, rows, range(len(rows)))


def parse_index_list(name: str, values: Any) -> npt.NDArray[Any]:
    """A list of integers from 0, or an array of integers (n,)."""
    if isinstance(values, np.ndarray):
        return parse_index_array(name, values, 1)
    if not isinstance(values, list):
        raise KzgArgumentError(
            f"{name} must be a list of integers or an array, not {describe(values)}"
        )
    for index, value in enumerate(values):
        if not isinstance(value, int):
            raise KzgArgumentError(f"{name}[{index}] must be an integer, not {describe(value)}")
        if not 0 <= value < 1 << 64:
            raise KzgArgumentError(f"{name}[{index}] is {value}; it must be from 0 to 2^64 - 1")
    return np.array(values, np.uint64).reshape(len(values))


# --- what batches take ---


def parse_array(name: str, value: Any, *lengths: int) -> ByteRows:
    """An array of uint8 of shape (n, *lengths); the rows are contiguous items."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8:
        found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe(value)
        raise KzgArgumentError(f"{name} must be an array of uint8, not {found}")
    if is_masked(value):
        raise KzgArgumentError(f"{name} is a masked array; pass its .data or .filled(value)")
    if value.shape[1:] != lengths or not value.ndim:
        wanted = ", ".join(map(str, ("n", *lengths)))
        raise KzgArgumentError(f"{name} has the shape {value.shape}; it must be ({wanted})")
    width = int(np.prod(lengths))
    rows = np.ascontiguousarray(value).reshape(len(value), width)
    return ByteRows(name, rows, range(len(rows)))


def parse_index_array(name: str, value: Any, axes: int) -> npt.NDArray[Any]:
    """An array of integers from 0 with that many axes."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        found = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else describe(value)
        raise KzgArgumentError(f"{name} must be an array of integers, not {found}")
    if is_masked(value):
        raise KzgArgumentError(f"{name} is a masked array; pass its .data or .filled(value)")
    if value.ndim != axes:
        raise KzgArgumentError(f"{name} has the shape {value.shape}; it must have {axes} axes")
    if value.size and value.min() < 0:
        raise KzgArgumentError(f"{name} has the index {value.min()}; indices begin at 0")
    return value


def check_indices(name: str, values: npt.NDArray[Any]) -> Indices:
    """The indices, if all of them are indices of cells."""
    if values.size and values.max() >= CELLS_PER_EXT_BLOB:
        raise KzgDataError(
            f"{name} has the index {values.max()}; a blob has the cells 0 to "
            f"{CELLS_PER_EXT_BLOB - 1}"
        )
    return values.astype(np.int64)


def check_counts(arguments: dict[str, int]) -> None:
    """Raise unless all arguments have equally many items."""
    if len(set(arguments.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in arguments.items())
        raise KzgArgumentError(f"the arguments differ in their number of items: {found}")


def find_distinct(rows: Bytes) -> tuple[Indices, Indices]:
    """The indices of the first of equal rows, in ascending order, and for every row its place among
    those; a row has a multiple of 8 bytes."""
    words = np.ascontiguousarray(rows).view(np.uint64)
    # Equal rows have equal keys. Different rows with one key are found below.
    keys = words @ np.frombuffer(secrets.token_bytes(words.shape[1] * 8), np.uint64)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(words[first[place]], words):
        _, first, place = np.unique(words, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return first[order], ranks[place.ravel()]


def split_items(data: Bytes) -> list[bytes]:
    """Every row as `bytes`."""
    return [row.tobytes() for row in data]


def cut(count: int, most: int) -> Sequence[slice]:
    """Slices of at most `most` items."""
    return [slice(first, min(first + most, count)) for first in range(0, count, most)]
