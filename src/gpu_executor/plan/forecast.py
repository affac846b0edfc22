"""Forecasts: how long a schedule takes on a calibrated device.

    one slot       the stages of a chunk (fill, copy in, compute, copy out, drain) run in sequence,
                   except that a middle-sized fill overlaps its copy to the device; what the host
                   fills in device memory is not copied in
    several slots  chunks overlap; the slowest of the calling thread, the copy threads and the
                   device sets the throughput, if there are enough slots to keep it busy. Chunks
                   that all have a slot are copied at once, and then wait only for the calling
                   thread and the device

The kernel's own rate is unknown; an addition's rate is assumed. A slower kernel adds the same time
to every schedule.
"""

from __future__ import annotations

import math
from typing import Literal

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.plan.calibration import (
    LARGE_COPY_BYTES,
    MAX_FILL_BYTES_IN_SEGMENTS,
    MIN_FILL_BYTES_IN_SEGMENTS,
    Calibration,
)

MAX_SLOTS = 16

DataPath = Literal["host-visible", "device-local", "device-resident"]
QueueUse = Literal["one", "split", "several"]
"""one: all chunks on one queue. split: copy in, compute and copy out on three queues. several: each
chunk as a whole on the next of several compute queues."""


@dataclass(frozen=True, slots=True)
class Work:
    """The bytes that a job moves, and how many of them the host copies."""

    bytes_in: float
    bytes_out: float
    fill_bytes: float
    """Input bytes that the host copies: those that are not already in mapped memory."""
    drain_bytes: float
    """Output bytes that the host copies."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run the jobs of a request."""

    path: DataPath
    queues: QueueUse
    chunks: int
    """Chunks of all jobs together."""
    slots: int | None
    """1: chunks run in sequence. None: the forecast chooses the number of slots."""


@dataclass(frozen=True, slots=True)
class PipelinePace:
    """The pace of overlapped chunks, in seconds."""

    latency: float
    """Time from the start to the end of one chunk."""
    interval: float
    """Minimum time between two chunks: the time that the slowest stage takes for one chunk."""

    @property
    def slots(self) -> int:
        """The number of slots that keep the slowest stage busy (Little's law), plus one."""
        return math.ceil(self.latency / self.interval - 0.1) + 1

    def seconds(self, chunks: int, slots: int) -> float:
        """Return the seconds for all chunks."""
        return self.latency + (chunks - 1) * max(self.interval, self.latency / slots)


def forecast(
    calibration: Calibration, work: Work, jobs: int, schedule: Schedule
) -> tuple[float, int]:
    """Return the expected seconds for all jobs, and the number of slots."""
    share = jobs / schedule.chunks
    fill_bytes, drain_bytes = work.fill_bytes * share, work.drain_bytes * share
    direct = fill_bytes if calibration.direct_fill else 0.0
    device, busiest = _forecast_device(
        calibration, work.bytes_in * share, direct, work.bytes_out * share, schedule
    )
    if schedule.slots == 1:
        call = (
            calibration.call_mapped if schedule.path == "host-visible" else calibration.call_staged
        )
        fill = calibration.estimate_copy(fill_bytes)
        in_segments = MIN_FILL_BYTES_IN_SEGMENTS <= fill_bytes <= MAX_FILL_BYTES_IN_SEGMENTS
        if schedule.path == "device-local" and in_segments and not direct:
            fill -= min(fill, fill_bytes / calibration.copy_in)
        drain = calibration.estimate_copy(drain_bytes)
        return schedule.chunks * (fill + drain + call + device), 1
    caller, others = _find_chunk_cost(calibration, schedule), 0.0
    for nbytes in (fill_bytes, drain_bytes):
        if nbytes < LARGE_COPY_BYTES:
            caller += nbytes / calibration.fill_copy
        else:
            caller += calibration.handing_over
            others += nbytes
    # The threads that copy at once share the total rate; each chunk in a slot keeps one busy.
    filling = min(calibration.choose_threads(), schedule.chunks, schedule.slots or MAX_SLOTS)
    rate = min(calibration.fill_copy, calibration.chunks_copy / filling)
    latency = caller + others / rate + device
    interval = max(caller, busiest)
    pace = PipelinePace(latency, max(interval, others / calibration.chunks_copy))
    slots = schedule.slots or max(2, min(pace.slots, schedule.chunks, MAX_SLOTS))
    # At the start the copy threads fill all slots at once, so the first chunk is ready later than
    # the others.
    at_once = min(slots, schedule.chunks) * others / calibration.chunks_copy
    first = max(latency, caller + at_once + device)
    if schedule.chunks <= slots:  # no copy begins later
        return first + (schedule.chunks - 1) * interval, slots
    return first - latency + pace.seconds(schedule.chunks, slots), slots


def _forecast_device(
    calibration: Calibration, into: float, direct: float, back: float, schedule: Schedule
) -> tuple[float, float]:
    """Return the seconds of a chunk on the device, and the seconds of the busiest engine of the
    device. Of the `into` bytes of inputs, the host fills `direct` in device memory.
    """
    if schedule.path == "host-visible":
        seconds = (into - direct + back) / calibration.kernel_mapped + direct / calibration.kernel
        return seconds, seconds
    computing = (into + back) / calibration.kernel
    into -= direct
    seconds = into / calibration.copy_in + computing + back / calibration.copy_out
    if schedule.queues != "split":
        return seconds, seconds
    both = (into + back) / calibration.copy_both
    return seconds, max(into / calibration.copy_in, back / calibration.copy_out, both, computing)


def _find_chunk_cost(calibration: Calibration, schedule: Schedule) -> float:
    """Return the fixed cost of a chunk in seconds, independent of its size."""
    if schedule.path == "host-visible":
        return calibration.chunk_mapped
    seconds = {
        "one": calibration.chunk_staged,
        "split": calibration.chunk_split,
        "several": calibration.chunk_several,
    }[schedule.queues]
    assert seconds is not None, "the schedule uses queues that the device lacks"
    return seconds
