"""Strategies: how path, chunk, slots and queues are chosen within the bounds of a request.

`choose_by_thresholds` serves devices without a calibration: fixed numbers of elements and bytes
decide. `choose_by_calibration` forecasts every schedule that the bounds allow, and chooses the
fastest.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.plan.bounds import DEFAULT_SLOTS, Bounds
from gpu_executor.plan.calibration import Calibration
from gpu_executor.plan.forecast import DataPath, QueueUse, Schedule, forecast
from gpu_executor.plan.request import Request


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a strategy, with its reasons."""

    path: DataPath
    chunk: int
    slots: int
    queues: QueueUse
    reasons: tuple[str, ...]
    """One sentence per decision; the first explains the path."""
    foreseen: float | None = None
    """Expected seconds for all jobs; None without a calibration."""


def explain_slots(slots: int, chunks: int) -> str:
    return f"slots: {slots}, so that the copies and dispatches of {chunks:,} chunks overlap"


def explain_requested_slots(slots: int, *, pipelined: bool | None) -> str:
    how = "requested with pipelined=False" if pipelined is False else "requested"
    return f"slots: {slots}, {how}"


STREAM_CHUNK_ELEMS = 524_288
"""The default of the largest chunk, in elements."""
AUTO_DEVICE_LOCAL_THRESHOLD = 1 << 20
"""The number of elements from which a single call is staged through device-local memory."""
BATCH_DEVICE_LOCAL_THRESHOLD = 1 << 12
"""The same for a batch, where the copies of one job overlap with the dispatches of others."""
SPLIT_BYTES = 1 << 20
"""Input bytes of a chunk from which three queues are worth their two extra submissions, where the
host copies nothing. Where the host copies, its copies are the bottleneck: 16 jobs of 64 K elements
take 3.4 ms on one queue and 3.1 ms on three from mapped arrays, 8.1 and 9.9 ms from plain arrays
(NVIDIA H200). It is only for devices without a calibration, which measures both."""


def choose_by_thresholds(bounds: Bounds) -> Choice:
    """Choose by fixed thresholds, for a device without a calibration."""
    request = bounds.request
    path, reason = _choose_path(bounds)
    most, why = bounds.limit_chunk(path, STREAM_CHUNK_ELEMS)
    reasons = [reason, why]
    chunk = min(request.count, most)
    slots = _choose_slots(request, request.count_chunks(chunk), reasons)
    queues: QueueUse = "one"
    if path == "device-local" and slots > 1:
        queues, why = _choose_queues(bounds, chunk)
        reasons.append(why)
    return Choice(path, chunk, slots, queues, tuple(reasons))


def _choose_path(bounds: Bounds) -> tuple[DataPath, str]:
    paths, reason = bounds.paths()
    if len(paths) == 1:
        return paths[0], reason
    count, single = bounds.request.count, bounds.request.jobs == 1
    threshold = AUTO_DEVICE_LOCAL_THRESHOLD if single else BATCH_DEVICE_LOCAL_THRESHOLD
    large = count >= threshold
    comparison = "at least" if large else "below"
    reason = f"path: {count:,} elements are {comparison} {threshold:,}"
    return ("device-local" if large else "host-visible"), reason


def _choose_slots(request: Request, chunks: int, reasons: list[str]) -> int:
    options = request.options
    if options.slots is not None:
        reasons.append(explain_requested_slots(options.slots, pipelined=options.pipelined))
        return options.slots
    if chunks == 1 and not options.pipelined:
        return 1
    slots = max(2, min(chunks, DEFAULT_SLOTS))
    reasons.append(explain_slots(slots, chunks))
    return slots


def _choose_queues(bounds: Bounds, chunk: int) -> tuple[QueueUse, str]:
    """Choose one queue or three, for overlapped chunks on the device-local path."""
    request = bounds.request
    if not bounds.has_copy_queues:
        return "one", "queues: one, the device has no transfer-only queues"
    if not request.in_place:
        return "one", "queues: one, copies by the host are the bottleneck"
    nbytes = chunk * request.bytes_in // request.count
    if nbytes < SPLIT_BYTES:
        return "one", f"queues: one, {nbytes:,} bytes of input are too few to gain from three"
    return "split", "queues: three, for copy in, compute and copy out"


MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 256 << 10, 64 << 20
"""Minimum and maximum of the input and output bytes of a chunk, if a call is split only for
speed."""
MIN_FILL_BYTES, MAX_FILL_BYTES = 3 << 20, 8 << 20
"""Input bytes of an overlapped chunk that the host copies. In this range the staging memory of all
slots stays in the host processor's cache, whatever the device: 4 M additions take 19 ms in chunks
of 64 K elements, 26 ms in chunks of 256 K and 31 ms in chunks of 512 K, with 8 slots (the host of
an NVIDIA H200). Smaller chunks cost more to hand to the copy threads than they gain: 150 us for 16
K elements, 200 for 32 K, 290 for 64 K."""
SCHEDULE_TOLERANCE = 1.03
"""Forecasts within this ratio count as equal; the simpler schedule is chosen."""
CHUNK_TOLERANCE = 1.1
"""The same for the chunk sizes of one kind of schedule; the size nearest the default is chosen."""
SPLIT_GAIN = 1.1
"""The gain that justifies splitting a call into chunks where the host copies nothing: slots cost
memory, and forecasts are rough."""
SPLIT_GAIN_WITH_COPIES = 1.2
"""The same where the host copies: forecasts of its threads are rougher. A call on 64 K elements in
plain arrays took 430 to 460 us as a whole, and 490 to 510 us as two chunks, which were expected to
gain 1.13 to 1.15 (NVIDIA H200, two runs)."""
OVERLAP_TOLERANCE = 1.15
"""Overlapped jobs are preferred within this ratio: they suffer less from a wrong forecast."""


@dataclass(frozen=True, slots=True)
class TimedSchedule:
    """A schedule with its forecast."""

    seconds: float
    slots: int
    schedule: Schedule
    chunk: int


def choose_by_calibration(bounds: Bounds, calibration: Calibration) -> Choice:
    """Choose the schedule with the shortest forecast."""
    request = bounds.request
    paths, path_reason = bounds.paths()
    work = request.work
    options = [
        TimedSchedule(*forecast(calibration, work, request.jobs, schedule), schedule, chunk)
        for path in paths
        for schedule, chunk in _iter_schedules(
            bounds, calibration, path, _list_chunks(bounds, path)
        )
    ]
    chosen = _select(request, options)
    schedule = chosen.schedule
    if len(paths) > 1:
        other = min(option.seconds for option in options if option.schedule.path != schedule.path)
        path_reason = (
            f"path: {schedule.path}, {_format_ms(chosen)} expected, "
            f"{other * 1e3:.3g} ms on the other path"
        )
    reasons = [path_reason]
    if bounds.settings.stream_chunk_elems is None and chosen.chunk < request.count:
        reasons.append(f"chunk: {chosen.chunk:,} elements, {_format_ms(chosen)} expected")
    else:
        reasons.append(bounds.limit_chunk(schedule.path, None)[1])
    if (asked := request.options.slots) is not None:
        reasons.append(explain_requested_slots(asked, pipelined=request.options.pipelined))
    elif chosen.slots > 1:
        reasons.append(explain_slots(chosen.slots, schedule.chunks))
    elif schedule.chunks > 1:
        reasons.append("slots: 1, since overlapping would take longer")
    if chosen.slots > 1 and schedule.path == "device-local":
        reasons.append(_explain_queues(chosen, options))
    return Choice(
        schedule.path, chosen.chunk, chosen.slots, schedule.queues, tuple(reasons), chosen.seconds
    )


def _list_chunks(bounds: Bounds, path: DataPath) -> list[int]:
    """Return the chunk sizes to try: the largest, then smaller powers of two; only one if the
    settings give it.
    """
    request = bounds.request
    most, _ = bounds.limit_chunk(path, None)
    if request.kernel.split == "whole" or bounds.settings.stream_chunk_elems is not None:
        return [min(request.count, most)]
    per_element = (request.bytes_in + request.bytes_out) / request.count
    most = min(most, max(STREAM_CHUNK_ELEMS, int(MAX_CHUNK_BYTES / per_element)))
    chunks = [min(request.count, most)]
    chunk = 1 << max((chunks[0] - 1).bit_length() - 1, 0)
    least = max(MIN_CHUNK_BYTES / per_element, 1)
    if not request.in_place:
        least = max(least, MIN_FILL_BYTES * request.count / max(request.bytes_in, 1))
    while least <= chunk < chunks[-1]:
        chunks.append(chunk)
        chunk //= 2
    return chunks


def _iter_schedules(
    bounds: Bounds, calibration: Calibration, path: DataPath, lengths: list[int]
) -> Iterator[tuple[Schedule, int]]:
    """Yield every schedule that the caller's options allow, with its chunk size."""
    request = bounds.request
    options = request.options
    left_open = options.slots is None and not options.pipelined
    for chunk in lengths:
        chunks = request.count_chunks(chunk)
        if options.slots == 1 or left_open:
            yield Schedule(path, "one", chunks, slots=1), chunk
        if options.slots == 1 or (left_open and chunks == 1):
            continue
        fill_bytes = 0 if request.in_place else request.bytes_in * chunk / request.count
        if fill_bytes > MAX_FILL_BYTES and chunk != lengths[-1]:
            continue
        yield Schedule(path, "one", chunks, options.slots), chunk
        if path == "device-local":
            if calibration.chunk_split is not None:
                yield Schedule(path, "split", chunks, options.slots), chunk
            if calibration.chunk_several is not None:
                yield Schedule(path, "several", chunks, options.slots), chunk


def _select(request: Request, options: list[TimedSchedule]) -> TimedSchedule:
    """Select the fastest schedule; among equals the simplest, then the default chunk size."""
    fastest = min(option.seconds for option in options)
    if request.jobs == 1:
        undivided = [option for option in options if option.schedule.chunks == 1]
        best = min(undivided, key=lambda option: option.seconds, default=None)
        gain = SPLIT_GAIN if request.in_place else SPLIT_GAIN_WITH_COPIES
        if best is not None and best.seconds <= fastest * gain:
            return best
    else:
        overlapping = [option for option in options if option.slots > 1]
        best = min(overlapping, key=lambda option: option.seconds, default=None)
        if best is not None and best.seconds <= fastest * OVERLAP_TOLERANCE:
            options, fastest = overlapping, best.seconds
    kind = _rank_kind(
        min((o for o in options if o.seconds <= fastest * SCHEDULE_TOLERANCE), key=_rank_kind)
    )
    alike = [option for option in options if _rank_kind(option) == kind]
    fastest = min(option.seconds for option in alike)
    return min(
        (o for o in alike if o.seconds <= fastest * CHUNK_TOLERANCE), key=_compute_chunk_ratio
    )


def _rank_kind(option: TimedSchedule) -> tuple[bool, bool, str, str]:
    """Return a sort key for the kind of a schedule, regardless of its chunk; simpler kinds sort
    first.
    """
    schedule = option.schedule
    return option.slots == 1, schedule.queues != "one", schedule.queues, schedule.path


def _compute_chunk_ratio(option: TimedSchedule) -> float:
    """Return the ratio between a schedule's chunk size and the default, or its inverse: at least
    1.
    """
    ratio = option.chunk / STREAM_CHUNK_ELEMS
    return max(ratio, 1 / ratio)


def _explain_queues(chosen: TimedSchedule, options: list[TimedSchedule]) -> str:
    number = {"one": "one", "split": "three", "several": "several"}
    compared = ", ".join(
        f"{_format_ms(option)} with {number[option.schedule.queues]}"
        for option in options
        if option.slots > 1
        and (option.schedule.path, option.chunk) == (chosen.schedule.path, chosen.chunk)
    )
    return f"queues: {number[chosen.schedule.queues]}, {compared} expected"


def _format_ms(option: TimedSchedule) -> str:
    return f"{option.seconds * 1e3:.3g} ms"
