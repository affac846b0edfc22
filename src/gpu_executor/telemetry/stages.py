"""Stage times: how long the calls of a backend spent in each stage.

    setup         instance, device, queues, pools
    pipeline      shader module, layouts, pipeline
    descriptors   buffers and the descriptor sets that bind them
    recording     recording of command buffers
    upload        copy of the caller's arrays into mapped memory
    compute       from the submission until the device has finished, its own copies included
    download      copy of mapped memory into the caller's results

Each hot path adds to `StageCounters` of its own, without a lock. Statistics are the sum of
all of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

STAGES = ("setup", "pipeline", "descriptors", "recording", "upload", "compute", "download")
COUNTS = ("calls", "elements", "chunks", "recordings", "shrunk")


class StageCounters:
    """Nanoseconds by stage, and counts. Only one thread at a time may add to it."""

    __slots__ = (*STAGES, *COUNTS)

    def __init__(self) -> None:
        self.setup = self.pipeline = self.descriptors = self.recording = 0
        self.upload = self.compute = self.download = 0
        self.calls = self.elements = self.chunks = self.recordings = 0
        self.shrunk = 0
        """Times that a chunk or the number of slots was reduced for lack of memory."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage. The context manager is too slow for the stages of every call."""
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter_ns() - begun)

    def add(self, other: StageCounters) -> None:
        """Add the times and counts of others to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, in the order of `STAGES`."""
        return {stage: getattr(self, stage) / 1e9 for stage in STAGES}


def sum_counters(counters: Iterable[StageCounters]) -> StageCounters:
    """The sum of all counters, as new ones."""
    total = StageCounters()
    for each in counters:
        total.add(each)
    return total
