"""The choice for a device that nobody has measured: by fixed numbers of elements and bytes."""

from __future__ import annotations

from gpu_executor.plan.bounds import USUAL_DEPTH, Bounds
from gpu_executor.plan.choice import Choice, asked_reason, slots_reason
from gpu_executor.plan.forecast import DataPath, QueueUse
from gpu_executor.plan.request import Request

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
    wishes = request.wishes
    if wishes.slots is not None:
        reasons.append(asked_reason(wishes.slots, pipelined=wishes.pipelined))
        return wishes.slots
    if pieces == 1 and not wishes.pipelined:
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
