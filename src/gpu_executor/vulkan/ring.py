"""The ring: a call cut into pieces, each piece taking the next slot.

One slot runs the pieces one after the other. With more, the host fills one slot while the device
works on those before it. A slot is drained before it is filled again, so results arrive in order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from gpu_executor.call import Call
from gpu_executor.plan import Piece, Plan
from gpu_executor.telemetry.stages import StageTimes
from gpu_executor.vulkan.slot import Slot


def turn(slots: Sequence[Slot], call: Call, plan: Plan, times: StageTimes) -> None:
    """Run every piece of the call; at the end nothing is in flight, also when something fails."""
    running: deque[tuple[Slot, Piece]] = deque()
    try:
        for number, piece in enumerate(plan.pieces()):
            if len(running) == len(slots):
                _finish(*running.popleft(), call, times)
            slot = slots[number % len(slots)]
            begun = time.perf_counter_ns()
            slot.fill(call, piece)
            times.add("upload", begun)
            slot.submit(piece, plan.groups(piece.count), times)
            running.append((slot, piece))
        while running:
            _finish(*running.popleft(), call, times)
    except BaseException:
        for slot in slots:
            slot.wait()
        raise


def _finish(slot: Slot, piece: Piece, call: Call, times: StageTimes) -> None:
    begun = time.perf_counter_ns()
    slot.wait()
    begun = times.add("compute", begun)
    slot.drain(call, piece)
    times.add("download", begun)
