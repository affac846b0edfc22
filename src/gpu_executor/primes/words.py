"""Exact field arithmetic on element arrays with NumPy: the reference for the kernels.

Arrays have shape (..., columns) in the prime's column dtype, or (...) if an element is one
column. `add`, `sub` and `mont_mul` take elements below the modulus (check with `first_not_below`)
and return elements below it. Words are little-endian, as on every machine that Vulkan runs on.
"""

from array import array as machine_array
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice, pairwise, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.primes.prime import WORD_BYTES, LimbLayout, Prime

Elements = npt.NDArray[np.unsignedinteger[Any]]
Planes = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]

# Elements computed per block. With fewer, NumPy's cost per call dominates; with more, the
# temporaries no longer fit the cache. On one Neoverse-N1 core (1 MiB of L2 cache), in 10^6
# BLS12-381 Fq products a second: 0.86 in blocks of 1024, 1.31 of 4096, 1.40 of 8192, 1.34 of 16384.
BLOCK = 8192

# The `array` type codes of uint32 and uint64, by the number of words of a one-column element.
_ARRAY_CODES = {1: "I", 2: "Q"}
# Integers converted per block, so that the intermediate byte strings stay in the cache. On the
# same core, converting 10^6 integers of 255 bits to words takes 265 ms in one piece and 161 ms in
# blocks of 1024; converting back, 206 and 164 ms.
_INTS_PER_BLOCK = 1024
_LITTLE: Literal["little"] = "little"


def to_ints(prime: Prime, array: Elements) -> list[int]:
    """Return the elements as Python integers, in the array's flat order."""
    rows = np.ascontiguousarray(element_rows(prime, array))
    if prime.columns == 1:
        return rows.ravel().tolist()
    # NumPy strips trailing zero bytes of a byte string; they are the most significant bytes here.
    strings = rows.view(f"S{prime.element_bytes}").ravel()
    ints: list[int] = []
    for start in range(0, len(strings), _INTS_PER_BLOCK):
        some = strings[start : start + _INTS_PER_BLOCK].tolist()
        ints.extend(map(int.from_bytes, some, repeat(_LITTLE)))
    return ints


def from_ints(prime: Prime, ints: Iterable[int]) -> Elements:
    """Return a one-dimensional array of elements from integers in 0 .. R-1; OverflowError for
    others.
    """
    columns: Elements
    if prime.columns == 1:
        packed = machine_array(_ARRAY_CODES[prime.words], iter(ints))
        columns = np.frombuffer(packed, prime.column_dtype)
        return columns
    size, rest, data = prime.element_bytes, iter(ints), bytearray()
    while block := list(islice(rest, _INTS_PER_BLOCK)):
        data += b"".join(map(int.to_bytes, block, repeat(size), repeat(_LITTLE)))
    columns = np.frombuffer(data, prime.column_dtype)
    return columns.reshape(-1, prime.columns)


def first_not_below(prime: Prime, a: Elements) -> int | None:
    """Return the flat index of the first element that is not below the modulus; None if all are."""
    rows = element_rows(prime, a)
    modulus = _make_modulus_columns(prime)
    for block in _split_into_blocks(len(rows)):
        found = np.flatnonzero(_compare_with_modulus(rows[block], modulus))
        if found.size:
            return int(block.start + found[0])
    return None


def add(prime: Prime, a: Elements, b: Elements) -> Elements:
    """Return a + b mod p."""
    modulus = _make_modulus_columns(prime)

    def add_block(a: Elements, b: Elements, out: Elements) -> None:
        total, carry = _ripple_add(_to_columns(a), _to_columns(b))
        reduced, borrow = _ripple_sub(total, modulus)
        # With a carry out, the true total is at least R and so above the modulus.
        out[:] = np.where(borrow & ~carry, total, reduced).T

    return _apply_blockwise(prime, a, b, add_block)


def sub(prime: Prime, a: Elements, b: Elements) -> Elements:
    """Return a - b mod p."""
    modulus = _make_modulus_columns(prime)

    def sub_block(a: Elements, b: Elements, out: Elements) -> None:
        difference, borrow = _ripple_sub(_to_columns(a), _to_columns(b))
        raised, _ = _ripple_add(difference, modulus)
        out[:] = np.where(borrow, raised, difference).T

    return _apply_blockwise(prime, a, b, sub_block)


def mont_mul(prime: Prime, a: Elements, b: Elements) -> Elements:
    """Return the Montgomery product a * b / R mod p."""
    return _apply_blockwise(prime, a, b, _Multiplier(prime))


# --- rows and blocks ---


def element_rows(prime: Prime, array: Elements) -> Elements:
    """Return the array reshaped to one row per element; a view if the strides allow it."""
    if array.dtype != prime.column_dtype:
        raise ArgumentTypeError(
            f"{prime.name}: expected elements of {prime.column_dtype}, found {array.dtype}"
        )
    if prime.element_shape != array.shape[array.ndim - len(prime.element_shape) :]:
        raise ArgumentShapeError(
            f"{prime.name}: the last axis holds the {prime.columns} columns of an element, but the "
            f"shape is {array.shape}"
        )
    return array.reshape(-1, prime.columns)


def _split_into_blocks(count: int) -> Iterable[slice]:
    return (slice(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK))


def _apply_blockwise(
    prime: Prime,
    a: Elements,
    b: Elements,
    operation: Callable[[Elements, Elements, Elements], None],
) -> Elements:
    if a.shape != b.shape:
        raise ArgumentShapeError(
            f"{prime.name}: the operands' shapes {a.shape} and {b.shape} differ"
        )
    a_rows, b_rows = element_rows(prime, a), element_rows(prime, b)
    out: Elements = np.empty(a_rows.shape, prime.column_dtype)
    for block in _split_into_blocks(len(out)):
        operation(a_rows[block], b_rows[block], out[block])
    return out.reshape(a.shape)


# --- sums and comparisons, column by column ---


@lru_cache
def _make_modulus_columns(prime: Prime) -> Elements:
    """Return the modulus as one column vector, which broadcasts over any number of elements."""
    columns = from_ints(prime, [prime.modulus]).reshape(prime.columns, 1)
    columns.flags.writeable = False
    return columns


def _to_columns(rows: Elements) -> Elements:
    """Return the transpose, contiguous: NumPy's loops are fast along a contiguous column."""
    return np.ascontiguousarray(rows.T)


def _ripple_add(a: Elements, b: Elements) -> tuple[Elements, Bits]:
    """Return a + b and the carry out; carries propagate from the least significant column up."""
    total = np.empty_like(a)
    carry = np.zeros(a.shape[1], np.bool_)
    for x, y, s in zip(a, b, total, strict=True):
        np.add(x, y, out=s)
        wrapped = s < x
        np.add(s, carry, out=s)
        # Adding a carry of 1 wraps around exactly when the sum becomes 0.
        carry = wrapped | (s < carry)
    return total, carry


def _ripple_sub(a: Elements, b: Elements) -> tuple[Elements, Bits]:
    """Return a - b and the borrow out; borrows propagate from the least significant column up."""
    difference = np.empty_like(a)
    borrow = np.zeros(a.shape[1], np.bool_)
    for x, y, d in zip(a, b, difference, strict=True):
        np.subtract(x, y, out=d)
        # Subtracting a borrow of 1 wraps around exactly when the difference is 0.
        wrapped = (x < y) | (d < borrow)
        np.subtract(d, borrow, out=d)
        borrow = wrapped
    return difference, borrow


def _compare_with_modulus(rows: Elements, modulus: Elements) -> Bits:
    """Return, for each row, whether it is at least the modulus; compare from the highest column
    down.
    """
    above = np.zeros(len(rows), np.bool_)
    equal = ~above
    for column, limit in zip(rows.T[::-1], modulus[::-1], strict=True):
        above |= equal & (column > limit)
        equal &= column == limit
        if not equal.any():
            return above
    return above | equal


# --- products, on 24-bit limbs in float64 ---
#
# A float64 represents every integer up to 2^53 exactly, and NumPy's fastest loops are for float64:
# einsum (fused multiply-add) for the product, and BLAS for products by a constant, which is the
# whole reduction. With L <= 32 limbs of 24 bits, a sum of L products is at most
# 32 * (2^24 - 1)^2 = 2^53 - 2^30 + 32. That leaves 2^30 for the carry from the sum below, which is
# less than 2^29. So every intermediate is an exact integer, in any order of summation. 768 bits
# make exactly 32 limbs.
#
# 24 bits are three bytes, so converting between words and limbs is byte addressing. The left shift
# that keeps R = 2^(32k) (see `prime.py`) is a shift by whole bytes.
#
# A product costs L^2 multiply-adds for a * b, L^2 for the quotient m and (L + 2) L for m * p.

_LIMB_BITS = 24
_LIMB_BYTES = _LIMB_BITS // 8
_LIMB_RADIX = float(1 << _LIMB_BITS)
# Limbs are read and written as 32-bit items, which reach this many bytes past the last limb.
_SPILL_BYTES = WORD_BYTES - _LIMB_BYTES


class _Reducer(NamedTuple):
    """The constants of a reduction by W = 2^(24 L) = R * 2^shift."""

    layout: LimbLayout
    modulus: Planes
    """The limbs of the modulus, as a column vector."""
    inverse: Planes
    """Matrix from the limbs of x to the limbs of x / p mod W, before carries."""
    multiple: Planes
    """Matrix from the limbs of x to the limbs of x * p from limb L-2 up, before carries."""


@lru_cache
def _make_reducer(prime: Prime) -> _Reducer:
    layout = LimbLayout.covering(prime.words, _LIMB_BITS)
    count = layout.count
    modulus = layout.split(prime.modulus)
    inverse = layout.split(pow(prime.modulus, -1, 1 << (_LIMB_BITS * count)))
    return _Reducer(
        layout,
        modulus=np.array(modulus, np.float64).reshape(count, 1),
        inverse=_make_product_matrix(inverse, range(count)),
        multiple=_make_product_matrix(modulus, range(count - 2, 2 * count)),
    )


def _make_product_matrix(limbs: tuple[int, ...], powers: range) -> Planes:
    """Return the matrix that multiplies a vector of limbs by `limbs`; row i gives limb
    `powers[i]`.
    """
    count = len(limbs)
    return np.array(
        [
            [limbs[power - j] if 0 <= power - j < count else 0 for j in range(count)]
            for power in powers
        ],
        np.float64,
    )


class _Multiplier:
    """Multiplies blocks of elements. It reuses its arrays: allocating for each block is slower."""

    def __init__(self, prime: Prime) -> None:
        self._reducer = _make_reducer(prime)
        self._element_bytes = prime.element_bytes
        self._allocate(0)

    def _allocate(self, size: int) -> None:
        count = self._reducer.layout.count
        self._size = size
        self._a = np.empty((count, size))
        self._b = np.empty((count, size))
        self._product = np.zeros((2 * count, size))
        # One more plane than the quotient needs, for the carry that the reduction mod W discards.
        self._quotient = np.empty((count + 1, size))
        self._multiple = np.empty((count + 2, size))
        self._bytes = np.zeros((size, count * _LIMB_BYTES + _SPILL_BYTES), np.uint8)

    def __call__(self, a: Elements, b: Elements, out: Elements) -> None:
        if len(a) != self._size:
            self._allocate(len(a))
        self._to_limbs(a, self._a, self._reducer.layout.shift // 8)
        self._to_limbs(b, self._b, 0)
        self._multiply()
        self._to_words(self._reduce(), out)

    def _limb_view(self) -> npt.NDArray[np.uint32]:
        """Return the bytes as limb planes; each item also covers the first byte of the next
        limb.
        """
        shape = (self._reducer.layout.count, self._size)
        strides = (_LIMB_BYTES, self._bytes.shape[1])
        return np.ndarray(shape, np.uint32, self._bytes, strides=strides)

    def _to_limbs(self, rows: Elements, planes: Planes, shift_bytes: int) -> None:
        self._bytes[:] = 0
        within = slice(shift_bytes, shift_bytes + self._element_bytes)
        self._bytes[:, within] = np.ascontiguousarray(rows).view(np.uint8)
        planes[:] = self._limb_view() & np.uint32(_LIMB_RADIX - 1)

    def _to_words(self, planes: Planes, out: Elements) -> None:
        # In ascending order: the fourth byte of an item is zero and overlaps the first byte of the
        # next limb.
        for limbs, plane in zip(self._limb_view(), planes, strict=True):
            np.copyto(limbs, plane, casting="unsafe")
        out.view(np.uint8)[:] = self._bytes[:, : self._element_bytes]

    def _multiply(self) -> None:
        """Compute the 2L - 1 columns of the schoolbook product; the last plane is zero."""
        count = self._reducer.layout.count
        b_reversed = self._b[::-1]
        for power in range(2 * count - 1):
            low, high = max(0, power - count + 1), min(count, power + 1)
            above = count - 1 - power
            a, b = self._a[low:high], b_reversed[above + low : above + high]
            np.einsum("in,in->n", a, b, out=self._product[power])
        self._product[-1] = 0

    def _reduce(self) -> Planes:
        """Compute the Montgomery reduction (T - m p) / W with m = T / p mod W, then reduce it to 0
        .. p-1.

        T is the product. The multiple of p is subtracted and not added, so that sums do not grow:
        the columns of T and of m p are both non-negative, so a difference is no larger than either.
        The result is between -p and p because T < p W.
        """
        _, modulus, inverse, multiple = self._reducer
        count = len(modulus)
        product, high = self._product, self._product[count:]
        _carry(product[: count + 1])
        np.matmul(inverse, product[:count], out=self._quotient[:count])
        self._quotient[count] = 0
        _carry(self._quotient)
        np.matmul(multiple, self._quotient[:count], out=self._multiple)
        # Modulo W, T and m p are equal; their uncarried limbs below W differ by a multiple of W,
        # which is the carry into limb L. The two limbs below W give that carry to within 2^-18,
        # and it is an integer, so rounding makes it exact.
        top = product[count - 2 : count] - self._multiple[:2]
        carried = np.rint((top[1] + top[0] / _LIMB_RADIX) / _LIMB_RADIX)
        high -= self._multiple[2:]
        high[0] += carried
        _carry(high)
        high += modulus * (high[-1] < 0)
        _carry(high)
        return high


def _carry(planes: Planes) -> None:
    """Propagate carries, so that each plane but the last is in 0 .. 2^24 - 1; the last keeps the
    sign.
    """
    carried = np.empty(planes.shape[1])
    for plane, above in pairwise(planes):
        np.multiply(plane, 1 / _LIMB_RADIX, out=carried)
        np.floor(carried, out=carried)
        np.add(above, carried, out=above)
        np.multiply(carried, _LIMB_RADIX, out=carried)
        np.subtract(plane, carried, out=plane)
