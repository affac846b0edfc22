"""A choice among the ways of running a request: path, chunk, slots, queues, and why.

The choice for a device that nobody has measured: by fixed numbers of elements and bytes.

The choice for a device that was measured: the way that is foreseen to be fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.plan.bounds import USUAL_DEPTH, Bounds
from gpu_executor.plan.forecast import DataPath, ExecutionPath, QueueUse, forecast
from gpu_executor.plan.request import Request


@dataclass(frozen=True, slots=True)
class Choice:
    """What figures or thresholds decide."""

    path: DataPath
    chunk: int
    slots: int
    queues: QueueUse
    reasons: tuple[str, ...]
    """The first is the path's."""
    foreseen: float | None = None
    """Seconds for all of it, where there are figures."""


def slots_reason(slots: int, pieces: int) -> str:
    return f"slots: {slots}, so that copies and computing of {pieces:,} pieces overlap"


def asked_reason(slots: int, *, pipelined: bool | None) -> str:
    how = "asked for with pipelined=False" if pipelined is False else "asked for"
    return f"slots: {slots}, {how}"


STREAM_CHUNK_ELEMS = 524_288
"""The most elements of a chunk, where nobody says otherwise."""
AUTO_DEVICE_LOCAL_THRESHOLD = 1 << 20
"""Elements from which a call goes through device-local memory."""
BATCH_DEVICE_LOCAL_THRESHOLD = 1 << 12
"""The same for the pieces of a batch, whose copies overlap with other pieces' computing."""
SPLIT_BYTES = 1 << 20
"""Input of a piece from which three queues pay for the two more submissions they take, where the
arrays need no copying by the host. Where they do, the host is what all wait for: 16 jobs of 64 K
take 3.4 ms through one queue and 3.1 through three from mapped arrays, 8.1 and 9.9 from plain ones
(NVIDIA H200)."""


def choose_by_thresholds(bounds: Bounds) -> Choice:
    request = bounds.request
    path, reason = _path(bounds)
    most, why = bounds.most_elements(path, STREAM_CHUNK_ELEMS)
    reasons = [reason, why]
    chunk = min(request.count, most)
    slots = _slots(request, request.pieces(chunk), reasons)
    queues: QueueUse = "one"
    if path == "device-local" and slots > 1:
        queues, why = _queues(bounds, chunk)
        reasons.append(why)
    return Choice(path, chunk, slots, queues, tuple(reasons))


def _path(bounds: Bounds) -> tuple[DataPath, str]:
    paths, reason = bounds.paths()
    if len(paths) == 1:
        return paths[0], reason
    count, single = bounds.request.count, bounds.request.jobs == 1
    threshold = AUTO_DEVICE_LOCAL_THRESHOLD if single else BATCH_DEVICE_LOCAL_THRESHOLD
    large = count >= threshold
    comparison = "at least" if large else "below"
    reason = f"path: {count:,} elements are {comparison} {threshold:,}"
    return ("device-local" if large else "host-visible"), reason


def _slots(request: Request, pieces: int, reasons: list[str]) -> int:
    options = request.options
    if options.slots is not None:
        reasons.append(asked_reason(options.slots, pipelined=options.pipelined))
        return options.slots
    if pieces == 1 and not options.pipelined:
        return 1
    slots = max(2, min(pieces, USUAL_DEPTH))
    reasons.append(slots_reason(slots, pieces))
    return slots


def _queues(bounds: Bounds, chunk: int) -> tuple[QueueUse, str]:
    """One queue or three, for pieces that are copied and overlap."""
    request = bounds.request
    if not bounds.can_split:
        return "one", "queues: one, the device has none that only copy"
    if not request.in_place:
        return "one", "queues: one, the host's copies take longest"
    nbytes = chunk * request.bytes_in // request.count
    if nbytes < SPLIT_BYTES:
        return "one", f"queues: one, {nbytes:,} bytes of input are too few for three"
    return "split", "queues: three, for copies in, computing and copies out"


SMALLEST_PIECE_BYTES, LARGEST_PIECE_BYTES = 256 << 10, 64 << 20
"""Input and output of a piece that was cut because it is foreseen to be faster."""
LEAST_FILLED, MOST_FILLED = 3 << 20, 8 << 20
"""Input of a piece that overlaps with others and that the host copies. The staging of all slots
stays in the processor's cache then: 4 M additions take 19 ms in pieces of 64 K elements, 26 in
pieces of 256 K and 31 in pieces of 512 K, in 8 slots (NVIDIA H200). Smaller ones cost more to hand
over than they gain: 150 us for 16 K elements, 200 for 32 K, 290 for 64 K."""
ALIKE = 1.03
"""Forecasts of two kinds of ways within this ratio are taken to be equal."""
CHUNKS_ALIKE = 1.1
"""The same for chunks of one kind: the usual chunk is taken where others gain little."""
WORTH_CUTTING = 1.1
"""What a call must gain by being cut into pieces: they cost memory, and forecasts are rough."""
OVERLAP = 1.15
"""The same for jobs one after the other: those that overlap forgive wrong forecasts."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way, and how long it will take."""

    seconds: float
    slots: int
    way: ExecutionPath
    chunk: int


def choose_by_calibration(bounds: Bounds, figures: Calibration) -> Choice:
    request = bounds.request
    paths, path_reason = bounds.paths()
    work = request.work
    options = [
        Option(*forecast(figures, work, request.jobs, way), way, chunk)
        for path in paths
        for way, chunk in _ways(bounds, figures, path, _chunks(bounds, path))
    ]
    chosen = _best(request, options)
    way = chosen.way
    if len(paths) > 1:
        other = min(option.seconds for option in options if option.way.path != way.path)
        path_reason = f"path: {way.path}, {_ms(chosen)} foreseen and {other * 1e3:.3g} on the other"
    reasons = [path_reason]
    if bounds.settings.stream_chunk_elems is None and chosen.chunk < request.count:
        reasons.append(f"chunk: {chosen.chunk:,} elements, {_ms(chosen)} foreseen")
    else:
        reasons.append(bounds.most_elements(way.path, None)[1])
    if (asked := request.options.slots) is not None:
        reasons.append(asked_reason(asked, pipelined=request.options.pipelined))
    elif chosen.slots > 1:
        reasons.append(slots_reason(chosen.slots, way.pieces))
    elif way.pieces > 1:
        reasons.append("slots: 1, overlapping would take longer")
    if chosen.slots > 1 and way.path == "device-local":
        reasons.append(_queues_reason(chosen, options))
    return Choice(way.path, chosen.chunk, chosen.slots, way.queues, tuple(reasons), chosen.seconds)


def _chunks(bounds: Bounds, path: DataPath) -> list[int]:
    """As large as may be, then powers of two below it, unless the settings say how large."""
    request = bounds.request
    most, _ = bounds.most_elements(path, None)
    if request.kernel.split == "whole" or bounds.settings.stream_chunk_elems is not None:
        return [min(request.count, most)]
    per_element = (request.bytes_in + request.bytes_out) / request.count
    most = min(most, max(STREAM_CHUNK_ELEMS, int(LARGEST_PIECE_BYTES / per_element)))
    chunks = [min(request.count, most)]
    chunk = 1 << max((chunks[0] - 1).bit_length() - 1, 0)
    least = max(SMALLEST_PIECE_BYTES / per_element, 1)
    if not request.in_place:
        least = max(least, LEAST_FILLED * request.count / request.bytes_in)
    while least <= chunk < chunks[-1]:
        chunks.append(chunk)
        chunk //= 2
    return chunks


def _ways(
    bounds: Bounds, figures: Calibration, path: DataPath, chunks: list[int]
) -> Iterator[tuple[ExecutionPath, int]]:
    """Every way that the caller leaves open, with its chunk."""
    request = bounds.request
    options = request.options
    left_open = options.slots is None and not options.pipelined
    for chunk in chunks:
        pieces = request.pieces(chunk)
        if options.slots == 1 or left_open:
            yield ExecutionPath(path, "one", pieces, slots=1), chunk
        if options.slots == 1 or (left_open and pieces == 1):
            continue
        filled = 0 if request.in_place else request.bytes_in * chunk / request.count
        if filled > MOST_FILLED and chunk != chunks[-1]:
            continue
        yield ExecutionPath(path, "one", pieces, options.slots), chunk
        if path == "device-local":
            if figures.piece_split is not None:
                yield ExecutionPath(path, "split", pieces, options.slots), chunk
            if figures.piece_several is not None:
                yield ExecutionPath(path, "several", pieces, options.slots), chunk


def _best(request: Request, options: list[Option]) -> Option:
    """The fastest; among those that are alike, the one that needs least or is most usual."""
    fastest = min(option.seconds for option in options)
    if request.jobs == 1:
        undivided = [option for option in options if option.way.pieces == 1]
        best = min(undivided, key=lambda option: option.seconds, default=None)
        if best is not None and best.seconds <= fastest * WORTH_CUTTING:
            return best
    else:
        overlapping = [option for option in options if option.slots > 1]
        best = min(overlapping, key=lambda option: option.seconds, default=None)
        if best is not None and best.seconds <= fastest * OVERLAP:
            options, fastest = overlapping, best.seconds
    kind = _kind(min((o for o in options if o.seconds <= fastest * ALIKE), key=_kind))
    alike = [option for option in options if _kind(option) == kind]
    fastest = min(option.seconds for option in alike)
    return min((o for o in alike if o.seconds <= fastest * CHUNKS_ALIKE), key=_distance)


def _kind(option: Option) -> tuple[bool, bool, str, str]:
    """What tells options apart but for their chunks. The least is preferred: one queue."""
    way = option.way
    return option.slots == 1, way.queues != "one", way.queues, way.path


def _distance(option: Option) -> float:
    """How far its chunk is from the usual one."""
    ratio = option.chunk / STREAM_CHUNK_ELEMS
    return max(ratio, 1 / ratio)


def _queues_reason(chosen: Option, options: list[Option]) -> str:
    number = {"one": "one", "split": "three", "several": "several"}
    push_words = ", ".join(
        f"{_ms(option)} with {number[option.way.queues]}"
        for option in options
        if option.slots > 1 and (option.way.path, option.chunk) == (chosen.way.path, chosen.chunk)
    )
    return f"queues: {number[chosen.way.queues]}, {push_words} foreseen"


def _ms(option: Option) -> str:
    return f"{option.seconds * 1e3:.3g} ms"
