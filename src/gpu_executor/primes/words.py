"""Exact field arithmetic on element arrays, with NumPy alone: the reference for the kernels.

Arrays have shape (..., columns) in the prime's column dtype, or (...) when an element is one
column. `add`, `sub` and `mul` take elements below the modulus (`first_not_below` tells) and
return elements below it. Words are little-endian, as in every machine that Vulkan runs on.
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

# Elements worked on at once: fewer, and NumPy's cost for each call shows; more, and the
# temporaries fall out of the cache. On one Neoverse-N1 core (1 MiB of second-level cache), in
# 10^6 BLS12-381 Fq products a second: 0.86 by 1024, 1.31 by 4096, 1.40 by 8192, 1.34 by 16384.
BLOCK = 8192

# Elements of one column by their number of words: what `array` calls uint32 and uint64.
_ARRAY_CODES = {1: "I", 2: "Q"}
# Integers converted at once: what is between them and the words stays in the cache. On the same
# core, a million of 255 bits to words take 265 ms in one piece and 161 by 1024; back, 206 and 164.
_INTS = 1024
_LITTLE: Literal["little"] = "little"


def to_ints(prime: Prime, array: Elements) -> list[int]:
    """The elements as Python integers, in the array's flat order."""
    rows = np.ascontiguousarray(element_rows(prime, array))
    if prime.columns == 1:
        return rows.ravel().tolist()
    # NumPy's byte strings end before their last zeros, which are the highest bytes here.
    strings = rows.view(f"S{prime.element_bytes}").ravel()
    ints: list[int] = []
    for start in range(0, len(strings), _INTS):
        some = strings[start : start + _INTS].tolist()
        ints.extend(map(int.from_bytes, some, repeat(_LITTLE)))
    return ints


def from_ints(prime: Prime, ints: Iterable[int]) -> Elements:
    """A one-dimensional array of elements; the integers may be anything in 0 .. R-1."""
    columns: Elements
    if prime.columns == 1:
        packed = machine_array(_ARRAY_CODES[prime.words], iter(ints))
        columns = np.frombuffer(packed, prime.column_dtype)
        return columns
    size, rest, data = prime.element_bytes, iter(ints), bytearray()
    while some := b"".join(map(int.to_bytes, islice(rest, _INTS), repeat(size), repeat(_LITTLE))):
        data += some
    columns = np.frombuffer(data, prime.column_dtype)
    return columns.reshape(-1, prime.columns)


def first_not_below(prime: Prime, a: Elements) -> int | None:
    """The flat index of the first element that is not below the modulus, if there is one."""
    rows = element_rows(prime, a)
    modulus = _modulus_columns(prime)
    for block in _blocks(len(rows)):
        found = np.flatnonzero(_not_below(rows[block], modulus))
        if found.size:
            return int(block.start + found[0])
    return None


def add(prime: Prime, a: Elements, b: Elements) -> Elements:
    """a + b mod p."""
    modulus = _modulus_columns(prime)

    def add_block(a: Elements, b: Elements, out: Elements) -> None:
        total, carry = _ripple_add(_by_column(a), _by_column(b))
        reduced, borrow = _ripple_sub(total, modulus)
        # A carry out means a total above any modulus, whatever its columns still show.
        out[:] = np.where(borrow & ~carry, total, reduced).T

    return _blockwise(prime, a, b, add_block)


def sub(prime: Prime, a: Elements, b: Elements) -> Elements:
    """a - b mod p."""
    modulus = _modulus_columns(prime)

    def sub_block(a: Elements, b: Elements, out: Elements) -> None:
        difference, borrow = _ripple_sub(_by_column(a), _by_column(b))
        raised, _ = _ripple_add(difference, modulus)
        out[:] = np.where(borrow, raised, difference).T

    return _blockwise(prime, a, b, sub_block)


def mul(prime: Prime, a: Elements, b: Elements) -> Elements:
    """The Montgomery product a * b / R mod p."""
    return _blockwise(prime, a, b, _Multiplier(prime))


# --- arrays, rows and blocks ---


def element_rows(prime: Prime, array: Elements) -> Elements:
    """The array with one row for each element; a view where the strides allow one."""
    if array.dtype != prime.column_dtype:
        raise ArgumentTypeError(
            f"{prime.name}: elements are {prime.column_dtype}, not {array.dtype}"
        )
    if prime.element_shape != array.shape[array.ndim - len(prime.element_shape) :]:
        raise ArgumentShapeError(
            f"{prime.name}: an element is {prime.columns} columns, and the shape is {array.shape}"
        )
    return array.reshape(-1, prime.columns)


def _blocks(count: int) -> Iterable[slice]:
    return (slice(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK))


def _blockwise(
    prime: Prime,
    a: Elements,
    b: Elements,
    operation: Callable[[Elements, Elements, Elements], None],
) -> Elements:
    if a.shape != b.shape:
        raise ArgumentShapeError(f"{prime.name}: the shapes {a.shape} and {b.shape} differ")
    a_rows, b_rows = element_rows(prime, a), element_rows(prime, b)
    out: Elements = np.empty(a_rows.shape, prime.column_dtype)
    for block in _blocks(len(out)):
        operation(a_rows[block], b_rows[block], out[block])
    return out.reshape(a.shape)


# --- sums and comparisons, on the columns as they are ---


@lru_cache
def _modulus_columns(prime: Prime) -> Elements:
    """The modulus by column, shaped to go with any number of elements."""
    columns = from_ints(prime, [prime.modulus]).reshape(prime.columns, 1)
    columns.flags.writeable = False
    return columns


def _by_column(rows: Elements) -> Elements:
    """Each column contiguous, which is what NumPy's loops are fast on."""
    return np.ascontiguousarray(rows.T)


def _ripple_add(a: Elements, b: Elements) -> tuple[Elements, Bits]:
    """a + b by column from the least significant, and the carry out."""
    total = np.empty_like(a)
    carry = np.zeros(a.shape[1], np.bool_)
    for x, y, s in zip(a, b, total, strict=True):
        np.add(x, y, out=s)
        wrapped = s < x
        np.add(s, carry, out=s)
        # Adding the carry wraps a column around exactly when it leaves a zero.
        carry = wrapped | (s < carry)
    return total, carry


def _ripple_sub(a: Elements, b: Elements) -> tuple[Elements, Bits]:
    """a - b by column from the least significant, and the borrow out."""
    difference = np.empty_like(a)
    borrow = np.zeros(a.shape[1], np.bool_)
    for x, y, d in zip(a, b, difference, strict=True):
        np.subtract(x, y, out=d)
        # Taking the borrow wraps a column around exactly when it finds a zero.
        wrapped = (x < y) | (d < borrow)
        np.subtract(d, borrow, out=d)
        borrow = wrapped
    return difference, borrow


def _not_below(rows: Elements, modulus: Elements) -> Bits:
    """Which rows are at least the modulus."""
    above = np.zeros(len(rows), np.bool_)
    level = ~above
    for column, limit in zip(rows.T[::-1], modulus[::-1], strict=True):
        above |= level & (column > limit)
        level &= column == limit
        if not level.any():
            return above
    return above | level


# --- products, on 24-bit limbs in float64 ---
#
# A float64 holds every integer up to 2^53, and NumPy has its fastest loops for it: a fused
# multiply-and-add (einsum) for the product, and BLAS for what is multiplied by a constant, which
# is the whole reduction. With limbs of 24 bits and L <= 32 of them, a sum of L products is at
# most 32 * (2^24 - 1)^2 = 2^53 - 2^30 + 32, which leaves 2^30 for a carry of less than 2^29
# from the sum below: everything is an exact integer, in whatever order it is summed. 768 bits
# make exactly 32 limbs.
#
# 24 bits are also three bytes, so limbs are cut from and put into words by addressing alone, and
# the left shift that leaves R = 2^(32k) as it is, is a shift by whole bytes.

_LIMB_BITS = 24
_LIMB_BYTES = _LIMB_BITS // 8
_LIMB_RADIX = float(1 << _LIMB_BITS)
# Limbs are moved as 32-bit items, which reach this far past the last one.
_SPILL_BYTES = WORD_BYTES - _LIMB_BYTES


class _Reducer(NamedTuple):
    """What a reduction multiplies by; W = 2^(24 L) is R times 2^shift."""

    layout: LimbLayout
    modulus: Planes
    """The modulus's limbs, as a column."""
    inverse: Planes
    """Takes the limbs of x to the (uncarried) limbs of x / p mod W."""
    multiple: Planes
    """Takes the limbs of x to the (uncarried) limbs of x * p, from limb L-2 up."""


@lru_cache
def _reducer(prime: Prime) -> _Reducer:
    layout = LimbLayout.covering(prime.words, _LIMB_BITS)
    count = layout.count
    modulus = layout.split(prime.modulus)
    inverse = layout.split(pow(prime.modulus, -1, 1 << (_LIMB_BITS * count)))
    return _Reducer(
        layout,
        modulus=np.array(modulus, np.float64).reshape(count, 1),
        inverse=_product_matrix(inverse, range(count)),
        multiple=_product_matrix(modulus, range(count - 2, 2 * count)),
    )


def _product_matrix(limbs: tuple[int, ...], powers: range) -> Planes:
    """The matrix that multiplies a vector of limbs by `limbs`, its rows those of `powers`."""
    count = len(limbs)
    return np.array(
        [
            [limbs[power - j] if 0 <= power - j < count else 0 for j in range(count)]
            for power in powers
        ],
        np.float64,
    )


class _Multiplier:
    """Multiplies blocks; keeps its arrays, since fresh memory for each block costs more."""

    def __init__(self, prime: Prime) -> None:
        self._reducer = _reducer(prime)
        self._element_bytes = prime.element_bytes
        self._allocate(0)

    def _allocate(self, size: int) -> None:
        count = self._reducer.layout.count
        self._size = size
        self._a = np.empty((count, size))
        self._b = np.empty((count, size))
        self._product = np.zeros((2 * count, size))
        # One plane more than the quotient has, for the carry that mod W throws away.
        self._quotient = np.empty((count + 1, size))
        self._multiple = np.empty((count + 2, size))
        self._bytes = np.zeros((size, count * _LIMB_BYTES + _SPILL_BYTES), np.uint8)

    def __call__(self, a: Elements, b: Elements, out: Elements) -> None:
        if len(a) != self._size:
            self._allocate(len(a))
        self._unpack(a, self._a, self._reducer.layout.shift // 8)
        self._unpack(b, self._b, 0)
        self._multiply()
        self._pack(self._reduce(), out)

    def _limb_view(self) -> npt.NDArray[np.uint32]:
        """The bytes as limb planes; each item also covers the lowest byte of the next limb."""
        shape = (self._reducer.layout.count, self._size)
        strides = (_LIMB_BYTES, self._bytes.shape[1])
        return np.ndarray(shape, np.uint32, self._bytes, strides=strides)

    def _unpack(self, rows: Elements, planes: Planes, shift_bytes: int) -> None:
        self._bytes[:] = 0
        within = slice(shift_bytes, shift_bytes + self._element_bytes)
        self._bytes[:, within] = np.ascontiguousarray(rows).view(np.uint8)
        planes[:] = self._limb_view() & np.uint32(_LIMB_RADIX - 1)

    def _pack(self, planes: Planes, out: Elements) -> None:
        # Upwards, so that each limb's lowest byte replaces the zero its predecessor spilled.
        for limbs, plane in zip(self._limb_view(), planes, strict=True):
            np.copyto(limbs, plane, casting="unsafe")
        out.view(np.uint8)[:] = self._bytes[:, : self._element_bytes]

    def _multiply(self) -> None:
        """The product's 2L - 1 sums of limb products; its last plane stays zero."""
        count = self._reducer.layout.count
        b_downwards = self._b[::-1]
        for power in range(2 * count - 1):
            low, high = max(0, power - count + 1), min(count, power + 1)
            above = count - 1 - power
            a, b = self._a[low:high], b_downwards[above + low : above + high]
            np.einsum("in,in->n", a, b, out=self._product[power])
        self._product[-1] = 0

    def _reduce(self) -> Planes:
        """The product T to (T - m p) / W with m = T / p mod W, then into 0 .. p-1.

        Subtracting the multiple of p keeps the sums from growing: those of T and of m p are of
        one sign, so their difference is no larger than either. It lies between -p and p, as
        T < p W.
        """
        _, modulus, inverse, multiple = self._reducer
        count = len(modulus)
        product, high = self._product, self._product[count:]
        _carry(product[: count + 1])
        np.matmul(inverse, product[:count], out=self._quotient[:count])
        self._quotient[count] = 0
        _carry(self._quotient)
        np.matmul(multiple, self._quotient[:count], out=self._multiple)
        # Below W, T and m p agree but for a whole number of W, which is carried up. The two
        # limbs below W give it to 2^-18, and it is known to be an integer.
        top = product[count - 2 : count] - self._multiple[:2]
        carried = np.rint((top[1] + top[0] / _LIMB_RADIX) / _LIMB_RADIX)
        high -= self._multiple[2:]
        high[0] += carried
        _carry(high)
        high += modulus * (high[-1] < 0)
        _carry(high)
        return high


def _carry(planes: Planes) -> None:
    """Bring each plane but the last into 0 .. 2^24 - 1; the last keeps the sign."""
    carried = np.empty(planes.shape[1])
    for plane, above in pairwise(planes):
        np.multiply(plane, 1 / _LIMB_RADIX, out=carried)
        np.floor(carried, out=carried)
        np.add(above, carried, out=above)
        np.multiply(carried, _LIMB_RADIX, out=carried)
        np.subtract(plane, carried, out=plane)
