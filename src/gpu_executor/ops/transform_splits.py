"""How the levels of a transform are split into passes, and how wide the tiles of its passes are.

The tiles of the pass with the smallest distances are contiguous in memory: the last pass of a
transform from natural order, the first one of a transform from bit-reversed order. The other passes
are strided: a tile has short rows of memory.

What is split follows from memory that all GPUs have alike: rows of 32 or 64 bytes, which are parts
of a line of the cache, and tiles for the shared memory that Vulkan guarantees. Where a device has
too little for a tile, `ops/transforms.py` makes it narrower. Between splits that differ by a few
percent, and for the lengths from which on they gain, the figures of one large GPU decide: all are
of an NVIDIA H200. Results are the same with every split.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS_PER_PASS = 8
"""BLS12-381 Fr: 2^22 elements took 1.62 ms in passes of 8, 7, 7 levels and 1.60 ms in 6, 6, 5, 5;
2^24 took 7.02 ms in 8, 8, 8 levels and 7.02 ms in 6, 6, 6, 6."""
ROW_BYTES = 64
"""Contiguous bytes of a row in a tile. BLS12-381 Fr: 2^22 elements took 1.62 ms with 64 bytes and
1.76 ms with 128 bytes and tiles twice as large; 2^24 took 7.02 and 8.04 ms."""

# --- long transforms of elements that are one integer, on devices that are no CPUs ---

LONG_FROM = 17
"""log2 n from which on the following figures apply."""
TWO_PASSES_UP_TO = {4: 20, 8: 18}
"""log2 n up to which there are two passes, by the bytes of an element. 2^20 elements of BabyBear
took 0.018 ms in two passes and 0.021 ms in three, 2^18 of Goldilocks 0.0096 and 0.0127 ms; 2^20 of
Goldilocks took 0.038 ms in two passes and 0.036 ms in three."""
LONGER_BY, LONGEST_CONTIGUOUS = 2, {4: 10, 8: 9}
"""Of three passes the contiguous one has so many levels more than an equal part, at most these, by
the bytes of an element: the strided passes gain more than it loses. 2^22 elements of Goldilocks
took 0.132 ms in passes of 7, 6, 9 levels, 0.137 ms in 7, 7, 8 and in 6, 6, 10, and 0.143 ms in
8, 7, 7; 2^24 took 0.475 ms in 8, 7, 9 and 0.491 ms in 8, 8, 8. 2^22 elements of BabyBear took
0.0669 ms in 7, 6, 9 and 0.0702 ms in 8, 7, 7; 2^24 took 0.217 ms in 7, 7, 10 and 0.234 ms in
8, 8, 8."""
LONGER_LENGTHS, LONGER_FROM_REVERSED = range(24 + 1), {4: range(24, 24 + 1), 8: range(24 + 1)}
"""The log2 n for which that holds, from natural and from bit-reversed order. From bit-reversed
order 2^22 elements of BabyBear took 0.095 ms in passes of 7, 6, 9 levels and 0.067 ms in 8, 7, 7;
2^23 took 0.151 ms in 7, 7, 9 and 0.128 ms in 8, 8, 7; 2^24 took 0.219 ms in 7, 7, 10 and 0.231 ms
in 8, 8, 8. More than 2^24 elements were not measured."""
REVERSING_LEVELS = {4: 8, 8: 7}
"""The levels of passes if the contiguous one reverses the order: it needs tiles as wide as those of
the others, so it has no more levels. To natural order, 2^24 elements of BabyBear took 0.251 ms in
passes of 8, 8, 8 levels and 0.278 ms in 7, 7, 10, and those of Goldilocks 0.510 ms in 6, 6, 6, 6,
0.532 ms in 8, 8, 8 and 0.547 ms in 8, 7, 9."""
LOG_CONTIGUOUS_TILE, SMALL_TILES_FROM = 10, {4: 19, 8: 17}
"""log2 of the elements of a contiguous tile that does not reverse the order: 128 invocations and at
most 9 KB, which every device has; and log2 n from which on such tiles are used. More columns do not
make accesses wider: 2^20 elements of BabyBear took 0.0182 ms, and with tiles of 2^13 elements
0.0193 ms; but 2^18 elements took 0.0073 ms, and with tiles of 2^12 elements 0.0068 ms."""
NARROW_ROW_BYTES, NARROW_FROM = 32, 22
"""Of rows in two passes, and for elements of 4 bytes from that log2 n on, unless the contiguous
pass has more levels. 2^24 elements of BabyBear took 0.237 ms in passes of 8, 8, 8 levels with 32
bytes, 0.270 ms with 64 and 0.338 ms with 16; in 7, 7, 10 levels they took 0.244 ms with 32 bytes
and 0.217 ms with 64. 2^18 elements of Goldilocks in two passes took 0.0096 ms with 32 bytes and
0.0131 ms with 64."""


@dataclass(frozen=True, slots=True)
class Split:
    """The passes of a transform."""

    levels: tuple[int, ...]
    """The levels of each pass, that of the largest distances first; the last one is contiguous."""
    row_bytes: int = ROW_BYTES
    """The bytes of a row in a tile."""
    log_contiguous_tile: int | None = None
    """log2 of the elements of a contiguous tile; None if its width is that of other tiles."""


def split_levels(log_n: int, most: int) -> tuple[int, ...]:
    """The levels of each pass, as equal as possible and at most `most`."""
    passes = max(-(-log_n // most), 1)
    each, more = divmod(log_n, passes)
    return (*[each + 1] * more, *[each] * (passes - more))


def split_long(
    log_n: int, element_bytes: int, *, from_reversed: bool, reverses: bool, log_repeats: int
) -> Split:
    """The split of a long transform: from natural or from bit-reversed order, with or without a
    change of the order that the passes give. `log_repeats` levels are left out; no pass is
    contiguous then."""
    levels = log_n - log_repeats
    widens = reverses and not from_reversed  # the contiguous pass reverses the order
    if log_n <= TWO_PASSES_UP_TO[element_bytes] and (
        element_bytes == 4 or not (reverses or log_repeats)
    ):
        most = -(-TWO_PASSES_UP_TO[element_bytes] // 2)
        is_wide = widens or log_repeats or log_n < SMALL_TILES_FROM[element_bytes]
        tile = None if is_wide else LOG_CONTIGUOUS_TILE
        return Split(split_levels(levels, most), NARROW_ROW_BYTES, tile)
    lengths = LONGER_FROM_REVERSED[element_bytes] if from_reversed else LONGER_LENGTHS
    if log_n in lengths and not reverses and not log_repeats:
        contiguous = min(log_n // 3 + LONGER_BY, LONGEST_CONTIGUOUS[element_bytes])
        strided = split_levels(log_n - contiguous, -(-(log_n - contiguous) // 2))
        return Split((*strided, contiguous), ROW_BYTES, LOG_CONTIGUOUS_TILE)
    narrow = element_bytes == 4 and log_n >= NARROW_FROM
    row_bytes = NARROW_ROW_BYTES if narrow else ROW_BYTES
    return Split(split_levels(levels, REVERSING_LEVELS[element_bytes]), row_bytes)
