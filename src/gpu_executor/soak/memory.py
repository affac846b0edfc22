"""How memory moves: looked at while nothing is in flight, so that one moment is like another."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_executor.vulkan.binding import live_objects
from gpu_executor.vulkan.stats import Stats
from gpu_executor.webgpu.stats import WgpuStats

WARM_UP, LEAST_WARM_UP = 0.25, 120.0
"""The share of a run in which caches fill, and the seconds that this takes at least: dozens of
kernels are compiled for each device, and what is kept for batches follows the largest so far."""
LEAST = 20
"""Samples after that, without which nothing can be said: one may be 200 MiB beside the next, and
growth is told by the medians of quarters. Of twelve samples a run that did not grow was found to
(701 and 820 MiB; 806 and 744 after ten minutes of the same jobs)."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process and its devices hold at a moment."""

    seconds: float
    """Since the run began."""
    resident: int
    """Bytes that the process has in memory."""
    vulkan: int
    """Bytes that the Vulkan backends hold."""
    webgpu: int
    """Bytes that the WebGPU backends hold for the next task."""
    other: int
    """Resident bytes that no backend accounts for: code, compiled kernels, the mix itself. Where a
    device is software, what backends hold is resident too."""
    objects: int
    """Vulkan's, made and not destroyed."""


def sample(begun: float, backends: Iterable[Any], *, software: bool) -> Sample:
    """From the statistics of backends of any kind."""
    gc.collect()
    _give_back_freed()
    vulkan = webgpu = 0
    for stats in backends:
        if isinstance(stats, Stats):
            vulkan += stats.memory.bytes_held
        elif isinstance(stats, WgpuStats):
            webgpu += stats.pool.bytes_idle + stats.pool.bytes_in_use
    resident = resident_bytes()
    return Sample(
        seconds=time.monotonic() - begun,
        resident=resident,
        vulkan=vulkan,
        webgpu=webgpu,
        other=resident - (vulkan + webgpu if software else 0),
        objects=sum(live_objects().values()),
    )


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _give_back_freed() -> None:
    """What was freed goes back to the system, so that what is left is in use. A driver's compiler
    frees hundreds of megabytes that the C library would keep, torn between its arenas."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # the GNU library has it
        trim(0)


@dataclass(frozen=True, slots=True)
class Movement:
    """One figure from the first quarter after warming up to the last; medians of both."""

    what: str
    first: float
    last: float
    allowed: float | None
    """By how much it may grow; None where too little was seen to judge."""

    @property
    def grew(self) -> bool:
        return self.allowed is not None and self.last - self.first > self.allowed


ALLOWED = {
    # A reopened device has no compiled kernels yet, which is tens of megabytes less.
    "other": (64 * MIB, 0.15),
    "vulkan": (96 * MIB, 0.5),
    "webgpu": (256 * MIB, 0.5),
    "objects": (200, 0.5),
}
"""Growth that is none: so much, or that share of what there was, whichever is more."""


def movements(samples: Sequence[Sample]) -> list[Movement]:
    """Of each figure; none from no samples."""
    if not samples:
        return []
    begun = WARM_UP * samples[-1].seconds
    warm = [each for each in samples if each.seconds > max(begun, LEAST_WARM_UP)]
    judged = len(warm) >= LEAST
    warm = warm if judged else [each for each in samples if each.seconds > begun]
    quarter = max(len(warm) // 4, 1)
    moved = []
    for what, (least, share) in ALLOWED.items():
        figures = [getattr(each, what) for each in warm]
        first, last = (statistics.median(part) for part in (figures[:quarter], figures[-quarter:]))
        moved.append(Movement(what, first, last, max(least, share * first) if judged else None))
    return moved
