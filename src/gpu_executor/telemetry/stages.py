"""Where the time of calls goes, by stage.

setup         instance, device, queues, pools
pipeline      shader module, layouts, pipeline
descriptors   buffers and the sets that bind them
recording     commands
upload        the caller's arrays into mapped memory
compute       from submission until the device is done (its own copies included)
download      mapped memory into the caller's results
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

STAGES = ("setup", "pipeline", "descriptors", "recording", "upload", "compute", "download")


class StageTimes:
    """Nanoseconds by stage, of one call; `StageTotals` sums them for a backend."""

    __slots__ = ("nanoseconds", "recordings")

    def __init__(self) -> None:
        self.nanoseconds = dict.fromkeys(STAGES, 0)
        self.recordings = 0
        """Command buffers recorded: none in a steady call."""

    def add(self, stage: str, since: int) -> int:
        """Count the time since `since` for a stage; returns the time now."""
        now = time.perf_counter_ns()
        self.nanoseconds[stage] += now - since
        return now

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, begun)


class StageTotals:
    """The sum over all calls of a backend, added to from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nanoseconds = dict.fromkeys(STAGES, 0)
        self._recordings = 0

    def add(self, times: StageTimes) -> None:
        with self._lock:
            for stage, nanoseconds in times.nanoseconds.items():
                self._nanoseconds[stage] += nanoseconds
            self._recordings += times.recordings

    def recordings(self) -> int:
        return self._recordings

    def seconds(self) -> dict[str, float]:
        with self._lock:
            return {stage: value / 1e9 for stage, value in self._nanoseconds.items()}
