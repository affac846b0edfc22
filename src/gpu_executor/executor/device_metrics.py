"""Metrics of one device: counters, histograms, log messages, spans and profiles of its jobs.

Times and sizes are counted for every job. OpenTelemetry spans, profile spans and log messages
(under `gpu_executor.executor`) are produced only where they are enabled.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from threading import get_ident
from time import perf_counter
from typing import Any

from gpu_executor.backend import Backend, BackendProfile
from gpu_executor.calls.call import check
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import GpuError
from gpu_executor.executor.candidates import DeviceCandidate
from gpu_executor.executor.jobs import CallArguments, Job, get_current_context
from gpu_executor.kernel import Kernel
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.histogram import Histogram
from gpu_executor.telemetry.spans import Span, SpanAttributes

log = logging.getLogger("gpu_executor.executor")
# Bound once: both are called for every job.
prepare_tracing: Callable[[], None] = load_exporter("tracing")
get_tracer: Callable[[], Any] = load_exporter("tracer")
record_span: Callable[..., None] = load_exporter("span")


@dataclass(slots=True)
class DeviceCounts:
    """Counters of one device, for the whole life of the executor."""

    calls: int = 0
    batches: int = 0
    """Batches of two or more calls."""
    retries: int = 0
    reopened: int = 0
    errors: int = 0
    nbytes: int = 0
    seconds: float = 0.0


class DeviceProfile:
    """The profile of one device: its jobs, and the stages of every chunk. The profile continues
    when the device is reopened."""

    def __init__(self) -> None:
        self.jobs: list[Span] = []
        self._chunks: list[BackendProfile] = []
        """The profile of each backend: one, and one more for each time the device was reopened."""

    @property
    def spans(self) -> list[Span]:
        return self.jobs + [span for profile in self._chunks for span in profile.spans]

    def stages(self) -> dict[str, float]:
        """Seconds by stage."""
        totals: Counter[str] = Counter()
        for profile in self._chunks:
            totals.update(profile.stages())
        return dict(totals)

    def add_backend(self, backend: Backend) -> None:
        """Start to profile a backend."""
        self._chunks.append(backend.profile())

    def stop(self) -> None:
        """Stop profiling."""
        for profile in self._chunks:
            profile.stop()


# Bucket bounds: from a small call on a fast GPU to jobs that wait behind large calls on the CPU.
JOB_SECONDS = (
    *(25e-6, 50e-6, 100e-6, 250e-6, 500e-6),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
BATCH_CALLS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

GET_NBYTES = attrgetter("nbytes")
"""With map() it takes half the time of a loop."""

MAX_NOTED_CALLS = 1024
"""Calls that are noted before they are counted."""


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """A finished job, as spans and log messages describe it."""

    kernel: Kernel
    calls: Sequence[CallArguments]
    nbytes: int
    begun: float
    ended: float
    batch: int
    """Calls in its batch, its own included."""
    retries: int
    """Retries in its batch."""
    error: BaseException | None


class DeviceMetrics:
    """Records what a device does. Thread-safe."""

    def __init__(self, candidate: DeviceCandidate, counts: DeviceCounts) -> None:
        self._candidate, self._counts = candidate, counts
        self.job_seconds = Histogram(JOB_SECONDS)
        """Seconds from a job's submission to its result."""
        self.batch_calls = Histogram(BATCH_CALLS)
        """Calls that were taken from the queue at once."""
        self.profile_spans: list[Span] | None = None
        """The spans of the active profile; None without one."""
        self._noted_calls: deque[tuple[float, int, float | None]] = deque()
        """Seconds and input bytes of calls that `count_noted_calls` has not counted yet, and the
        seconds since their submission if they were in the queue. Appending is atomic."""
        self._counting = threading.Lock()
        self._retries: dict[int, int] = {}
        """Retries in the current batch of each thread, by thread identifier."""
        prepare_tracing()

    # --- events of the device ---

    def log_open(self) -> None:
        log.info("%s opened", self._candidate)

    def log_close(self) -> None:
        self.count_noted_calls()
        log.info("%s closed after %d calls", self._candidate, self._counts.calls)

    def count_retry(self, kernel: Kernel, error: BaseException) -> None:
        """Count and log that a call or batch is retried after an error."""
        self._counts.retries += 1
        self._retries[get_ident()] = self._retries.get(get_ident(), 0) + 1
        log.warning("retrying %s on %s after an error: %s", kernel.name, self._candidate, error)

    def count_reopening(self, error: BaseException) -> None:
        """Count and log that the device was reopened after an error."""
        self._counts.reopened += 1
        log.warning("%s was lost and has been reopened: %s", self._candidate, error)

    def log_quarantine(self, error: GpuError) -> None:
        """Log that the device gets no more jobs."""
        log.error("%s is quarantined: %s", self._candidate, error)

    # --- jobs ---

    def count_direct_call(
        self, kernel: Kernel, arrays: Sequence[Any], out_shape: Any, begun: float
    ) -> None:
        """Note and publish a call that has run in its caller's thread without any error. This is on
        the path of every call, and takes a third of the time of `count_call`."""
        seconds = perf_counter() - begun
        try:
            nbytes = sum(map(GET_NBYTES, arrays))
        except AttributeError:  # a scalar or a list
            nbytes = CallArguments.of(kernel, arrays).count_bytes()
        self._note_call(seconds, nbytes, None)
        if self.profile_spans is not None:
            self._add_profile_span(self.profile_spans, kernel, begun, begun + seconds)
        if _is_published():
            call = CallArguments.of(kernel, arrays, out_shape=out_shape)
            record = JobMetrics(kernel, [call], nbytes, begun, begun + seconds, 1, 0, None)
            self._publish(record, get_current_context())

    def count_awaited_call(self, job: Job, begun: float) -> float:
        """Note the call of a job that its waiting thread has run without any error. Returns the end
        time."""
        ended = perf_counter()
        self._note_call(ended - begun, job.nbytes, ended - job.submitted)
        if self.profile_spans is not None:
            self._add_profile_span(self.profile_spans, job.kernel, begun, ended)
        return ended

    def _note_call(self, seconds: float, nbytes: int, since_submission: float | None) -> None:
        noted = self._noted_calls
        noted.append((seconds, nbytes, since_submission))
        if len(noted) >= MAX_NOTED_CALLS:
            self.count_noted_calls()

    def count_noted_calls(self) -> None:
        """Add the noted calls to the counters and to the histograms."""
        counts, noted = self._counts, self._noted_calls
        with self._counting:
            for _ in range(len(noted)):  # only this method takes calls out
                seconds, nbytes, since_submission = noted.popleft()
                counts.seconds += seconds
                counts.nbytes += nbytes
                if since_submission is None:
                    counts.calls += 1
                    self.job_seconds.observe(seconds)
                else:  # the device has counted the call
                    self.job_seconds.observe(since_submission)
                    self.batch_calls.observe(1)

    def count_call(
        self, kernel: Kernel, call: CallArguments, begun: float, error: BaseException | None = None
    ) -> None:
        """Count and publish a call that ran in its caller's thread, perhaps with retries."""
        ended, nbytes, counts = perf_counter(), call.count_bytes(), self._counts
        counts.seconds += ended - begun
        counts.nbytes += nbytes
        self.job_seconds.observe(ended - begun)
        if error is not None:
            counts.errors += 1
        if self.profile_spans is not None:
            self._add_profile_span(self.profile_spans, kernel, begun, ended)
        retries = self._pop_retries()
        if _is_published():
            record = JobMetrics(kernel, [call], nbytes, begun, ended, 1, retries, error)
            self._publish(record, get_current_context())

    def count_batch(self, jobs: Sequence[Job], begun: float) -> float:
        """Count jobs from the queue that have run. Called before their futures are resolved, so
        that a caller with a result finds it counted. Returns the end time."""
        ended, counts, calls, nbytes = perf_counter(), self._counts, 0, 0
        for job in jobs:
            calls += len(job.calls)
            nbytes += job.nbytes
        counts.seconds += ended - begun
        counts.nbytes += nbytes
        self.batch_calls.observe(calls)
        if self.profile_spans is not None:
            self._add_profile_span(self.profile_spans, jobs[0].kernel, begun, ended)
        return ended

    def publish_batch(self, jobs: Sequence[Job], ended: float) -> None:
        """Publish jobs from the queue. Called after their futures are resolved, so that no caller
        waits for it."""
        retries = self._pop_retries()
        if not _is_published():
            return
        batch = sum(len(job.calls) for job in jobs)
        for job in jobs:
            if not job.future.done():
                continue  # other devices still run shares of it
            error = job.future.exception()
            about = job.kernel, job.calls, job.nbytes, job.submitted
            self._publish(JobMetrics(*about, ended, batch, retries, error), job.context)

    def _pop_retries(self) -> int:
        return self._retries.pop(get_ident(), 0) if self._retries else 0

    def _add_profile_span(
        self, spans: list[Span], kernel: Kernel, begun: float, ended: float
    ) -> None:
        """Add a span on this thread's track, where it encloses the stages of the chunks."""
        track, number = f"host {threading.current_thread().name}", len(spans) + 1
        spans.append(Span(track, kernel.name, int(begun * 1e9), int(ended * 1e9), number))

    def _publish(self, record: JobMetrics, context: Any) -> None:
        """Record the span of a job, and log it."""
        name = record.kernel.name
        tracer = get_tracer()
        if tracer is not None:
            times = record.begun, record.ended
            record_span(
                tracer, name, context, *times, lambda: self._make_attributes(record), record.error
            )
        if log.isEnabledFor(logging.DEBUG):
            error = record.error
            outcome = "done" if error is None else f"{type(error).__name__}: {error}"
            log.debug(
                "%s on %s: %d calls, %d bytes, %.1f us, %s",
                name,
                self._candidate,
                len(record.calls),
                record.nbytes,
                (record.ended - record.begun) * 1e6,
                outcome,
            )

    def _make_attributes(self, record: JobMetrics) -> SpanAttributes:
        return {
            "gpu_executor.device": self._candidate.device,
            "gpu_executor.backend": self._candidate.backend,
            "gpu_executor.elements": sum(
                _count_elements(record.kernel, each) for each in record.calls
            ),
            "gpu_executor.bytes": record.nbytes,
            "gpu_executor.calls": len(record.calls),
            "gpu_executor.batch_calls": record.batch,
            "gpu_executor.retries": record.retries,
        }


def _is_published() -> bool:
    """Whether jobs are traced or logged."""
    return get_tracer() is not None or log.isEnabledFor(logging.DEBUG)


def _count_elements(kernel: Kernel, call: CallArguments) -> int:
    """Elements of the first array that is passed, or of the first output if none is; 0 for a call
    with invalid arguments."""
    passed = next((each.type for each in kernel.arguments if each.is_input), None)
    if passed is not None:
        shape: tuple[int, ...] = getattr(call.arrays[0], "shape", ()) if call.arrays else ()
        return math.prod(shape[: len(shape) - len(passed.shape)])
    try:
        return check(kernel, call.arrays, out_shape=call.out_shape).count
    except Exception:  # the call failed with the same exception
        return 0
