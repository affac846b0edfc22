"""Memory samples, taken while no work is in flight, and whether memory grew between them."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_executor.common.main_memory import read_resident_bytes
from gpu_executor.errors import GpuError
from gpu_executor.vulkan.binding import count_live_objects

WARM_UP_SHARE, MIN_WARM_UP_SECONDS = 0.25, 120.0
"""The share of a run in which caches still fill, and the minimum duration of that part. Dozens of
kernels are compiled for each device, and the memory kept for batches follows the largest batch so
far."""
MIN_SAMPLES = 20
"""The number of samples after the warm-up that a judgement needs. Two samples in a row may differ
by 200 MiB, so growth is judged by the medians of the first and the last quarter. With twelve
samples a run that did not grow was reported to have grown (701 to 820 MiB; 806 to 744 after ten
minutes of the same jobs)."""
M_ARENA_MAX, HEAP_ARENAS = -8, 2
"""The option of `mallopt` that limits the number of arenas, and that number."""
MIB = 1 << 20
SMAPS = Path("/proc/self/smaps")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of the process and its devices at one moment."""

    seconds: float
    """Seconds since the run began."""
    resident: int
    """The process's resident set size in bytes."""
    vulkan: int
    """Bytes held by the Vulkan backends."""
    webgpu: int
    """Bytes held by the WebGPU backends."""
    mapped: int
    """Resident bytes that drivers mapped from a device file: buffers that a GPU and the host
    share. wgpu allocates up to 128 MiB of them at a time."""
    other: int
    """Resident bytes that neither a backend nor a device file accounts for: code, compiled
    kernels, inputs and expected results. The memory of a software device is resident, so it is
    subtracted."""
    objects: int
    """Vulkan objects that were created and not destroyed."""


def sample_memory(begun: float, vulkan: int, webgpu: int, *, software: bool) -> MemorySample:
    """Take a sample of the process. `vulkan` and `webgpu` are the bytes that those backends hold;
    `software` means that no device is a GPU.
    """
    gc.collect()
    _trim_heap()
    resident, mapped = read_resident_bytes() or 0, read_mapped_bytes()
    return MemorySample(
        seconds=time.monotonic() - begun,
        resident=resident,
        vulkan=vulkan,
        webgpu=webgpu,
        mapped=mapped,
        other=resident - mapped - (vulkan + webgpu if software else 0),
        objects=sum(count_live_objects().values()),
    )


def check_memory_is_reported() -> None:
    """Raise `GpuError` on a system that does not report what `sample_memory` reads."""
    if not SMAPS.exists() or read_resident_bytes() is None:
        raise GpuError(
            f"a soak run reads the memory of its process from {SMAPS}, which is not on "
            f"{sys.platform}; run it on Linux"
        )


def read_mapped_bytes() -> int:
    """Return the resident bytes of this process that are mapped from device files."""
    total, from_device = 0, False
    for line in SMAPS.read_text(errors="surrogateescape", encoding="utf-8").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):  # the first line of a mapping: address, mode, ..., path
            path = values[4] if len(values) > 4 else ""
            from_device = path.startswith("/dev/") and not path.startswith("/dev/shm/")
        elif from_device and name == "Rss:":
            total += int(values[0]) << 10
    return total


def limit_heap_arenas() -> None:
    """Let all threads share two arenas of the C library's heap.

    Otherwise every new thread may get one, up to eight for each CPU, and small allocations that a
    driver keeps are spread over the pages of all. On a host with 16 CPUs, the heap grew from 161 to
    343 MiB in three minutes of reopened devices, though the bytes in use stayed at 175 MiB.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # only the GNU C library has arenas
        set_option(M_ARENA_MAX, HEAP_ARENAS)


def _trim_heap() -> None:
    """Return freed memory to the operating system, so that resident memory is memory in use.

    A driver's compiler frees hundreds of megabytes, which the C library would keep in its arenas.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # only the GNU C library has it
        trim(0)


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """One quantity: its medians over the first and the last quarter after the warm-up."""

    what: str
    """The attribute of `MemorySample`."""
    first: float
    last: float
    allowed: float | None
    """The growth that is allowed; None after a run too short to judge."""

    @property
    def grew(self) -> bool:
        return self.allowed is not None and self.last - self.first > self.allowed


ALLOWED_GROWTH = {
    "vulkan": (96 * MIB, 0.5),
    "webgpu": (256 * MIB, 0.5),
    "mapped": (256 * MIB, 0.5),
    # A reopened device has no compiled kernels yet, so it holds tens of megabytes less.
    "other": (64 * MIB, 0.15),
    "objects": (200, 0.5),
}
"""The growth allowed for each quantity: the larger of an amount and a share of the first median."""


def find_trends(samples: Sequence[MemorySample]) -> list[MemoryTrend]:
    """Return the trend of each quantity; empty without samples."""
    if not samples:
        return []
    begun = WARM_UP_SHARE * samples[-1].seconds
    warm = [each for each in samples if each.seconds > max(begun, MIN_WARM_UP_SECONDS)]
    judged = len(warm) >= MIN_SAMPLES
    warm = warm if judged else [each for each in samples if each.seconds > begun]
    quarter = max(len(warm) // 4, 1)
    trends = []
    for what, (amount, share) in ALLOWED_GROWTH.items():
        values = [getattr(each, what) for each in warm]
        first, last = (statistics.median(part) for part in (values[:quarter], values[-quarter:]))
        allowed = max(amount, share * first) if judged else None
        trends.append(MemoryTrend(what, first, last, allowed))
    return trends
