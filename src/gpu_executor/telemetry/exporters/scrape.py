"""Metrics of a running executor, read from the endpoint that `serve_metrics` opened, and the rates
between two readings."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpu_executor.errors import MissingExtraError, SettingsError

PREFIX = "gpu_executor_"
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 16 << 20
Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


@dataclass(frozen=True, slots=True)
class MetricReading:
    """All values of an endpoint at one time, by name without the package's prefix and by labels."""

    at: float
    """The time of `time.monotonic`."""
    values: Mapping[str, Mapping[Labels, float]]

    def get(self, name: str, **labels: str) -> float:
        """One value; 0 if the endpoint does not have it."""
        return self.values.get(name, {}).get(tuple(sorted(labels.items())), 0.0)

    def select(self, name: str, **labels: str) -> dict[str, float]:
        """The values with these labels and one more, by the value of that label."""
        given = set(labels.items())
        return {
            rest[0][1]: value
            for found, value in self.values.get(name, {}).items()
            if len(rest := [pair for pair in found if pair not in given]) == 1
            and len(found) == len(given) + 1
        }

    def list_devices(self) -> list[dict[str, str]]:
        """The labels of every device: executor, index, device and backend."""
        found = [dict(labels) for labels in self.values.get("device_usable", {})]
        return sorted(found, key=lambda each: (int(each["executor"]), int(each["index"])))

    def list_executors(self) -> list[str]:
        """The numbers of the executors at the endpoint."""
        return sorted(
            (dict(each)["executor"] for each in self.values.get("queue_jobs", {})), key=int
        )


@dataclass(frozen=True, slots=True)
class DeviceActivity:
    """What a device did between two readings."""

    labels: Mapping[str, str]
    usable: bool
    calls_per_second: float
    elements_per_second: float
    read_bytes_per_second: float
    busy: float
    """Seconds in which calls were running, for each second; above 1 with several threads."""
    median_seconds: float | None
    """An upper bound of the median time of a job; None if no job ended."""
    p99_seconds: float | None
    errors: float
    """Since the executor was opened, as the next two."""
    retries: float
    reopenings: float
    stages: Mapping[str, float]
    """Seconds by stage, for each second."""
    hits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Hits and misses of each cache and pool since the executor was opened."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Bytes by state."""


def read_metrics(url: str) -> MetricReading:
    """Read the metrics of an endpoint; raises `SettingsError` if there are none of an executor."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise MissingExtraError(
            "reading metrics", "prometheus_client", "metrics", str(error)
        ) from None
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException, urllib.error.URLError) as error:
        raise SettingsError(
            f"{url} cannot be read: {error}. `executor.serve_metrics(port)` opens such an address."
        ) from None
    at = time.monotonic()
    values: dict[str, dict[Labels, float]] = {}
    try:
        for metric in text_string_to_metric_families(text):
            for sample in metric.samples:
                if sample.name.startswith(PREFIX):
                    labels = tuple(sorted(sample.labels.items()))
                    values.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise SettingsError(f"{url} does not serve metrics: {error}") from None
    if "queue_jobs" not in values:
        raise SettingsError(f"{url} serves no metrics of a GpuExecutor")
    return MetricReading(at, values)


def compute_activity(before: MetricReading, after: MetricReading) -> Iterator[DeviceActivity]:
    """Yield what each device did between two readings.

    A counter that is less than before has restarted at zero, when its device was reopened.
    """
    seconds = max(after.at - before.at, 1e-6)
    for labels in after.list_devices():

        def count(name: str, labels: dict[str, str] = labels, **more: str) -> float:
            first, last = (each.get(name, **labels, **more) for each in (before, after))
            return last if last < first else last - first

        caches = after.select("cache_hits_total", **labels)
        misses = after.select("cache_misses_total", **labels)
        yield DeviceActivity(
            labels=labels,
            usable=after.get("device_usable", **labels) > 0,
            calls_per_second=count("calls_total") / seconds,
            elements_per_second=count("elements_total") / seconds,
            read_bytes_per_second=count("read_bytes_total") / seconds,
            busy=count("busy_seconds_total") / seconds,
            median_seconds=_find_quantile(before, after, labels, 0.5),
            p99_seconds=_find_quantile(before, after, labels, 0.99),
            errors=after.get("call_errors_total", **labels),
            retries=after.get("retries_total", **labels),
            reopenings=after.get("reopenings_total", **labels),
            stages={
                stage: count("stage_seconds_total", stage=stage) / seconds
                for stage in after.select("stage_seconds_total", **labels)
            },
            hits={name: (value, misses.get(name, 0.0)) for name, value in caches.items()},
            memory=_sum_memory(after, labels),
        )


def _find_quantile(
    before: MetricReading, after: MetricReading, labels: dict[str, str], quantile: float
) -> float | None:
    """The upper bound of the histogram's bucket that holds the quantile; None without jobs."""
    earlier = before.select("job_seconds_bucket", **labels)
    counts = {
        float(bound): value - earlier.get(bound, 0.0)
        for bound, value in after.select("job_seconds_bucket", **labels).items()
    }
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    return min(bound for bound, count in counts.items() if count >= quantile * total)


def _sum_memory(reading: MetricReading, labels: dict[str, str]) -> dict[str, float]:
    """Bytes by state, summed over what holds the memory."""
    given, sums = set(labels.items()), dict[str, float]()
    for found, value in reading.values.get("memory_bytes", {}).items():
        if given <= set(found):
            state = dict(found)["state"]
            sums[state] = sums.get(state, 0.0) + value
    return sums
