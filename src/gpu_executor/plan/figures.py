"""The choice for a device that was measured: the way that is foreseen to be fastest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.plan.bounds import Bounds
from gpu_executor.plan.choice import Choice, asked_reason, slots_reason
from gpu_executor.plan.forecast import DataPath, Way, forecast
from gpu_executor.plan.request import Request
from gpu_executor.plan.thresholds import STREAM_CHUNK_ELEMS

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
    way: Way
    chunk: int


def choose_by_figures(bounds: Bounds, figures: Calibration) -> Choice:
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
    if (asked := request.wishes.slots) is not None:
        reasons.append(asked_reason(asked, pipelined=request.wishes.pipelined))
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
) -> Iterator[tuple[Way, int]]:
    """Every way that the caller leaves open, with its chunk."""
    request = bounds.request
    wishes = request.wishes
    left_open = wishes.slots is None and not wishes.pipelined
    for chunk in chunks:
        pieces = request.pieces(chunk)
        if wishes.slots == 1 or left_open:
            yield Way(path, "one", pieces, slots=1), chunk
        if wishes.slots == 1 or (left_open and pieces == 1):
            continue
        filled = 0 if request.in_place else request.bytes_in * chunk / request.count
        if filled > MOST_FILLED and chunk != chunks[-1]:
            continue
        yield Way(path, "one", pieces, wishes.slots), chunk
        if path == "device-local":
            if figures.piece_split is not None:
                yield Way(path, "split", pieces, wishes.slots), chunk
            if figures.piece_several is not None:
                yield Way(path, "several", pieces, wishes.slots), chunk


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
    told = ", ".join(
        f"{_ms(option)} with {number[option.way.queues]}"
        for option in options
        if option.slots > 1 and (option.way.path, option.chunk) == (chosen.way.path, chosen.chunk)
    )
    return f"queues: {number[chosen.way.queues]}, {told} foreseen"


def _ms(option: Option) -> str:
    return f"{option.seconds * 1e3:.3g} ms"
