"""Conversions between Python integers, bytes and the words of elements.

Words here are in canonical form, 0 .. p-1. `to_form` and `from_form` convert between canonical form
and the form in which the prime's elements are stored. Integers of shape S become words of shape
S + `prime.element_shape` and bytes of shape S + (width,).
"""

import operator
from collections.abc import Iterable
from typing import Any, Literal, NoReturn, SupportsIndex

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
MAX_WIDTH = 1 << 16
"""Bytes of an element that callers may ask for."""


def byte_width(prime: Prime) -> int:
    """Return ceil(bits / 8), the number of bytes that every element fits into."""
    return -(-prime.bits // BYTE_BITS)


# --- integers ---


def ints_to_words(
    prime: Prime, ints: SupportsIndex | Iterable[Any], *, reduce: bool = False
) -> Elements:
    """Return the canonical words of integers in 0 .. p-1; with `reduce`, of any integers modulo p.

    `ints` is an integer, an iterable of integers, nested lists whose rows have equal lengths, or a
    NumPy array of integers or objects. The shape is kept.
    """
    values, shape = _flatten(prime, ints)
    # Python takes booleans for integers; NumPy's are refused where they become Python's.
    if bool in set(map(type, values)):
        _refuse(prime, [type(value) for value in values].index(bool), True)
    elements = _convert_valid(prime, values)
    if elements is None:
        values = _to_python_ints(prime, values)
        if reduce:
            values = [value % prime.modulus for value in values]
        else:
            _check_range(prime, values)
        elements = words.from_ints(prime, values)
    return elements.reshape((*shape, *prime.element_shape))


def words_to_ints(prime: Prime, elements: Elements) -> npt.NDArray[np.object_]:
    """Return canonical words as an object array of Python integers; `.tolist()` converts it to
    lists.
    """
    flat = words.to_ints(prime, elements)
    shape = elements.shape[: elements.ndim - len(prime.element_shape)]
    ints = np.empty(len(flat), np.object_)
    ints[:] = flat
    return ints.reshape(shape)


def _flatten(
    prime: Prime, ints: SupportsIndex | Iterable[Any]
) -> tuple[list[Any], tuple[int, ...]]:
    """Return the values in flat order, and their shape. The values' types are not checked yet."""
    if isinstance(ints, np.ndarray):
        if ints.dtype.kind not in "iuO":
            raise ArgumentTypeError(f"{prime.name}: expected integers, found {ints.dtype}")
        return ints.ravel().tolist(), ints.shape
    if isinstance(ints, bytes | bytearray | memoryview | str):
        raise ArgumentTypeError(
            f"{prime.name}: expected integers, found {type(ints).__name__}; "
            "from_bytes converts bytes"
        )
    if not isinstance(ints, Iterable):
        return [ints], ()
    values = list(ints)
    if values and isinstance(values[0], list | tuple | np.ndarray):
        try:
            nested = np.array(values, np.object_)
        except ValueError as error:  # NumPy cannot make one array of arrays of different shapes
            raise ArgumentShapeError(
                f"{prime.name}: the nested rows differ in shape; make their lengths equal"
            ) from error
        return _flatten(prime, nested)
    return values, (len(values),)


def _convert_valid(prime: Prime, values: list[Any]) -> Elements | None:
    """Return the words if all values are Python integers in 0 .. p-1 (the fast path); None
    otherwise.
    """
    try:
        elements = words.from_ints(prime, values)
    except (OverflowError, TypeError):
        return None
    return elements if words.first_not_below(prime, elements) is None else None


def _to_python_ints(prime: Prime, values: list[Any]) -> list[int]:
    """Return values of any integer type, such as NumPy scalars, as Python integers."""
    ints = []
    for at, value in enumerate(values):
        try:
            ints.append(operator.index(value))
        except TypeError:
            _refuse(prime, at, value)
    return ints


def _refuse(prime: Prime, at: int, value: Any) -> NoReturn:
    advice = "; int(value) makes one" if isinstance(value, bool | np.bool_) else ""
    raise ArgumentTypeError(
        f"{prime.name}: element {at} is of type {type(value).__name__}, not an integer{advice}"
    ) from None


def _check_range(prime: Prime, values: list[int]) -> None:
    for at, value in enumerate(values):
        if not 0 <= value < prime.modulus:
            raise ElementRangeError(f"{prime.name} from integers", 0, at)


# --- bytes ---


def bytes_to_words(
    prime: Prime,
    data: BytesLike,
    *,
    byteorder: ByteOrder = "big",
    width: int | None = None,
    reduce: bool = False,
) -> Elements:
    """Return the canonical words of elements of `width` bytes each, by default `byte_width(prime)`.

    A bytes-like object holds the elements one after another. An array of `uint8` holds one element
    along its last axis. An element that is not below p raises ElementRangeError, or is taken modulo
    p with `reduce`.
    """
    size = prime.element_bytes
    rows, shape = to_byte_rows(prime, data, check_width(prime, width))
    width = rows.shape[1]
    if width == size:
        columns = rows.view(prime.column_dtype)
        elements = columns.copy() if is_little(prime, byteorder) else _reverse_bytes(columns)
        too_large = None
    else:
        upwards = rows if is_little(prime, byteorder) else rows[:, ::-1]
        padded = np.zeros((len(rows), size), np.uint8)
        padded[:, :width] = upwards[:, :size]
        elements = padded.view(prime.column_dtype)
        too_large = _find_first_nonzero(upwards[:, size:])
    bad = [at for at in (too_large, words.first_not_below(prime, elements)) if at is not None]
    if bad and not reduce:
        raise ElementRangeError(f"{prime.name} from bytes", 0, min(bad))
    if bad:
        numbers = (int.from_bytes(row, byteorder) for row in map(bytes, rows))
        elements = words.from_ints(prime, [number % prime.modulus for number in numbers])
    return elements.reshape((*shape, *prime.element_shape))


def words_to_bytes(
    prime: Prime, elements: Elements, *, byteorder: ByteOrder = "big", width: int | None = None
) -> Bytes:
    """Return canonical words as `uint8`, the bytes of an element along the last axis."""
    size = prime.element_bytes
    width = check_width(prime, width)
    shape = elements.shape[: elements.ndim - len(prime.element_shape)]
    columns = np.ascontiguousarray(words.element_rows(prime, elements))
    out: Bytes
    if width == size:
        ordered = columns.copy() if is_little(prime, byteorder) else _reverse_bytes(columns)
        out = ordered.view(np.uint8)
    else:
        upwards = columns.view(np.uint8)
        too_large = _find_first_nonzero(upwards[:, width:])
        if too_large is not None:
            raise ArgumentShapeError(
                f"{prime.name}: element {too_large} does not fit into {width} bytes; "
                "give a larger width"
            )
        out = np.zeros((len(columns), width), np.uint8)
        padded = out if is_little(prime, byteorder) else out[:, ::-1]
        padded[:, :size] = upwards[:, :width]
    return out.reshape(*shape, width)


def to_byte_rows(prime: Prime, data: BytesLike, width: int) -> tuple[Bytes, tuple[int, ...]]:
    """Return the bytes as a contiguous array with one element per row, and the shape of the
    elements.
    """
    if not isinstance(data, np.ndarray):
        try:
            flat = np.frombuffer(data, np.uint8)
        except (TypeError, ValueError, BufferError) as error:
            raise ArgumentTypeError(
                f"{prime.name}: expected contiguous bytes, found {type(data).__name__}"
            ) from error
        if len(flat) % width:
            raise ArgumentShapeError(
                f"{prime.name}: {len(flat)} bytes are not a multiple of the {width} bytes of an "
                "element"
            )
        data = flat.reshape(-1, width)
    if data.dtype != np.uint8:
        raise ArgumentTypeError(f"{prime.name}: expected an array of uint8, found {data.dtype}")
    if data.shape[-1:] != (width,):
        raise ArgumentShapeError(
            f"{prime.name}: the last axis holds the {width} bytes of an element, but the shape is "
            f"{data.shape}"
        )
    return np.ascontiguousarray(data).reshape(-1, width), data.shape[:-1]


def check_width(prime: Prime, width: int | None) -> int:
    """Return the number of bytes of an element: `byte_width(prime)` for None."""
    if width is None:
        return byte_width(prime)
    try:
        number = None if isinstance(width, bool | np.bool_) else operator.index(width)
    except TypeError:
        number = None
    if number is None:
        raise ArgumentTypeError(f"{prime.name}: width is {width!r}; it must be an integer")
    if not 1 <= number <= MAX_WIDTH:
        bound = f"at most {MAX_WIDTH:,}" if number > 0 else "at least 1"
        raise ArgumentShapeError(f"{prime.name}: width is {number}; it must be {bound}")
    return number


def is_little(prime: Prime, byteorder: str) -> bool:
    """Return whether the first byte is the least significant one."""
    if not isinstance(byteorder, str) or byteorder not in ("big", "little"):
        raise ArgumentTypeError(
            f"{prime.name}: byteorder is {byteorder!r}; it must be 'big' or 'little'"
        )
    return byteorder == "little"


def _reverse_bytes(columns: Elements) -> Elements:
    """Return each row with its bytes in reverse order: reversed columns, each byte-swapped
    (fast).
    """
    return columns[:, ::-1].byteswap()


def _find_first_nonzero(rows: Bytes) -> int | None:
    """Return the index of the first row that is not all zeros."""
    if not np.ascontiguousarray(rows).any():
        return None
    return int(rows.any(axis=1).argmax())
