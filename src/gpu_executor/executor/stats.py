"""What an executor has done, as data that prints itself.

What an executor counts, as families of samples: the names, and where each number is found.

Names follow Prometheus: base units, `_total` for what only grows. What a backend counts begins at
zero again when its device is opened again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu_executor.cpu.backend import CpuStats
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.telemetry.families import Family, Kind, Sample
from gpu_executor.telemetry.histogram import Distribution
from gpu_executor.vulkan.memory import MemoryStats
from gpu_executor.vulkan.pipeline import PipelineStats
from gpu_executor.vulkan.slot_pool import SlotStats
from gpu_executor.vulkan.stats import Stats
from gpu_executor.webgpu.stats import WgpuStats


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """One device's part."""

    device: str
    backend: str
    calls: int
    batches: int
    retries: int
    reopened: int
    errors: int
    nbytes: int
    seconds: float
    failed: str | None
    """Why it is left alone, if it is."""
    inside: Any
    """What its backend says of itself."""
    job_seconds: Distribution
    """From the time a job was asked for until it had its answer."""
    batch_calls: Distribution
    """Calls that were taken from the line at once."""

    @classmethod
    def of(cls, device: OpenDevice) -> DeviceStats:
        counts, metrics = device.counts, device.metrics
        return cls(
            device=device.candidate.device,
            backend=device.candidate.backend,
            calls=counts.calls,
            batches=counts.batches,
            retries=counts.retries,
            reopened=counts.reopened,
            errors=counts.errors,
            nbytes=counts.nbytes,
            seconds=counts.seconds,
            failed=None if device.failed is None else str(device.failed),
            inside=device.backend.stats(),
            job_seconds=metrics.job_seconds.read(),
            batch_calls=metrics.batch_calls.read(),
        )

    def __str__(self) -> str:
        said = (
            f"{self.device} by {self.backend}: {self.calls:,} calls, {self.batches:,} batches, "
            f"{self.retries:,} retries, opened again {self.reopened:,} times, "
            f"{self.errors:,} errors"
        )
        return said if self.failed is None else f"{said}; left alone: {self.failed}"


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """All devices, and the line before them."""

    waiting: int
    waiting_bytes: int
    checked: int
    """Elements and calls that were computed again on the CPU."""
    unchecked: int
    """Calls that were to be, and have no reference."""
    fell_back: bool
    """Whether the CPU was taken because there was no GPU."""
    devices: tuple[DeviceStats, ...]

    @classmethod
    def of(cls, pool: DevicePool, checker: ResultChecker) -> ExecutorStats:
        return cls(
            waiting=len(pool.queue),
            waiting_bytes=pool.queue.nbytes,
            checked=checker.checked,
            unchecked=checker.unchecked,
            fell_back=pool.cpu_fallback.fell_back,
            devices=tuple(DeviceStats.of(device) for device in pool.opened()),
        )

    def families(self) -> list[Family]:
        """All of it for monitoring systems; docs/telemetry.md has them in a table."""
        return families_of(self)

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} jobs of {self.waiting_bytes:,} bytes wait"
        return "\n".join([*map(str, self.devices), f"{waiting}; {self.checked:,} checked"])


PREFIX = "gpu_executor_"
DEVICE = ("index", "device", "backend")
"""`index` is the place among the executor's devices: two may have one name."""

Found = tuple[str, tuple[str, ...], float | Distribution]
"""A family's name, the values of its own labels, and the number."""


def _family(name: str, kind: Kind, text: str, *labels: str) -> Family:
    return Family(PREFIX + name, kind, text, (*DEVICE, *labels))


FAMILIES = {
    family.name: family
    for family in (
        Family(PREFIX + "queue_jobs", "gauge", "Jobs that wait for a device."),
        Family(PREFIX + "queue_bytes", "gauge", "What the jobs that wait will read."),
        Family(PREFIX + "checked_total", "counter", "Elements and calls checked on the CPU."),
        Family(PREFIX + "unchecked_total", "counter", "Calls that could not be checked."),
        Family(PREFIX + "fallbacks_total", "counter", "Executors on the CPU for want of a GPU."),
        # What an executor counts of its devices.
        _family("device_usable", "gauge", "1, or 0 for a device that is left alone."),
        _family("calls_total", "counter", "Calls of kernels."),
        _family("call_errors_total", "counter", "Calls that ended with an error."),
        _family("batches_total", "counter", "Times that two calls or more were run together."),
        _family("retries_total", "counter", "Calls run again after an error."),
        _family("reopenings_total", "counter", "Times that a lost device was opened again."),
        _family("read_bytes_total", "counter", "Bytes of the calls' inputs."),
        _family("busy_seconds_total", "counter", "Time in which calls were run."),
        _family("job_seconds", "histogram", "Time from asking for a job until its answer."),
        _family("batch_calls", "histogram", "Calls taken from the queue at once."),
        # What backends count.
        _family("backend_calls_total", "counter", "Calls that reached the backend, joined ones."),
        _family("elements_total", "counter", "Elements computed."),
        _family("pieces_total", "counter", "Pieces that calls were cut into."),
        _family("submissions_total", "counter", "Submissions to the device's queue."),
        _family("path_calls_total", "counter", "Backend calls by data path.", "path"),
        _family("stage_seconds_total", "counter", "Time by stage of a call.", "stage"),
        _family("recordings_total", "counter", "Times that commands were recorded."),
        _family("shrunk_total", "counter", "Times with less memory than was planned."),
        _family("cache_hits_total", "counter", "Found in a cache or pool.", "cache"),
        _family("cache_misses_total", "counter", "Made because it was in none.", "cache"),
        _family("cache_evictions_total", "counter", "Given up to make room.", "cache"),
        _family("cache_entries", "gauge", "What a cache holds.", "cache"),
        _family("cache_bytes", "gauge", "Memory that a cache or pool holds.", "cache"),
        _family("used_bytes", "gauge", "Memory of the pool that is in use."),
        _family("padding_ratio", "gauge", "Share of padding in what came lately."),
    )
}


def families_of(stats: ExecutorStats) -> list[Family]:
    """All of them, also those without samples: which there are does not depend on the devices."""
    made = {name: replace(family, samples=[]) for name, family in FAMILIES.items()}
    for name, number in _executor(stats):
        made[PREFIX + name].samples.append(Sample((), number))
    for index, device in enumerate(stats.devices):
        own = (str(index), device.device, device.backend)
        for name, labels, value in _device(device):
            made[PREFIX + name].samples.append(Sample((*own, *labels), value))
    return list(made.values())


def _executor(stats: ExecutorStats) -> Iterator[tuple[str, float]]:
    yield "queue_jobs", stats.waiting
    yield "queue_bytes", stats.waiting_bytes
    yield "checked_total", stats.checked
    yield "unchecked_total", stats.unchecked
    yield "fallbacks_total", stats.fell_back


def _device(device: DeviceStats) -> Iterator[Found]:
    yield "device_usable", (), device.failed is None
    yield "calls_total", (), device.calls
    yield "call_errors_total", (), device.errors
    yield "batches_total", (), device.batches
    yield "retries_total", (), device.retries
    yield "reopenings_total", (), device.reopened
    yield "read_bytes_total", (), device.nbytes
    yield "busy_seconds_total", (), device.seconds
    yield "job_seconds", (), device.job_seconds
    yield "batch_calls", (), device.batch_calls
    yield from _inside(device.inside)


def _inside(stats: Any) -> Iterator[Found]:
    match stats:
        case Stats():
            yield from _vulkan(stats)
        case WgpuStats():
            yield from _webgpu(stats)
        case CpuStats():
            yield "backend_calls_total", (), stats.calls
            yield "elements_total", (), stats.elements
            yield "stage_seconds_total", ("compute",), stats.seconds


def _vulkan(stats: Stats) -> Iterator[Found]:
    yield "backend_calls_total", (), stats.calls
    yield "elements_total", (), stats.elements
    yield "pieces_total", (), stats.pieces
    for path, calls in stats.calls_by_path.items():
        yield "path_calls_total", (path,), calls
    for stage, seconds in stats.seconds_by_stage.items():
        yield "stage_seconds_total", (stage,), seconds
    yield "recordings_total", (), stats.recordings
    yield "shrunk_total", (), stats.shrunk
    caches: dict[str, PipelineStats | SlotStats | MemoryStats] = {
        "pipelines": stats.pipelines,
        "slots": stats.slots,
        "memory": stats.memory,
    }
    for cache, counted in caches.items():
        yield "cache_hits_total", (cache,), counted.hits
        yield "cache_misses_total", (cache,), counted.misses
    yield "cache_evictions_total", ("pipelines",), stats.pipelines.evictions
    yield "cache_entries", ("pipelines",), stats.pipelines.kept
    yield "cache_entries", ("slots",), stats.slots.idle + stats.slots.in_use
    yield "cache_entries", ("descriptor sets",), stats.descriptors.sets_used
    yield "cache_bytes", ("memory",), stats.memory.bytes_held
    yield "used_bytes", (), stats.memory.bytes_used


def _webgpu(stats: WgpuStats) -> Iterator[Found]:
    yield "backend_calls_total", (), stats.calls
    yield "elements_total", (), stats.elements
    yield "submissions_total", (), stats.submissions
    yield "stage_seconds_total", ("pipeline",), stats.compile_seconds
    yield "cache_hits_total", ("buckets",), sum(each.hits for each in stats.buckets)
    yield "cache_misses_total", ("buckets",), sum(each.misses for each in stats.buckets)
    yield "cache_evictions_total", ("buckets",), stats.bucket_evictions
    yield "cache_entries", ("buckets",), len(stats.bucket_sizes)
    yield "cache_bytes", ("buckets",), sum(each.bytes_held for each in stats.buckets)
    yield "cache_hits_total", ("exact sizes",), stats.exact_hits
    yield "cache_entries", ("exact sizes",), stats.exact_entries
    yield "cache_hits_total", ("buffers",), stats.pool.hits
    yield "cache_misses_total", ("buffers",), stats.pool.misses
    yield "cache_bytes", ("buffers",), stats.pool.bytes_idle
    yield "used_bytes", (), stats.pool.bytes_in_use
    yield "cache_entries", ("pipelines",), stats.pipelines
    yield "padding_ratio", (), stats.padding
