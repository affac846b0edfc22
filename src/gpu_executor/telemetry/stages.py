"""Where the time of calls goes, by stage.

    setup         instance, device, queues, pools
    pipeline      shader module, layouts, pipeline
    descriptors   buffers and the sets that bind them
    recording     commands
    upload        the caller's arrays into mapped memory
    compute       from submission until the device is done (its own copies included)
    download      mapped memory into the caller's results

Hot code adds to a `Record` of its own, without a lock; whoever wants statistics sums the records.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

STAGES = ("setup", "pipeline", "descriptors", "recording", "upload", "compute", "download")
COUNTS = ("calls", "elements", "pieces", "recordings", "shrunk")


class Record:
    """Nanoseconds by stage, and counts. One thread at a time adds to it."""

    __slots__ = (*STAGES, *COUNTS)

    def __init__(self) -> None:
        self.setup = self.pipeline = self.descriptors = self.recording = 0
        self.upload = self.compute = self.download = 0
        self.calls = self.elements = self.pieces = self.recordings = 0
        self.shrunk = 0
        """Times that a chunk or the number of slots was cut because memory was not to be had."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage that is not on the path of every call."""
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter_ns() - begun)

    def add(self, other: Record) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def seconds(self) -> dict[str, float]:
        """By stage, in the order above."""
        return {stage: getattr(self, stage) / 1e9 for stage in STAGES}


def summed(records: Iterable[Record]) -> Record:
    """All of them together."""
    total = Record()
    for record in records:
        total.add(record)
    return total
