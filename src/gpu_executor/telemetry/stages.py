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
from collections import Counter
from collections.abc import Iterator

STAGES = ("setup", "pipeline", "descriptors", "recording", "upload", "compute", "download")


class StageTimes:
    """Nanoseconds by stage, of one call; `Totals` sums them for a backend."""

    __slots__ = ("nanoseconds", "recordings")

    def __init__(self) -> None:
        self.nanoseconds: dict[str, int] = {}
        self.recordings = 0
        """Command buffers recorded: none in a steady call."""

    def add(self, stage: str, since: int) -> int:
        """Count the time since `since` for a stage; returns the time now."""
        now = time.perf_counter_ns()
        self.nanoseconds[stage] = self.nanoseconds.get(stage, 0) + now - since
        return now

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, begun)


class Totals:
    """The sums over all calls of a backend, added to from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nanoseconds = dict.fromkeys(STAGES, 0)
        self._counts: Counter[str] = Counter()

    def add(self, times: StageTimes, counts: dict[str, int]) -> None:
        """One call's times, and what to count of it."""
        with self._lock:
            for stage, nanoseconds in times.nanoseconds.items():
                self._nanoseconds[stage] += nanoseconds
            mine = self._counts
            for name, count in counts.items():
                mine[name] += count

    def counts(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def seconds(self) -> dict[str, float]:
        with self._lock:
            return {stage: value / 1e9 for stage, value in self._nanoseconds.items()}
