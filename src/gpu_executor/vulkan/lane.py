"""Lanes: copies in one direction on one queue, without a kernel, to see what the bus can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.timeline import Submission, Timeline

IN_FLIGHT = 4
"""Copies of one direction that the device has at once."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Copies, piece by piece, recorded."""

    timeline: Timeline
    submissions: list[Submission]


@contextlib.contextmanager
def open_lane(
    resources: Resources, timeline: Timeline, pieces: Sequence[Sequence[Copy]]
) -> Iterator[Lane]:
    """Record the copies of each piece for one queue."""
    pool = CommandPool(resources.device, timeline.family)
    submissions: list[Submission] = []
    try:
        for copies in pieces:
            commands = pool.allocate()
            with Recorder(commands) as recorder:
                recorder.copy(copies)
                recorder.copies_before_host()
            submissions.append(timeline.prepare(commands))
        yield Lane(timeline, submissions)
    finally:
        # Some are in flight where Ctrl-C ended it; another one must not end this.
        interrupt = None
        for submission in submissions:
            interrupt = timeline.wait_out(submission) or interrupt
        pool.close()
        if interrupt is not None:
            raise interrupt


def run_lanes(lanes: Sequence[Lane]) -> None:
    """Every piece of every lane, a few in flight in each; returns when all are done."""
    for piece in range(len(lanes[0].submissions)):
        for lane in lanes:
            if piece >= IN_FLIGHT:
                lane.timeline.wait(lane.submissions[piece - IN_FLIGHT])
            lane.timeline.submit(lane.submissions[piece])
    for lane in lanes:
        lane.timeline.wait(lane.submissions[-1])
