"""Forecasts: how long a way of running jobs will take on a device whose figures are known.

    one slot       every piece:  fill, copy in, compute, copy out, drain, one after the other
    several slots  the longest of what the host does and what the device does sets the pace

All that is unknown here is the kernel, which is taken to be as fast as an addition: one that
computes for longer takes longer on every way alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gpu_executor.calibration import Calibration

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
class Way:
    """One way of running jobs."""

    path: DataPath
    queues: QueueUse
    pieces: int
    """Of all jobs together."""
    overlaps: bool
    """Whether pieces take turns in several slots."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one piece takes of the host's time and of the device's."""

    host: float
    device: float
    """Of the busiest part of the device."""
    through: float
    """From its submission until it is done."""

    @property
    def slots(self) -> int:
        """Enough for all that a piece passes through to be busy (Little's law), and one to spare:
        2 where nearly all time is the host's or the device's, up to 5 where all parts share it."""
        return 1 + max(1, math.ceil((self.host + self.through) / max(self.host, self.device) - 0.1))


def pace(figures: Calibration, work: Work, jobs: int, way: Way) -> Pace:
    """The time of one of the way's pieces, where pieces overlap."""
    share = jobs / way.pieces
    into, back = work.bytes_in * share, work.bytes_out * share
    host = figures.host_seconds(work.filled * share) + figures.host_seconds(work.drained * share)
    if way.path == "host-visible":
        device = (into + back) / figures.kernel_mapped
        return Pace(host + figures.piece_mapped, device, device)
    computing = (into + back) / figures.kernel
    through = into / figures.copy_in + computing + back / figures.copy_out
    if way.queues == "one":
        return Pace(host + figures.piece_staged, through, through)
    bus = max(into / figures.copy_in, back / figures.copy_out, (into + back) / figures.copy_both)
    piece = figures.piece_split if way.queues == "split" else figures.piece_several
    assert piece is not None, "queues that the device has"
    return Pace(host + piece, max(bus, computing), through)


def forecast(figures: Calibration, work: Work, jobs: int, way: Way) -> float:
    """Seconds for all jobs."""
    one = pace(figures, work, jobs, way)
    if way.path == "host-visible":
        call, piece = figures.call_mapped, figures.piece_mapped
    else:
        call, piece = figures.call_staged, figures.piece_staged
    if not way.overlaps:
        return way.pieces * (one.host - piece + call + one.through)
    pieces = way.pieces * max(one.host, one.device)
    return pieces + min(one.host, one.through) + max(call - piece, 0)
