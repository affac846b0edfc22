"""Statistics of an executor, as data, as text and as metric families.

Metric names follow the conventions of Prometheus: base units, and `_total` for counters. A
backend's counters restart at zero when its device is reopened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpu_executor.arrays.idle_memory import sum_memory_use
from gpu_executor.backend import BackendStats
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.telemetry.families import Family, Kind, MetricValue, Sample
from gpu_executor.telemetry.histogram import Distribution
from gpu_executor.telemetry.stages import STAGES


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Statistics of one device."""

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
    """Why the device is quarantined; None if it is usable."""
    inside: BackendStats
    """The backend's own statistics."""
    job_seconds: Distribution
    """Seconds from a job's submission to its result."""
    batch_calls: Distribution
    """Calls that were taken from the queue at once."""

    @classmethod
    def of(cls, device: OpenDevice) -> DeviceStats:
        counts, metrics = device.counts, device.metrics
        metrics.count_noted_calls()
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
        text = (
            f"{self.device} by {self.backend}: {self.calls:,} calls, {self.batches:,} batches, "
            f"{self.retries:,} retries, reopened {self.reopened:,} times, {self.errors:,} errors"
        )
        return text if self.failed is None else f"{text}; quarantined: {self.failed}"


@dataclass(frozen=True, slots=True)
class ExecutorStats(BackendStats):
    """Statistics of the devices and of the job queue. The counters of a backend are sums over the
    devices, and `device` has the names of all of them."""

    waiting: int
    """Jobs in the queue."""
    waiting_bytes: int
    """Input bytes of the jobs in the queue."""
    checked: int
    """Elements and whole calls that were recomputed on the CPU (`check=`)."""
    unchecked: int
    """Calls that could not be checked: their kernels have no reference, or they were recorded in a
    graph."""
    fell_back: bool
    """Whether the CPU is used because there was no device, or no usable one is left."""
    devices: tuple[DeviceStats, ...]

    @classmethod
    def of(cls, pool: DevicePool, checker: ResultChecker) -> ExecutorStats:
        devices = tuple(DeviceStats.of(device) for device in pool.list_open_devices())
        inside = [each.inside for each in devices]
        return cls(
            device=", ".join(each.device for each in devices),
            calls=sum(each.calls for each in devices),
            elements=sum(each.elements for each in inside),
            chunks=sum(each.chunks for each in inside),
            dispatches=sum(each.dispatches for each in inside),
            seconds_by_stage={
                stage: sum(each.seconds_by_stage[stage] for each in inside) for stage in STAGES
            },
            bytes_held=sum(each.bytes_held for each in inside),
            memory_use=sum_memory_use([each.memory_use for each in inside]),
            waiting=len(pool.queue),
            waiting_bytes=pool.queue.nbytes,
            checked=checker.checked,
            unchecked=checker.unchecked,
            fell_back=pool.cpu_fallback.fell_back,
            devices=devices,
        )

    def families(self) -> list[Family]:
        """The statistics as metric families; docs/telemetry.md lists them."""
        return make_families(self)

    def __str__(self) -> str:
        queued = f"{self.waiting:,} jobs of {self.waiting_bytes:,} bytes queued"
        return "\n".join([*map(str, self.devices), f"{queued}; {self.checked:,} checked"])


PREFIX = "gpu_executor_"
DEVICE = ("index", "device", "backend")
"""Labels of a device. `index` is its place in the executor; two devices may have the same name."""


def _family(name: str, kind: Kind, text: str, *labels: str) -> Family:
    return Family(PREFIX + name, kind, text, (*DEVICE, *labels))


FAMILIES = {
    family.name: family
    for family in (
        Family(PREFIX + "queue_jobs", "gauge", "Jobs in the queue."),
        Family(PREFIX + "queue_bytes", "gauge", "Input bytes of the jobs in the queue."),
        Family(PREFIX + "checked_total", "counter", "Elements and calls recomputed on the CPU."),
        Family(PREFIX + "unchecked_total", "counter", "Calls of kernels without a reference."),
        Family(PREFIX + "fallbacks_total", "counter", "1 if the executor fell back to the CPU."),
        # Counted by the executor, for each device.
        _family("device_usable", "gauge", "1, or 0 for a quarantined device."),
        _family("calls_total", "counter", "Calls of kernels."),
        _family("call_errors_total", "counter", "Calls that ended with an error."),
        _family("batches_total", "counter", "Batches of two or more calls."),
        _family("retries_total", "counter", "Calls and batches retried after an error."),
        _family("reopenings_total", "counter", "Times that the device was reopened."),
        _family("read_bytes_total", "counter", "Bytes of the calls' inputs."),
        _family("busy_seconds_total", "counter", "Time in which calls were running."),
        _family("job_seconds", "histogram", "Time from a job's submission to its result."),
        _family("batch_calls", "histogram", "Calls taken from the queue at once."),
        # Counted by the backends.
        _family("backend_calls_total", "counter", "Backend calls, after coalescing."),
        _family("elements_total", "counter", "Elements computed."),
        _family("chunks_total", "counter", "Chunks that calls were split into."),
        _family("dispatches_total", "counter", "Kernels that ran on device arrays."),
        _family("submissions_total", "counter", "Submissions to the device's queue."),
        _family("path_calls_total", "counter", "Backend calls by data path.", "path"),
        _family("stage_seconds_total", "counter", "Time by stage of a call.", "stage"),
        _family("recordings_total", "counter", "Times that commands were recorded."),
        _family("shrunk_total", "counter", "Chunks or slots reduced for lack of memory."),
        _family("cache_hits_total", "counter", "Objects found in a cache or pool.", "cache"),
        _family("cache_misses_total", "counter", "Objects created: none was cached.", "cache"),
        _family("cache_evictions_total", "counter", "Entries evicted to make room.", "cache"),
        _family("cache_entries", "gauge", "Entries of a cache.", "cache"),
        _family("cache_bytes", "gauge", "Memory that a cache or pool holds.", "cache"),
        _family("used_bytes", "gauge", "Memory of the pool that is in use."),
        _family("memory_bytes", "gauge", "Memory by what holds it.", "state", "holder"),
        _family("idle_limit_bytes", "gauge", "The most memory that may be idle."),
        _family("padding_ratio", "gauge", "Share of padding in the recent sizes."),
    )
}


def make_families(stats: ExecutorStats) -> list[Family]:
    """All families, with their samples. A family without samples is listed too, so that the names
    do not depend on the devices."""
    made = {name: replace(family, samples=[]) for name, family in FAMILIES.items()}
    for name, number in _read_executor(stats):
        made[PREFIX + name].samples.append(Sample((), number))
    for index, device in enumerate(stats.devices):
        device_labels = (str(index), device.device, device.backend)
        for name, labels, value in _read_device(device):
            made[PREFIX + name].samples.append(Sample((*device_labels, *labels), value))
    return list(made.values())


def _read_executor(stats: ExecutorStats) -> Iterator[tuple[str, float]]:
    yield "queue_jobs", stats.waiting
    yield "queue_bytes", stats.waiting_bytes
    yield "checked_total", stats.checked
    yield "unchecked_total", stats.unchecked
    yield "fallbacks_total", stats.fell_back


def _read_device(device: DeviceStats) -> Iterator[MetricValue]:
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
    yield from device.inside.read_metrics()
