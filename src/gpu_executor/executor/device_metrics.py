"""DeviceCounts: what a device did for an executor.

What one device did while it was watched: its jobs, and on Vulkan the stages of every piece.

The journal of a device: what is told of its jobs, to those who watch.

Times and sizes are counted for every job. The rest (spans of OpenTelemetry, those of a profile,
lines in the log under `gpu_executor.executor`) is made where somebody wants it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter
from typing import Any

from gpu_executor.backend import Backend
from gpu_executor.errors import GpuError
from gpu_executor.executor.candidates import DeviceCandidate
from gpu_executor.executor.jobs import Arrays, Job, count_input_bytes, get_current_context
from gpu_executor.kernel import Kernel
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.histogram import Histogram
from gpu_executor.telemetry.spans import Span, SpanAttributes
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.profile import Profile


@dataclass(slots=True)
class DeviceCounts:
    """Added to by whoever runs calls."""

    calls: int = 0
    batches: int = 0
    """Submitted together, of two calls or more."""
    retries: int = 0
    reopened: int = 0
    errors: int = 0
    nbytes: int = 0
    seconds: float = 0.0


class DeviceProfile:
    """Goes on when the device is opened again."""

    def __init__(self) -> None:
        self.jobs: list[Span] = []
        self._pieces: list[Profile] = []
        """Of each backend that the device had meanwhile."""

    @property
    def spans(self) -> list[Span]:
        return self.jobs + [span for profile in self._pieces for span in profile.spans]

    def stages(self) -> dict[str, float]:
        """Seconds by stage; none where there are no stages."""
        totals: Counter[str] = Counter()
        for profile in self._pieces:
            totals.update(profile.stages())
        return dict(totals)

    def watch(self, backend: Backend) -> None:
        """From now on, what this backend does."""
        if isinstance(backend, PersistentVulkanBackend):
            self._pieces.append(backend.profile())

    def end(self) -> None:
        """Watch no more."""
        for profile in self._pieces:
            profile.__exit__()


log = logging.getLogger("gpu_executor.executor")
# Bound once: both are called for every job.
get_tracer: Callable[[], Any] = load_exporter("tracer")
record_span: Callable[..., None] = load_exporter("span")

# From a small call on a fast card to a large one on the CPU, and what waits behind such.
JOB_SECONDS = (
    *(25e-6, 50e-6, 100e-6, 250e-6, 500e-6),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
BATCH_CALLS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that is over, for those who want to be told."""

    kernel: Kernel
    calls: Sequence[Arrays]
    nbytes: int
    begun: float
    ended: float
    batch: int
    """Calls that were run together with it, its own among them."""
    retries: int
    """In that batch."""
    error: BaseException | None


class DeviceMetrics:
    """Safe from several threads."""

    def __init__(self, candidate: DeviceCandidate, counts: DeviceCounts) -> None:
        self._candidate, self._counts = candidate, counts
        self.job_seconds = Histogram(JOB_SECONDS)
        """From the time a job was asked for until it had its answer."""
        self.batch_calls = Histogram(BATCH_CALLS)
        """Calls that were taken from the line at once."""
        self.profiled: list[Span] | None = None
        """Where spans go while somebody profiles."""
        self._retries: dict[int, int] = {}
        """By thread, of what it runs now."""
        get_tracer()  # OpenTelemetry is imported here, and not when the first job waits

    # --- the device ---

    def opened(self) -> None:
        log.info("%s is open", self._candidate)

    def closed(self) -> None:
        log.info("%s is closed: %d calls", self._candidate, self._counts.calls)

    def retried(self, kernel: Kernel, error: BaseException) -> None:
        """A call is run again because of that error."""
        self._counts.retries += 1
        self._retries[get_ident()] = self._retries.get(get_ident(), 0) + 1
        log.warning("%s on %s is run again: %s", kernel.name, self._candidate, error)

    def reopened(self, error: BaseException) -> None:
        """The device was opened again because of that error."""
        self._counts.reopened += 1
        log.warning("%s was lost and is open again: %s", self._candidate, error)

    def quarantined(self, error: GpuError) -> None:
        """The device gets no more jobs because of that error."""
        log.error("%s is left alone from now on: %s", self._candidate, error)

    # --- its jobs ---

    def ran(
        self, kernel: Kernel, arrays: Arrays, begun: float, error: BaseException | None = None
    ) -> None:
        """A call in its caller's thread is over."""
        ended, nbytes, counts = perf_counter(), count_input_bytes(arrays), self._counts
        counts.seconds += ended - begun
        counts.nbytes += nbytes
        self.job_seconds.observe(ended - begun)
        if error is not None:
            counts.errors += 1
        if self.profiled is not None:
            self._profile(self.profiled, kernel, begun, ended)
        retries = self._take_retries()
        if _is_watched():
            done = JobRecord(kernel, [arrays], nbytes, begun, ended, 1, retries, error)
            self._tell(done, get_current_context())

    def ran_together(self, jobs: Sequence[Job], begun: float) -> float:
        """Jobs from the line are run, and will have their answers now: counted before, so that
        whoever has an answer finds it counted. Returns the time."""
        ended, counts, calls, nbytes = perf_counter(), self._counts, 0, 0
        for job in jobs:
            calls += len(job.calls)
            nbytes += job.nbytes
        counts.seconds += ended - begun
        counts.nbytes += nbytes
        self.batch_calls.observe(calls)
        if self.profiled is not None:
            self._profile(self.profiled, jobs[0].kernel, begun, ended)
        return ended

    def answered(self, jobs: Sequence[Job], ended: float) -> None:
        """They have their answers; nobody waits for what is told of them."""
        retries = self._take_retries()
        if not _is_watched():
            return
        batch = sum(len(job.calls) for job in jobs)
        for job in jobs:
            if not job.future.done():
                continue  # others have the rest of it
            error = job.future.exception()
            push_words = job.kernel, job.calls, job.nbytes, job.submitted
            self._tell(JobRecord(*push_words, ended, batch, retries, error), job.context)

    def _take_retries(self) -> int:
        return self._retries.pop(get_ident(), 0) if self._retries else 0

    def _profile(self, spans: list[Span], kernel: Kernel, begun: float, ended: float) -> None:
        """Around the stages of its pieces, which are on the same thread's track."""
        track, number = f"host {threading.current_thread().name}", len(spans) + 1
        spans.append(Span(track, kernel.name, int(begun * 1e9), int(ended * 1e9), number))

    def _tell(self, done: JobRecord, context: Any) -> None:
        name = done.kernel.name
        spans = get_tracer()
        if spans is not None:
            times = done.begun, done.ended
            record_span(spans, name, context, *times, lambda: self._attributes(done), done.error)
        if log.isEnabledFor(logging.DEBUG):
            error = done.error
            said = "done" if error is None else f"{type(error).__name__}: {error}"
            queue = "%s on %s: %d calls, %d bytes, %.1f us, %s"
            microseconds = (done.ended - done.begun) * 1e6
            log.debug(
                queue, name, self._candidate, len(done.calls), done.nbytes, microseconds, said
            )

    def _attributes(self, done: JobRecord) -> SpanAttributes:
        return {
            "gpu_executor.device": self._candidate.device,
            "gpu_executor.backend": self._candidate.backend,
            "gpu_executor.elements": sum(_elements(done.kernel, each) for each in done.calls),
            "gpu_executor.bytes": done.nbytes,
            "gpu_executor.calls": len(done.calls),
            "gpu_executor.batch_calls": done.batch,
            "gpu_executor.retries": done.retries,
        }


def _is_watched() -> bool:
    return get_tracer() is not None or log.isEnabledFor(logging.DEBUG)


def _elements(kernel: Kernel, arrays: Arrays) -> int:
    """Of the first input; numbers, where a kernel does not say what an element is."""
    shape: tuple[int, ...] = getattr(arrays[0], "shape", ()) if arrays else ()
    own = 0 if kernel.types is None else len(kernel.types[0].shape)
    return math.prod(shape[: len(shape) - own])
