"""Exact field arithmetic on element arrays with NumPy: the reference for the kernels.

Arrays have shape (..., columns) in the prime's column dtype, or (...) if an element is one
column. `add`, `sub`, `mul`, `mont_mul` and `power` take elements below the modulus (check with
`first_not_below`) and return elements below it. Words are little-endian, as on every machine that
Vulkan runs on.
"""

from array import array as machine_array
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice, pairwise, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.primes.prime import WORD_BYTES, Form, LimbLayout, Prime

Elements = npt.NDArray[np.unsignedinteger[Any]]
Planes = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]

# Elements computed per block. With fewer, NumPy's cost per call dominates; with more, the
# temporaries no longer fit the cache. On one Xeon core of 2.5 GHz (1 MiB of L2 cache), a BLS12-381
# Fr product takes 566 ns in blocks of 1024, 473 of 2048, 425 of 4096, 485 of 8192.
BLOCK = 4096

# The `array` type codes of uint32 and uint64, by the number of words of a one-column element.
_ARRAY_CODES = {1: "I", 2: "Q"}
# Integers converted per block, so that the intermediate byte strings stay in the cache. On a
# Neoverse-N1 core, converting 10^6 integers of 255 bits to words takes 265 ms at once and
# 161 ms in blocks of 1024; converting back, 206 and 164 ms.
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
    # Of elements below the modulus, hardly any has the highest column of the modulus.
    if not len(rows) or rows[:, -1].max() < modulus[-1, 0]:
        return None
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


def mul(prime: Prime, a: Elements, b: Elements) -> Elements:
    """Return a * b mod p."""
    return _apply_blockwise(prime, a, b, _Multiplier(prime, 1))


def mont_mul(prime: Prime, a: Elements, b: Elements) -> Elements:
    """Return the Montgomery product a * b / R mod p."""
    return _apply_blockwise(prime, a, b, _Multiplier(prime, prime.r_inverse))


def power(prime: Prime, a: Elements, exponent: int, form: Form) -> Elements:
    """Return every element to one power, at least 1. The elements are in any form and stay in it.

    An exponent of b bits takes b - 1 squares and at most b - 1 products.
    """
    multiplier = _Multiplier(prime, 1 if form == "canonical" else prime.r_inverse)

    def raise_block(a: Elements, _: Elements, out: Elements) -> None:
        multiplier.raise_to(exponent, a, out)

    return _apply_blockwise(prime, a, a, raise_block)


# --- rows and blocks ---


def element_rows(prime: Prime, array: Elements) -> Elements:
    """Return the array reshaped to one row per element; a view if the strides allow it."""
    check_layout(prime, array)
    return array.reshape(-1, prime.columns)


def check_layout(prime: Prime, array: Any) -> None:
    """Raise unless an array of the host or of a device has the dtype and the last axis of elements
    of a prime."""
    if array.dtype != prime.column_dtype:
        raise ArgumentTypeError(
            f"{prime.name}: expected elements of {prime.column_dtype}, found {array.dtype}"
        )
    if prime.element_shape != array.shape[array.ndim - len(prime.element_shape) :]:
        raise ArgumentShapeError(
            f"{prime.name}: the last axis holds the {prime.columns} columns of an element, but the "
            f"shape is {array.shape}"
        )


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
# einsum (fused multiply-add) for the product, and BLAS for the reduction, a product by a constant
# matrix. 24 bits are three bytes, so converting between words and limbs is byte addressing.
#
# With B = 2^24, L limbs hold an element. The product a * b is T = sum t[i] B^i over 2L limbs, and
# T f mod p for a constant f is Y = sum t[i] (B^i f mod p), less a multiple of p. The limbs of the
# constants B^i f mod p are the columns of the matrix. Its last row has the constants divided by p,
# so the same matrix product gives Y / p, which rounds to that multiple.
#
# Every intermediate is an exact integer, in any order of summation. L is at most 32 (768 bits).
# - A column of a * b is at most 32 (2^24 - 1)^2 < 2^53.
# - Two carry passes that round to nearest leave |t[i]| <= 2^23 + 33, and |t[2L - 1]| <= 2^24 + 1.
# - The constants are between -p/2 and p/2 and have limbs of at most 2^23 + 1. So a limb of Y is at
#   most 65 * 2^46 * (1 + 2^-17) < 2^52.1, and |Y / p| < 2^28.1.
# - The multiple of p is at most 2^51.1 in a limb below the highest; the difference is below 2^53.
#   In the highest limb the difference is below 2^30, since Y less the multiple is below p and the
#   lower limbs are below 2^53. So the multiple is below 2^52.1 + 2^30 there.
# Only Y / p is rounded: 65 sums of numbers below 2^28.1 make an error below 2^-18.5.
#
# A product costs L^2 multiply-adds for a * b and 2 L (L + 1) for the reduction.

_LIMB_BITS = 24
_LIMB_BYTES = _LIMB_BITS // 8
_LIMB_RADIX = float(1 << _LIMB_BITS)
# Limbs are read and written as 32-bit items, which reach this many bytes past the last limb.
_SPILL_BYTES = WORD_BYTES - _LIMB_BYTES
_MAX_QUOTIENT_ERROR = 2.0**-18


class _Reducer(NamedTuple):
    """The constants that reduce a product times a factor f."""

    limbs: int
    """L, the number of limbs of an element."""
    modulus: Planes
    """The limbs of the modulus, as a column vector."""
    matrix: Planes
    """The limbs of B^i f mod p in column i, and below them (B^i f mod p) / p."""


@lru_cache
def _make_reducer(prime: Prime, factor: int) -> _Reducer:
    p, count = prime.modulus, LimbLayout.covering(prime.words, _LIMB_BITS).count
    residues = [(factor << (_LIMB_BITS * i)) % p for i in range(2 * count)]
    residues = [each - p if each > p // 2 else each for each in residues]
    matrix = [[*_split_into_limbs(each, count), each / p] for each in residues]
    modulus = np.array(_split_into_limbs(p, count), np.float64).reshape(count, 1)
    return _Reducer(count, modulus, np.ascontiguousarray(np.array(matrix, np.float64).T))


def _split_into_limbs(value: int, count: int) -> list[int]:
    """Return `value` as limbs of -2^23 .. 2^23 - 1; the last one has what is left."""
    half, limbs = 1 << (_LIMB_BITS - 1), []
    for _ in range(count - 1):
        limb = (value + half) % (2 * half) - half
        limbs.append(limb)
        value = (value - limb) >> _LIMB_BITS
    return [*limbs, value]


class _Multiplier:
    """Multiplies blocks of elements, and the products by a constant factor. It reuses its arrays:
    allocating for each block is slower.
    """

    def __init__(self, prime: Prime, factor: int) -> None:
        self._reducer = _make_reducer(prime, factor)
        self._element_bytes = prime.element_bytes
        self._allocate(0)

    def _allocate(self, size: int) -> None:
        count = self._reducer.limbs
        self._size = size
        self._a = np.empty((count, size))
        self._b = np.empty((count, size))
        self._product = np.empty((2 * count, size))
        self._carries = np.empty((2 * count - 1, size))
        self._reduced = np.empty((count + 1, size))
        self._bytes = np.zeros((size, count * _LIMB_BYTES + _SPILL_BYTES), np.uint8)

    def __call__(self, a: Elements, b: Elements, out: Elements) -> None:
        if len(a) != self._size:
            self._allocate(len(a))
        self._to_limbs(a, self._a)
        self._to_limbs(b, self._b)
        self._to_words(self._multiply(self._a, self._b), out)

    def raise_to(self, exponent: int, a: Elements, out: Elements) -> None:
        """Write powers of elements; the exponent is at least 1. All products are of limbs, so only
        `a` and the last result are converted.
        """
        if len(a) != self._size:
            self._allocate(len(a))
        base = result = self._a
        self._to_limbs(a, base)
        for bit in f"{exponent:b}"[1:]:
            result = self._multiply(result, result)
            if bit == "1":
                result = self._multiply(result, base)
        self._to_words(result, out)

    def _limb_view(self) -> npt.NDArray[np.uint32]:
        """Return the bytes as limb planes; each item also covers the first byte of the next
        limb.
        """
        shape = (self._reducer.limbs, self._size)
        strides = (_LIMB_BYTES, self._bytes.shape[1])
        return np.ndarray(shape, np.uint32, self._bytes, strides=strides)

    def _to_limbs(self, rows: Elements, planes: Planes) -> None:
        self._bytes[:, : self._element_bytes] = np.ascontiguousarray(rows).view(np.uint8)
        self._bytes[:, self._element_bytes :] = 0
        planes[:] = self._limb_view() & np.uint32(_LIMB_RADIX - 1)

    def _to_words(self, planes: Planes, out: Elements) -> None:
        # In ascending order: the fourth byte of an item is zero and overlaps the first byte of the
        # next limb.
        for limbs, plane in zip(self._limb_view(), planes, strict=True):
            np.copyto(limbs, plane, casting="unsafe")
        out.view(np.uint8)[:] = self._bytes[:, : self._element_bytes]

    def _multiply(self, a: Planes, b: Planes) -> Planes:
        """Return the limbs of a * b times the factor, in 0 .. p-1. Later products reuse their
        memory, but may have them as operands.
        """
        # The 2L - 1 columns of the schoolbook product; the last plane is zero.
        count = self._reducer.limbs
        b_reversed = b[::-1]
        for power in range(2 * count - 1):
            low, high = max(0, power - count + 1), min(count, power + 1)
            above = count - 1 - power
            pairs = a[low:high], b_reversed[above + low : above + high]
            np.einsum("in,in->n", *pairs, out=self._product[power])
        self._product[-1] = 0
        return self._reduce()

    def _reduce(self) -> Planes:
        """Return the limbs of the product times the factor, reduced to 0 .. p-1."""
        count, modulus, matrix = self._reducer
        product, carries, reduced = self._product, self._carries, self._reduced
        for _ in range(2):
            np.multiply(product[:-1], 1 / _LIMB_RADIX, out=carries)
            np.rint(carries, out=carries)
            product[1:] += carries
            carries *= _LIMB_RADIX
            product[:-1] -= carries
        np.matmul(matrix, product, out=reduced)
        planes, quotient = reduced[:count], reduced[count]
        rounded = np.rint(quotient)
        quotient -= rounded
        # What is left is Y - q p, between -p/2 and p/2: add p to what is surely negative.
        rounded -= quotient < -_MAX_QUOTIENT_ERROR
        planes -= np.multiply(modulus, rounded, out=carries[:count])
        _carry(planes)
        negative = planes[-1] < 0
        if negative.any():  # close to 0, so that the quotient did not say
            planes += modulus * negative
            _carry(planes)
        return planes


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
