"""The kernels of the radix sort, of the exclusive scan and of the count of equal integers.

Only a `Dispatch` runs them (`ops/sort.py`). A pass of the sort is a histogram of the digits in each
tile of keys, the exclusive scan of the histogram, and the scatter of the keys to their places. No
work-group waits for another, so the kernels need no guarantee of forward progress.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Constant, Kernel
from gpu_executor.kernels.modules import SpecId, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel

MAX_DIGIT_BITS = 8
"""Bits that one pass sorts by. An invocation of the scatter has one digit."""
SCAN_WORK_GROUP = 256
SCAN_STEP = 8 * SCAN_WORK_GROUP
"""Elements that a work-group of the exclusive scan adds up at once (glsl/exclusive_scan.comp)."""
BINCOUNT_WORK_GROUP = 256
SHARED_BINS = 4096
"""Up to this many bins are counted in shared memory."""


class Order(IntEnum):
    """How the words of keys are compared (glsl/sort_digits.glsl)."""

    UNSIGNED = 0
    SIGNED = 1
    FLOAT = 2


class Tile(NamedTuple):
    """The keys that a work-group of the sort takes at once: some for each invocation."""

    work_group: int
    keys: int

    @property
    def size(self) -> int:
        """The number of keys."""
        return self.work_group * self.keys


def choose_tile(info: DeviceInfo) -> Tile:
    """Return the tile for a device, by its shared memory and its largest work-group. Half of a
    usual one fits the 16 KiB of shared memory that Vulkan guarantees, and lavapipe compiles its
    kernels in half the time.

    An NVIDIA H200 sorts 2^24 keys in 0.70 ms with 512 x 8, 0.73 ms with 256 x 16, 0.76 ms with
    256 x 8 and 0.85 ms with 512 x 12; 2^24 pairs with keys of 20 bits take 0.59, 0.62, 0.60 and
    0.74 ms. Their bytes are copied in 0.38 ms.
    """
    limits = info.limits
    small = info.kind == "cpu" or limits.max_shared_memory < 32 << 10
    small = small or limits.max_work_group_invocations < 512
    return Tile(1 << MAX_DIGIT_BITS, 8) if small else Tile(2 << MAX_DIGIT_BITS, 8)


@functools.cache
def histogram_kernel(tile: Tile, digit_bits: int, order: Order) -> Kernel:
    """Return the kernel that counts the digits of each tile. Input: keys; push words: the lowest
    bit of the digit, the length and the tiles of a row, the base of a row's keys, and the largest
    key.
    """
    return _make_kernel("sort_histogram", 1, 1, _list_constants(tile, digit_bits, order))


@functools.cache
def scatter_kernel(tile: Tile, digit_bits: int, order: Order) -> Kernel:
    """Return the kernel that moves keys to their places. Inputs: offsets, keys; push words: as of
    `histogram_kernel`.
    """
    return _make_kernel("sort_scatter_keys", 2, 1, _list_constants(tile, digit_bits, order))


@functools.cache
def scatter_pairs_kernel(tile: Tile, digit_bits: int, order: Order, *, indices: bool) -> Kernel:
    """Return the kernel that moves keys with their values. Inputs: offsets, keys, values; outputs:
    keys, values. With `indices` the values are the positions of the keys, and the array of values
    is not read.
    """
    constants = _list_constants(tile, digit_bits, order) | {SpecId.INDICES: indices}
    return _make_kernel("sort_scatter_pairs", 3, 2, constants)


@functools.cache
def pack_digits_kernel(tile: Tile, digit_bits: int) -> Kernel:
    """Return the kernel of the first pass over signed digits. Inputs: offsets, digits; output:
    words; push words: as of `histogram_kernel`, with the buckets of a row as the base of its keys.
    """
    constants = _list_constants(tile, digit_bits, Order.UNSIGNED)
    return _make_kernel("sort_pack_digits", 2, 1, constants)


@functools.cache
def unpack_digits_kernel(tile: Tile, digit_bits: int) -> Kernel:
    """Return the kernel of the last pass over signed digits. Inputs: offsets, those of the first
    pass, words; outputs: keys, entries; push words: as of `pack_digits_kernel`.
    """
    constants = _list_constants(tile, digit_bits, Order.UNSIGNED)
    return _make_kernel("sort_unpack_digits", 3, 2, constants)


@functools.cache
def scan_sums_kernel() -> Kernel:
    """Return the kernel that adds up each chunk of an array. Push word: the length of a chunk."""
    return _make_kernel("scan_sums", 1, 1, {SpecId.WORK_GROUP_SIZE: SCAN_WORK_GROUP})


@functools.cache
def exclusive_scan_kernel() -> Kernel:
    """Return the kernel of prefix sums. Inputs: values, the sums of their chunks; push word: the
    length of a chunk, a multiple of `SCAN_STEP`.
    """
    return _make_kernel("exclusive_scan", 2, 1, {SpecId.WORK_GROUP_SIZE: SCAN_WORK_GROUP})


@functools.cache
def bincount_kernel(*, shared: bool) -> Kernel:
    """Return the kernel that counts equal integers; the counts begin as 0. Push word: the number of
    bins, at most `SHARED_BINS` with `shared`. The status word is the index of the first element
    that has no bin.
    """
    constants: dict[int, Constant] = {
        SpecId.WORK_GROUP_SIZE: BINCOUNT_WORK_GROUP,
        SpecId.PER_INVOCATION: 1,
        SpecId.SHARED_BINS: SHARED_BINS if shared else 1,
    }
    return _make_kernel("bincount", 1, 1, constants, status=True)


def _list_constants(tile: Tile, digit_bits: int, order: Order) -> dict[int, Constant]:
    return {
        SpecId.WORK_GROUP_SIZE: tile.work_group,
        SpecId.KEYS: tile.keys,
        SpecId.DIGIT_BITS: digit_bits,
        SpecId.ORDER: int(order),
    }


def _make_kernel(
    name: str,
    inputs: int,
    outputs: int,
    constants: Mapping[int, Constant],
    *,
    status: bool = False,
) -> Kernel:
    dtypes = [np.uint32] * (inputs + outputs)
    return make_pass_kernel(
        load_spirv(name), name, inputs, dtypes, constants=constants, status=status
    )
