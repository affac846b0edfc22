"""Profiles: the time of every stage of every chunk of a backend's calls.

    fill       the host copies the caller's arrays to memory that the device reads
    copy in    the device copies them to its own memory
    compute    the kernel runs
    copy out   the device copies the results back
    drain      the host copies the results to the caller's arrays

A backend without copies of its own has fewer stages. Their times are then zero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from gpu_executor.errors import GpuError
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.spans import Span, TraceFile

STAGES = ("fill", "copy in", "compute", "copy out", "drain")


class StageProfile:
    """The spans recorded inside a `with gpu.profile()`. Thread-safe."""

    def __init__(self, trace: TraceFile, on_end: Callable[[], None]) -> None:
        """`on_end` lets the backend record no more spans here."""
        self.spans: list[Span] = []
        self._trace, self._on_end = trace, on_end
        self._lock = threading.Lock()
        self._chunks = 0

    def next_chunk(self) -> int:
        """Return the number of a chunk that is about to start."""
        with self._lock:
            self._chunks += 1
            return self._chunks

    def add_host_span(self, stage: str, begin_ns: int, end_ns: int, chunk: int) -> None:
        """Add a stage that ran on this thread."""
        track = f"host {threading.current_thread().name}"
        self.spans.append(Span(track, stage, begin_ns, end_ns, chunk))

    def stages(self) -> dict[str, float]:
        """Return seconds by stage, summed over all chunks. Overlapping stages count in full."""
        totals = dict.fromkeys(STAGES, 0.0)
        for span in self.spans:
            totals[span.stage] += span.nanoseconds / 1e9
        return totals

    def save_trace(self, path: str | Path) -> None:
        """Write the spans for Perfetto or chrome://tracing, one track per queue and host thread."""
        load_exporter("trace")(self.spans, Path(path))

    def stop(self) -> None:
        """Record nothing more. Stopping twice does nothing."""
        self._on_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stop()
        self._trace.save(self.save_trace, error)


class ActiveProfile:
    """The profile that a backend's calls record their stages in, if there is one. Thread-safe."""

    def __init__(self, device: str) -> None:
        """`device` is the name for the message about a second profile."""
        self._device = device
        self._lock = threading.Lock()
        self.profile: StageProfile | None = None

    def start(self, trace: TraceFile) -> StageProfile:
        """Record from now on, until the profile's `with` ends."""
        profile = StageProfile(trace, lambda: self._end(profile))
        with self._lock:
            if self.profile is not None:
                raise GpuError(f"{self._device} is being profiled already; end that profile first")
            self.profile = profile
        return profile

    def _end(self, profile: StageProfile) -> None:
        with self._lock:
            if self.profile is profile:  # otherwise it has ended, and another one is active
                self.profile = None
