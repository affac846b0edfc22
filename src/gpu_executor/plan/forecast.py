"""Forecasts: how long a way of running jobs will take on a device whose figures are known.

    one slot       every piece: fill, copy in, compute, copy out, drain, one after the other
    several slots  pieces side by side, as fast as the slowest of the host's main thread, the host's
                   copies and the device, if there are slots enough for all to be busy

All that is unknown here is the kernel, which is taken to be as fast as an addition: one that
computes for longer takes longer on every way alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gpu_executor.calibration import MUCH_TO_COPY, Calibration

MOST_SLOTS = 16

DataPath = Literal["host-visible", "device-local"]
QueueUse = Literal["one", "split", "several"]
"""All pieces on one queue; or copies in, computing and copies out on three; or each on another of
several."""


@dataclass(frozen=True, slots=True)
class Work:
    """The bytes of a job, and how many of them the host has to copy."""

    bytes_in: float
    bytes_out: float
    filled: float
    """Of those that go in, what does not lie in mapped memory already."""
    drained: float
    """The same of what comes out."""


@dataclass(frozen=True, slots=True)
class ExecutionPath:
    """One way of running jobs."""

    path: DataPath
    queues: QueueUse
    pieces: int
    """Of all jobs together."""
    slots: int | None
    """1 is one after the other; None is as many as are of use."""


@dataclass(frozen=True, slots=True)
class PipelinePace:
    """Pieces that overlap: the time of one, and the time between one and the next."""

    through: float
    apart: float
    """What the slowest part takes for a piece, however many there are side by side."""

    @property
    def slots(self) -> int:
        """Enough for the slowest part to be always busy (Little's law), and one to spare."""
        return math.ceil(self.through / self.apart - 0.1) + 1

    def seconds(self, pieces: int, slots: int) -> float:
        """For all of them."""
        return self.through + (pieces - 1) * max(self.apart, self.through / slots)


def forecast(figures: Calibration, work: Work, jobs: int, way: ExecutionPath) -> tuple[float, int]:
    """Seconds for all jobs, and the slots that it takes."""
    share = jobs / way.pieces
    filled, drained = work.filled * share, work.drained * share
    device, busiest = _device_seconds(figures, work.bytes_in * share, work.bytes_out * share, way)
    if way.slots == 1:
        call = figures.call_mapped if way.path == "host-visible" else figures.call_staged
        copies = figures.piece_copy(filled) + figures.piece_copy(drained)
        return way.pieces * (copies + call + device), 1
    caller, others = _piece_seconds(figures, way), 0.0
    for nbytes in (filled, drained):
        if nbytes < MUCH_TO_COPY:
            caller += nbytes / figures.host_copy[0][1]
        else:
            caller += figures.handing_over
            others += nbytes
    through = caller + others / figures.host_copy[0][1] + device
    pace = PipelinePace(through, max(caller, others / figures.pieces_copy, busiest))
    slots = way.slots or max(2, min(pace.slots, way.pieces, MOST_SLOTS))
    # The first slots are all filled at once, so that none of them is ready early.
    first = caller + min(slots, way.pieces) * others / figures.pieces_copy + device
    return pace.seconds(way.pieces, slots) + max(first - through, 0.0), slots


def _device_seconds(
    figures: Calibration, into: float, back: float, way: ExecutionPath
) -> tuple[float, float]:
    """A piece's time on the device, and that of the part of the device that is busiest with it."""
    if way.path == "host-visible":
        seconds = (into + back) / figures.kernel_mapped
        return seconds, seconds
    computing = (into + back) / figures.kernel
    seconds = into / figures.copy_in + computing + back / figures.copy_out
    if way.queues != "split":
        return seconds, seconds
    both = (into + back) / figures.copy_both
    return seconds, max(into / figures.copy_in, back / figures.copy_out, both, computing)


def _piece_seconds(figures: Calibration, way: ExecutionPath) -> float:
    """What a piece costs however small it is."""
    if way.path == "host-visible":
        return figures.piece_mapped
    seconds = {
        "one": figures.piece_staged,
        "split": figures.piece_split,
        "several": figures.piece_several,
    }[way.queues]
    assert seconds is not None, "queues that the device has"
    return seconds
