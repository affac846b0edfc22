"""Between Python integers, bytes and the words of elements.

Everything here is in canonical form, 0 .. p-1, but for `to_form` and `from_form`, which go between
it and the form that the prime's elements are kept in. An element adds the prime's `element_shape`
to a shape of integers, and its number of bytes to a shape of byte strings.
"""

import operator
from collections.abc import Iterable
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.primes import words
from gpu_executor.primes.prime import Prime
from gpu_executor.primes.words import Elements

ByteOrder = Literal["big", "little"]
Bytes = npt.NDArray[np.uint8]
BytesLike = bytes | bytearray | memoryview | Bytes

BYTE_BITS = 8


def byte_width(prime: Prime) -> int:
    """ceil(bits / 8): as many bytes as every element fits."""
    return -(-prime.bits // BYTE_BITS)


# --- integers ---


def ints_to_words(
    prime: Prime, ints: SupportsIndex | Iterable[Any], *, reduce: bool = False
) -> Elements:
    """The canonical words of integers in 0 .. p-1, or with `reduce` of any integers modulo p.

    An integer, any iterable of them, nested lists whose rows are of one length, or a NumPy array
    of integers or objects; the shape is kept.
    """
    values, shape = _flattened(prime, ints)
    elements = _packed(prime, values)
    if elements is None:
        values = _as_ints(prime, values)
        if reduce:
            values = [value % prime.modulus for value in values]
        else:
            _refuse_out_of_range(prime, values)
        elements = words.from_ints(prime, values)
    return elements.reshape((*shape, *prime.element_shape))


def words_to_ints(prime: Prime, elements: Elements) -> npt.NDArray[np.object_]:
    """Canonical words as Python integers, in an array of objects; `.tolist()` makes lists of it."""
    flat = words.to_ints(prime, elements)
    shape = elements.shape[: elements.ndim - len(prime.element_shape)]
    ints = np.empty(len(flat), np.object_)
    ints[:] = flat
    return ints.reshape(shape)


def _flattened(
    prime: Prime, ints: SupportsIndex | Iterable[Any]
) -> tuple[list[Any], tuple[int, ...]]:
    """The values in flat order, and their shape; whether they are integers is left open."""
    if isinstance(ints, np.ndarray):
        if ints.dtype.kind not in "iuO":
            raise ArgumentTypeError(f"{prime.name}: integers are wanted, not {ints.dtype}")
        return ints.ravel().tolist(), ints.shape
    if isinstance(ints, bytes | bytearray | memoryview | str):
        raise ArgumentTypeError(
            f"{prime.name}: integers are wanted, not {type(ints).__name__}; "
            "bytes_to_words takes bytes"
        )
    if not isinstance(ints, Iterable):
        return [ints], ()
    values = list(ints)
    if values and isinstance(values[0], list | tuple | np.ndarray):
        try:
            nested = np.array(values, np.object_)
        except ValueError as error:  # of rows that differ in length NumPy makes lists instead
            raise ArgumentShapeError(f"{prime.name}: the rows differ in shape") from error
        return _flattened(prime, nested)
    return values, (len(values),)


def _packed(prime: Prime, values: list[Any]) -> Elements | None:
    """The words, where all values are Python integers in range; nothing is said of the others."""
    try:
        elements = words.from_ints(prime, values)
    except (OverflowError, TypeError):
        return None
    return elements if words.first_not_below(prime, elements) is None else None


def _as_ints(prime: Prime, values: list[Any]) -> list[int]:
    """The values, of Python's, NumPy's or others' integer types, as Python integers."""
    ints = []
    for at, value in enumerate(values):
        try:
            ints.append(operator.index(value))
        except TypeError as error:
            raise ArgumentTypeError(
                f"{prime.name}: element {at} is of type {type(value).__name__}, not an integer"
            ) from error
    return ints


def _refuse_out_of_range(prime: Prime, values: list[int]) -> None:
    for at, value in enumerate(values):
        if not 0 <= value < prime.modulus:
            raise ElementRangeError(f"{prime.name} from integers", 0, at)


# --- bytes ---


def bytes_to_words(
    prime: Prime, data: BytesLike, *, byteorder: ByteOrder = "big", width: int | None = None
) -> Elements:
    """The canonical words of elements of `width` bytes each, `byte_width(prime)` unless given.

    Bytes are cut into elements one after another; an array of `uint8` has one in each row, that
    is, along its last axis. What is not below p is refused, whatever the width.
    """
    size = prime.element_bytes
    rows, shape = _byte_rows(prime, data, _checked_width(prime, width))
    width = rows.shape[1]
    if width == size:
        columns = rows.view(prime.column_dtype)
        elements = columns.copy() if _is_little(prime, byteorder) else _reversed(columns)
        too_large = None
    else:
        upwards = rows if _is_little(prime, byteorder) else rows[:, ::-1]
        padded = np.zeros((len(rows), size), np.uint8)
        padded[:, :width] = upwards[:, :size]
        elements = padded.view(prime.column_dtype)
        too_large = _first_nonzero(upwards[:, size:])
    bad = [at for at in (too_large, words.first_not_below(prime, elements)) if at is not None]
    if bad:
        raise ElementRangeError(f"{prime.name} from bytes", 0, min(bad))
    return elements.reshape((*shape, *prime.element_shape))


def words_to_bytes(
    prime: Prime, elements: Elements, *, byteorder: ByteOrder = "big", width: int | None = None
) -> Bytes:
    """Canonical words as bytes, one element along the last axis; `.tobytes()` strings them."""
    size = prime.element_bytes
    width = _checked_width(prime, width)
    shape = elements.shape[: elements.ndim - len(prime.element_shape)]
    columns = np.ascontiguousarray(words.element_rows(prime, elements))
    out: Bytes
    if width == size:
        ordered = columns.copy() if _is_little(prime, byteorder) else _reversed(columns)
        out = ordered.view(np.uint8)
    else:
        upwards = columns.view(np.uint8)
        too_large = _first_nonzero(upwards[:, width:])
        if too_large is not None:
            raise ArgumentShapeError(
                f"{prime.name}: element {too_large} does not fit {width} bytes"
            )
        out = np.zeros((len(columns), width), np.uint8)
        padded = out if _is_little(prime, byteorder) else out[:, ::-1]
        padded[:, :size] = upwards[:, :width]
    return out.reshape(*shape, width)


def _byte_rows(prime: Prime, data: BytesLike, width: int) -> tuple[Bytes, tuple[int, ...]]:
    """The bytes with one element in each row, contiguous, and the elements' shape."""
    if not isinstance(data, np.ndarray):
        try:
            flat = np.frombuffer(data, np.uint8)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{prime.name}: bytes are wanted, not {type(data).__name__}"
            ) from error
        if len(flat) % width:
            raise ArgumentShapeError(
                f"{prime.name}: {len(flat)} bytes are no whole number of elements of {width}"
            )
        data = flat.reshape(-1, width)
    if data.dtype != np.uint8:
        raise ArgumentTypeError(f"{prime.name}: bytes are uint8, not {data.dtype}")
    if data.shape[-1:] != (width,):
        raise ArgumentShapeError(
            f"{prime.name}: an element is {width} bytes, and the shape is {data.shape}"
        )
    return np.ascontiguousarray(data).reshape(-1, width), data.shape[:-1]


def _checked_width(prime: Prime, width: int | None) -> int:
    if width is None:
        return byte_width(prime)
    if width < 1:
        raise ArgumentShapeError(f"{prime.name}: elements of {width} bytes")
    return width


def _is_little(prime: Prime, byteorder: str) -> bool:
    if byteorder not in ("big", "little"):
        raise ArgumentTypeError(f"{prime.name}: bytes are 'big' or 'little', not {byteorder!r}")
    return byteorder == "little"


def _reversed(columns: Elements) -> Elements:
    """Each row's bytes in reverse order: by column and then within it, which NumPy is fast at."""
    return columns[:, ::-1].byteswap()


def _first_nonzero(rows: Bytes) -> int | None:
    """The index of the first row that is not all zeros."""
    if not np.ascontiguousarray(rows).any():
        return None
    return int(rows.any(axis=1).argmax())


# --- forms ---


def to_form(prime: Prime, elements: Elements) -> Elements:
    """Canonical words in the form that the prime's elements are kept in."""
    return elements if prime.canonical else _times(prime, elements, prime.r2_mod_p)


def from_form(prime: Prime, elements: Elements) -> Elements:
    """Words in the form that the prime's elements are kept in, as canonical words."""
    return elements if prime.canonical else _times(prime, elements, 1)


def _times(prime: Prime, elements: Elements, factor: int) -> Elements:
    """The Montgomery product with one factor for all."""
    column = words.from_ints(prime, [factor]).reshape(prime.element_shape)
    return words.mul(prime, elements, np.broadcast_to(column, elements.shape))
