"""The passes of transforms whose roots belong to blocks, for primes of 250 to 255 bits
(`glsl/block_pass.glsl`). `ops/transforms.py` chooses between them and those with twiddles.

The table of roots has half as many factors as a transform has elements. The device computes it from
two tables of about the square root of its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.block_passes import (
    FACTOR_WORDS,
    LIMBS_BITS,
    NUMBER_BYTES,
    PRIME_BITS,
    WORD,
    block_pass_kernel,
    encode_factor,
    root_factors_kernel,
)
from gpu_executor.primes import Prime, words
from gpu_executor.primes.number_theory import compute_powers

LEVELS_PER_PASS = 8
FEWER_LEVELS, FEWER_FROM = 7, 21
"""The most levels of a pass: fewer from that log2 n on, except in the pass whose rows are one
element. Eight levels leave 32 bytes of a row to a tile, seven 64: a line of the cache has 64 bytes
or 128 on all usual GPUs. On an NVIDIA H200, 2^22 elements of BLS12-381 Fr took 1.00 ms in passes of
7, 7, 8 levels and 1.03 ms in 8, 7, 7, and a pass that only copies takes 0.28 ms with rows of 32
bytes, 0.14 ms with 64 and 0.09 ms with contiguous tiles. 2^24 elements took 4.25 ms in 6, 6, 6, 6
levels and 4.29 ms in 8, 8, 8."""
LOG_TILE = 8
"""log2 of the elements of a tile, two for each invocation: the largest tile that fits the 16 KiB of
shared memory and the 128 invocations of a work-group that Vulkan guarantees. With the larger ones
that an NVIDIA H200 has room for, 2^22 elements took 1.15 instead of 1.00 ms: the subgroups of a
work-group wait longer for each other."""
MAX_LOG_LENGTH = 24
"""Of transforms: the roots of 2^24 elements take 604 MB."""
MIN_LOG_ROOTS = 12
"""Transforms of up to twice 2^12 elements share a table of roots."""
WORK_GROUP = 64
"""Of the kernel that makes the roots."""


def has_block_roots(prime: Prime, info: DeviceInfo, log_n: int) -> bool:
    """Whether a transform of 2^log_n elements on a device has roots of blocks."""
    return (
        prime.bits in PRIME_BITS
        and 1 <= log_n <= MAX_LOG_LENGTH
        and "subgroup shuffle" in info.features
        and info.limits.max_storage_buffer_range >= 2 * FACTOR_WORDS << log_n
        and info.limits.max_shared_memory >= NUMBER_BYTES << LOG_TILE
    )


def split_levels(log_n: int) -> list[int]:
    """The number of levels of each pass, as equal as possible, the larger ones last."""
    most = LEVELS_PER_PASS if log_n < FEWER_FROM else FEWER_LEVELS
    passes = -(-max(log_n - LEVELS_PER_PASS, 0) // most) + 1
    each, more = divmod(log_n, passes)
    return [each] * (passes - more) + [each + 1] * more


@dataclass(frozen=True, slots=True)
class RootTable:
    """The factors of the roots of `length` blocks."""

    factors: DeviceArray
    length: int


def get_root_table(device: ArrayDevice, prime: Prime, log_n: int, *, inverse: bool) -> RootTable:
    """The cached roots for transforms of 2^log_n elements, or of more."""
    log_length = max(log_n - 1, min(MIN_LOG_ROOTS, prime.two_adicity - 1))
    return device.cache(
        ("roots of blocks", prime, log_length, inverse),
        lambda: _make_root_table(device, prime, log_length, inverse=inverse),
    )


def _make_root_table(
    device: ArrayDevice, prime: Prime, log_length: int, *, inverse: bool
) -> RootTable:
    root = prime.root_of_unity(log_length + 1)
    if inverse:
        root = pow(root, -1, prime.modulus)
    length, low_bits = 1 << log_length, (log_length + 1) // 2
    low = _put_powers(device, prime, root, 1 << low_bits)
    step = pow(root, 1 << low_bits, prime.modulus)
    high = _put_powers(device, prime, step, 1 << (log_length - low_bits))
    factors = device.empty((FACTOR_WORDS * length,), WORD)
    groups = min(-(-length // WORK_GROUP), device.info.limits.max_work_group_count[0])
    making = Dispatch(
        root_factors_kernel(prime),
        (low, high, factors),
        length,
        (log_length, low_bits),
        groups=groups,
        work_group=WORK_GROUP,
    )
    device.submit([making])
    return RootTable(factors, length)


def _put_powers(device: ArrayDevice, prime: Prime, base: int, count: int) -> DeviceArray:
    """The powers of `base`, each times 2^261 mod p."""
    powers = compute_powers(prime.modulus, base, count, 1 << LIMBS_BITS)
    return device.put(words.from_ints(prime, powers))


@dataclass(frozen=True, slots=True)
class BlockPass:
    """One pass over all elements, which are blocks of 2^log_m: its kernels and its tables."""

    get_kernel: Callable[..., Kernel]
    """The kernel with the given `grid_stride`, `reverses` and `pads` of `block_pass_kernel`."""
    roots: RootTable
    scale: DeviceArray
    """The factor of an inverse transform; bound in its place where the pass does not scale: the
    roots."""
    log_m: int
    log_n: int
    log_tile: int
    """log2 of the elements in a tile."""

    def make_dispatch(
        self,
        x: DeviceArray,
        y: DeviceArray,
        count: int,
        max_groups: int,
        *,
        reverse: bool,
        own_length: int = 0,
    ) -> Dispatch:
        """The dispatch from x to y. Unless `own_length` is 0, rows of x have only so many elements,
        which zeros follow."""
        tiles = count >> self.log_tile
        return Dispatch(
            self.get_kernel(grid_stride=tiles > max_groups, reverses=reverse, pads=own_length > 0),
            (x, self.roots.factors, self.scale, y),
            count,
            (self.log_m, self.log_n, own_length, self.roots.length),
            groups=min(tiles, max_groups),
            work_group=1 << self.log_tile - 1,
        )


class BlockPasses:
    """The passes of a transform of 2^log_n elements, with their roots, for one direction and one
    order of the input. With `log_repeats`, the input has 2^log_repeats times as few elements, in
    natural order, which zeros would follow: the first log_repeats levels would make 2^log_repeats
    equal blocks of them.
    """

    def __init__(
        self,
        device: ArrayDevice,
        prime: Prime,
        log_n: int,
        *,
        inverse: bool,
        decimation_in_time: bool,
        log_repeats: int = 0,
    ) -> None:
        roots = get_root_table(device, prime, log_n, inverse=inverse)
        log_subgroup = device.info.shuffle_lanes.bit_length() - 1
        log_m = log_first = log_n - log_repeats
        passes = []
        for levels in split_levels(log_m):
            log_r = log_m - levels
            columns = min(LOG_TILE - levels, log_r or log_n - levels)
            # The pass of the largest blocks is the first one, or the last one in time.
            scales = inverse and log_m == log_first
            scale = roots.factors
            if scales:
                scale = device.put(encode_factor(prime, pow(1 << log_n, -1, prime.modulus)))
            get_kernel = partial(
                block_pass_kernel,
                prime,
                decimation_in_time=decimation_in_time,
                levels=levels,
                columns=columns,
                by_block=log_r == 0,
                log_subgroup=log_subgroup,
                scales=scales,
                repeats=log_repeats > 0 and log_m == log_first,
            )
            passes.append(
                BlockPass(cache(get_kernel), roots, scale, log_m, log_n, levels + columns)
            )
            log_m = log_r
        self.passes = passes[::-1] if decimation_in_time else passes
