"""The ring: a call cut into pieces, each piece taking the next slot.

One slot runs the pieces one after the other. With more, the host fills one slot while the device
works on those before it. A slot is drained before it is filled again, so results arrive in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_executor.call import Call
from gpu_executor.plan import Piece
from gpu_executor.vulkan.slot import Slot

Step = tuple[Piece, int]
"""A piece and the work-groups for it."""


def turn(slots: Sequence[Slot], call: Call, steps: Sequence[Step]) -> None:
    """Run every piece of the call; at the end nothing is in flight, also when something fails."""
    depth = len(slots)
    started = 0
    try:
        for piece, groups in steps:
            slot = slots[started % depth]
            if started >= depth:
                slot.finish(call)
            slot.start(call, piece, groups)
            if not started:
                call.make_outputs()
            started += 1
        for oldest in range(started - depth if started > depth else 0, started):
            slots[oldest % depth].finish(call)
    except BaseException:
        for slot in slots:
            slot.abandon()
        raise
