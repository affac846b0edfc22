"""`sort`, `argsort` and `bincount` of numbers, and the steps that they are made of.

On a device the sort is an LSD radix sort: one pass for each digit of 8 bits or less, the lowest
digit first. A pass keeps the order of keys with equal digits, so the sort is stable. All passes are
one submission, and nothing waits for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import as_numbers, describe, parse_count
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.indexing import gather_kernel
from gpu_executor.kernels.sorting import (
    BINCOUNT_WORK_GROUP,
    MAX_DIGIT_BITS,
    SCAN_STEP,
    SHARED_BINS,
    Order,
    bincount_kernel,
    choose_tile,
    exclusive_scan_kernel,
    histogram_kernel,
    pack_digits_kernel,
    scan_sums_kernel,
    scatter_kernel,
    scatter_pairs_kernel,
    unpack_digits_kernel,
)
from gpu_executor.ops.operation import operation

UINT32, INT32 = np.dtype(np.uint32), np.dtype(np.int32)
UINT64, FLOAT32 = np.dtype(np.uint64), np.dtype(np.float32)
ORDERS = {UINT32: Order.UNSIGNED, INT32: Order.SIGNED, FLOAT32: Order.FLOAT}
"""The dtypes of one word that are sorted. The two words of a uint64 are sorted one after the
other."""
WORD_BITS, LARGEST_KEY = 32, 0xFFFFFFFF
MAX_INDEXED = 1 << 32
"""The indices of fewer elements fit uint32."""
DIGIT_PASSES = 2
"""The passes of a sort of signed digits."""
SINGLE_SCAN = 4 * SCAN_STEP
"""Up to this many elements, one work-group computes an exclusive scan."""
MAX_SCAN_CHUNKS = 1024
"""Chunks of an exclusive scan. Each work-group adds up the sums of all chunks before its own."""
LARGEST_WASTE = 1.25
"""The places in tiles for each key of a row that is sorted by itself, at most."""
MAX_SHARED_GROUPS = 1024
"""Work-groups that count in shared memory. Each of them adds all of its counts to the result."""

Array = npt.NDArray[Any] | DeviceArray


def sort(x: Array, /) -> Any:
    """The elements of an array with one axis in ascending order. The order is NumPy's: NaN comes
    last, and elements that compare equal, such as -0.0 and 0.0, keep their order.

    Args:
        x (array): A NumPy or device array of uint32, int32, float32 or uint64.

    Returns:
        A NumPy array for a NumPy array. A device array for a device array: the sort is submitted
        and not waited for.
    """
    return _sort(_check_array("sort", x, (*ORDERS, UINT64)))


@operation
def _sort(x: Array) -> Array:
    return np.sort(np.asarray(x), kind="stable")


@_sort.by_steps
def _sort_by_steps(x: DeviceArray) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    steps: list[Step] = []
    if x.dtype != UINT64:
        result = _add_sort(steps, device, x, ORDERS[x.dtype])
    else:
        low, high = _split_words(x)
        low, high = _add_pairs_sort(steps, device, low, high)
        high, low = _add_pairs_sort(steps, device, high, low)
        result = device.empty(x.shape, UINT64)
        for word, target in zip((low, high), _split_words(result), strict=True):
            steps.append(ArrayCopy(word, target))
    _submit(device, steps)
    return result


def argsort(x: Array, /) -> Any:
    """The indices that sort an array, as uint32: the elements at these indices are `sort(x)`. The
    indices of elements that compare equal are in ascending order.

    Args:
        x (array): As in `sort`, with fewer than 2^32 elements.
    """
    x = _check_array("argsort", x, (*ORDERS, UINT64))
    if x.size >= MAX_INDEXED:
        raise ArgumentShapeError(
            f"argsort: the array has {x.size:,} elements; it takes fewer than {MAX_INDEXED:,}, "
            "because the indices are uint32"
        )
    return _argsort(x)


@operation
def _argsort(x: Array) -> Array:
    return np.argsort(np.asarray(x), kind="stable").astype(UINT32)


@_argsort.by_steps
def _argsort_by_steps(x: DeviceArray) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    steps: list[Step] = []
    if x.dtype != UINT64:
        _, indices = _add_pairs_sort(steps, device, x, None, order=ORDERS[x.dtype])
    else:
        low, high = _split_words(x)
        _, indices = _add_pairs_sort(steps, device, low, None)
        if x.size:
            keys = device.empty(x.shape, UINT32)
            arrays = high, indices, keys
            steps.append(Dispatch(gather_kernel(), arrays, x.size, (1, 1), grid_stride=True))
            _, indices = _add_pairs_sort(steps, device, keys, indices)
    _submit(device, steps)
    return indices


def bincount(x: Array, /, length: int) -> Any:
    """How often 0, 1, ..., length - 1 occur in an array with one axis, as uint32.

    Args:
        x (array): A NumPy or device array of uint32 or int32.
        length (int): The number of counts.

    Raises:
        ArgumentValueError: An element is negative or not below `length`. For a device array the
            error is raised when the counts, or an array computed from them, are fetched.
    """
    x = _check_array("bincount", x, (UINT32, INT32))
    return _bincount(x, parse_count("bincount: length", length))


def _make_bin_error(bins: int, index: int) -> ArgumentValueError:
    return ArgumentValueError(
        f"bincount: element {index} is not in 0 .. length - 1, and length is {bins}; give a "
        "larger length, or leave out such elements"
    )


@operation
def _bincount(x: Array, bins: int) -> Array:
    numbers = np.asarray(x)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= bins))
    if wrong.size:
        raise _make_bin_error(bins, int(wrong[0]))
    return np.bincount(numbers, minlength=bins).astype(UINT32)


@_bincount.by_steps
def _bincount_by_steps(x: DeviceArray, bins: int) -> DeviceArray:
    if x.size and not bins:
        raise _make_bin_error(bins, 0)  # no element of the result could carry the error
    device: ArrayDevice = x.storage.device
    counts = device.empty((bins,), UINT32)
    zero = device.cache("zero of uint32", lambda: device.put(np.zeros((), UINT32)))
    steps: list[Step] = [ArrayCopy(zero.broadcast_to(counts.shape), counts)] if bins else []
    if x.size:
        shared = bins <= SHARED_BINS
        groups = -(-x.size // BINCOUNT_WORK_GROUP)
        steps.append(
            Dispatch(
                bincount_kernel(shared=shared),
                (x, counts),
                x.size,
                (bins,),
                groups=min(groups, MAX_SHARED_GROUPS) if shared else groups,
                grid_stride=True,
                guarded=(counts,),
                make_error=functools.partial(_make_bin_error, bins),
            )
        )
    _submit(device, steps)
    return counts


def _check_array(call: str, x: Any, dtypes: Sequence[np.dtype[Any]]) -> Array:
    """The array, if it has one axis and one of the dtypes."""
    if not isinstance(x, np.ndarray | DeviceArray):
        raise ArgumentTypeError(f"{call} takes a NumPy array or a device array, not {describe(x)}")
    found: Array = x if isinstance(x, DeviceArray) else as_numbers(call, x)
    if found.dtype not in dtypes:
        names = ", ".join(map(str, dtypes))
        raise ArgumentTypeError(
            f"{call}: the array has the dtype {found.dtype}; it must be one of {names}"
        )
    if found.ndim != 1:
        raise ArgumentShapeError(
            f"{call}: the array has the shape {found.shape}; it must have one axis: reshape it"
        )
    return found


# --- sorting on a device ---


def sort_pairs(
    device: ArrayDevice,
    keys: DeviceArray,
    values: DeviceArray | None,
    key_bits: int = WORD_BITS,
    rows: int = 1,
) -> tuple[DeviceArray, DeviceArray]:
    """Sort uint32 keys below 2^key_bits, each with its uint32 value; return both.

    The sort is stable. Without `values`, the values are the positions of the keys. With several
    rows of equal length, each is sorted by itself. The keys of row r are then at least r B and
    below (r + 1) B, where B is 2^(key_bits - 1), or 2^32 - 1.
    """
    steps: list[Step] = []
    result = _add_pairs_sort(steps, device, keys, values, key_bits, rows=rows)
    _submit(device, steps)
    return result


def gains_by_rows(info: DeviceInfo, length: int, key_bits: int, row_bits: int) -> bool:
    """Whether a sort by keys of `key_bits` bits takes longer than one of its rows by themselves,
    whose keys have `row_bits` bits: that has fewer passes, and its tiles are nearly full."""
    return _fills_tiles(info, length) and _count_passes(row_bits) < _count_passes(key_bits)


def _fills_tiles(info: DeviceInfo, length: int) -> bool:
    """Whether the tiles of rows of so many keys are nearly full."""
    tile = choose_tile(info).size
    return -(-length // tile) * tile <= length * LARGEST_WASTE


def can_sort_digits(info: DeviceInfo, length: int, key_bits: int) -> bool:
    """Whether `sort_digits` takes rows of so many digits, and gains time: two passes sort these by
    keys of so many bits, a point and half of a key fit a word, and the rows have several tiles that
    are nearly full."""
    if _count_passes(key_bits) != DIGIT_PASSES:
        return False
    point_bits = WORD_BITS - 1 - -(-key_bits // DIGIT_PASSES)
    is_long = choose_tile(info).size < length <= 1 << point_bits
    return is_long and _fills_tiles(info, length)


def sort_digits(
    device: ArrayDevice, digits: DeviceArray, key_bits: int, rows: int
) -> tuple[DeviceArray, DeviceArray]:
    """Sort the signed digits of each row by their keys, where `can_sort_digits` says so.

    A digit is its key below 2^key_bits, with the topmost bit set if it is negative. The results are
    keys, those of row r plus r 2^(key_bits - 1), and entries: the place of each digit in its row
    before, with that bit. Keys of 2^(key_bits - 1) or more become 2^32 - 1.

    Between the passes a digit is one word (glsl/sort_packed.glsl), where a pair of key and value is
    two: a sort moves 32 bytes for each digit instead of 48.
    """
    tile, digit_bits = choose_tile(device.info), -(-key_bits // DIGIT_PASSES)
    row_length = digits.size // rows
    row_tiles = -(-row_length // tile.size)
    words, keys, entries = (device.empty(digits.shape, UINT32) for _ in range(3))
    histogram = device.empty(((rows * row_tiles) << digit_bits,), UINT32)
    count_digits = histogram_kernel(tile, digit_bits, Order.UNSIGNED)
    first, last = (each(tile, digit_bits) for each in (pack_digits_kernel, unpack_digits_kernel))
    steps: list[Step] = []

    def add(kernel: Kernel, arrays: tuple[DeviceArray, ...], shift: int, base: int) -> None:
        push = shift, row_length, row_tiles, base, LARGEST_KEY
        groups = rows * row_tiles
        steps.append(Dispatch(kernel, arrays, digits.size, push, groups=groups, grid_stride=True))

    add(count_digits, (digits, histogram), 0, 0)
    first_offsets = _add_scan(steps, device, histogram)
    add(first, (first_offsets, digits, words), 0, 1 << key_bits - 1)
    shift = WORD_BITS - digit_bits
    add(count_digits, (words, histogram), shift, 0)
    offsets = _add_scan(steps, device, histogram)
    add(last, (offsets, first_offsets, words, keys, entries), shift, 1 << key_bits - 1)
    _submit(device, steps)
    return keys, entries


def _count_passes(key_bits: int) -> int:
    return -(-key_bits // MAX_DIGIT_BITS)


class _Passes:
    """The passes of one sort: how the keys are divided into tiles and digits, and the memory of the
    histograms, which all passes share.
    """

    def __init__(
        self, device: ArrayDevice, size: int, key_bits: int, order: Order, rows: int = 1
    ) -> None:
        self.tile = choose_tile(device.info)
        self.count = _count_passes(key_bits)
        self.digit_bits = -(-key_bits // self.count)
        self._size, row_length = size, size // rows
        row_tiles = -(-row_length // self.tile.size)
        base, most = (1 << key_bits - 1, (1 << key_bits) - 1) if rows > 1 else (0, LARGEST_KEY)
        self._rows = row_length, row_tiles, base, most
        self._tiles, self._has_counts = rows * row_tiles, row_tiles > 1
        self._scan: list[Step] = []
        if self._has_counts:  # otherwise the scatter alone is a sort
            self._count_digits = histogram_kernel(self.tile, self.digit_bits, order)
            self._histogram = device.empty((self._tiles << self.digit_bits,), UINT32)
            self._offsets = _add_scan(self._scan, device, self._histogram)

    def add(
        self, steps: list[Step], number: int, scatter: Kernel, arrays: tuple[DeviceArray, ...]
    ) -> None:
        """Add the steps of a pass. Its scatter kernel takes these arrays behind the offsets; the
        keys are the first of them.
        """
        if not self._size:
            return
        keys = offsets = arrays[0]
        if self._has_counts:
            counted = keys, self._histogram
            steps.append(self._make_dispatch(number, self._count_digits, counted))
            steps += self._scan
            offsets = self._offsets
        steps.append(self._make_dispatch(number, scatter, (offsets, *arrays)))

    def _make_dispatch(
        self, number: int, kernel: Kernel, arrays: tuple[DeviceArray, ...]
    ) -> Dispatch:
        push_words = number * self.digit_bits, *self._rows
        return Dispatch(
            kernel, arrays, self._size, push_words, groups=self._tiles, grid_stride=True
        )


def _add_sort(
    steps: list[Step], device: ArrayDevice, keys: DeviceArray, order: Order
) -> DeviceArray:
    """Add the steps that sort keys of one word; return the sorted keys."""
    passes = _Passes(device, keys.size, WORD_BITS, order)
    kernel = scatter_kernel(passes.tile, passes.digit_bits, order)
    targets = [device.empty(keys.shape, keys.dtype) for _ in range(2)]
    keys = _make_contiguous(steps, device, keys)
    for number in range(passes.count):
        target = targets[number % 2]
        passes.add(steps, number, kernel, (keys, target))
        keys = target
    return keys


def _add_pairs_sort(
    steps: list[Step],
    device: ArrayDevice,
    keys: DeviceArray,
    values: DeviceArray | None,
    key_bits: int = WORD_BITS,
    order: Order = Order.UNSIGNED,
    rows: int = 1,
) -> tuple[DeviceArray, DeviceArray]:
    """Add the steps that sort keys of one word with their values, or with their positions if there
    are none; return both.
    """
    passes = _Passes(device, keys.size, key_bits, order, rows)
    targets = [
        (device.empty(keys.shape, keys.dtype), device.empty(keys.shape, UINT32)) for _ in range(2)
    ]
    keys = _make_contiguous(steps, device, keys)
    pair, indices = (keys, keys if values is None else values), values is None
    for number in range(passes.count):
        kernel = scatter_pairs_kernel(passes.tile, passes.digit_bits, order, indices=indices)
        target = targets[number % 2]
        passes.add(steps, number, kernel, (*pair, *target))
        pair, indices = target, False
    return pair


def _make_contiguous(steps: list[Step], device: ArrayDevice, array: DeviceArray) -> DeviceArray:
    """The array, or a copy for kernels to bind: a view would be copied for each of them."""
    if array.is_contiguous:
        return array
    made = device.empty(array.shape, array.dtype)
    steps.append(ArrayCopy(array, made))
    return made


def _split_words(x: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Views of the low and the high words of uint64."""
    strides = (*x.strides, 4)
    pairs = DeviceArray((*x.shape, 2), UINT32, x.storage, x.offset, strides)
    return pairs[:, 0], pairs[:, 1]


# --- exclusive scans on a device ---


def exclusive_scan(device: ArrayDevice, values: DeviceArray) -> DeviceArray:
    """The sums of all uint32 elements before each element, modulo 2^32."""
    steps: list[Step] = []
    result = _add_scan(steps, device, values)
    _submit(device, steps)
    return result


def _add_scan(steps: list[Step], device: ArrayDevice, values: DeviceArray) -> DeviceArray:
    """Add the steps of an exclusive scan; return its result."""
    result = device.empty(values.shape, UINT32)
    if not values.size:
        return result
    chunk = SINGLE_SCAN
    if values.size > SINGLE_SCAN:
        chunk = -(-values.size // (MAX_SCAN_CHUNKS * SCAN_STEP)) * SCAN_STEP
    chunks = -(-values.size // chunk)
    sums = values  # not read with a single chunk
    if chunks > 1:
        sums = device.empty((chunks,), UINT32)
        added = values, sums
        steps.append(Dispatch(scan_sums_kernel(), added, values.size, (chunk,), groups=chunks))
    arrays = values, sums, result
    steps.append(Dispatch(exclusive_scan_kernel(), arrays, values.size, (chunk,), groups=chunks))
    return result


def _submit(device: ArrayDevice, steps: Sequence[Step]) -> None:
    if steps:  # there are none for arrays without elements
        device.submit(steps)
