"""The ring: pieces of calls, one after the other, each taking the next slot.

One slot runs the pieces one by one. With more, the host fills one slot while the device works on
those before it. A slot is drained before it is filled again, so results arrive in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_executor.call import Call
from gpu_executor.plan import Piece
from gpu_executor.vulkan.slot import Slot

Step = tuple[Piece, int]
"""A piece and the work-groups for it."""


class Ring:
    """Slots in rotation. Feed it calls; it hands back those that are done, in order."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._depth = len(slots)
        self._started = self._finished = 0
        self._calls: list[tuple[Call, bool] | None] = [None] * self._depth
        """The call that each slot works for, and whether with its last piece."""

    def feed(self, call: Call, steps: Sequence[Step]) -> Iterator[Call]:
        """Start every piece of a call; yields earlier calls as their last pieces are done."""
        last = len(steps) - 1
        for number, (piece, groups) in enumerate(steps):
            at = self._started % self._depth
            if self._started - self._finished == self._depth:
                done = self._finish_oldest()
                if done is not None:
                    yield done
            self._slots[at].start(call, piece, groups)
            self._calls[at] = call, number == last
            self._started += 1
            if number == 0 and not call.results:
                call.make_outputs()  # while the device works

    def flush(self) -> Iterator[Call]:
        """Finish what is in flight."""
        while self._finished < self._started:
            done = self._finish_oldest()
            if done is not None:
                yield done

    def abandon(self) -> None:
        """Wait for what is in flight and forget it."""
        for slot in self._slots:
            slot.abandon()
        self._finished = self._started

    def _finish_oldest(self) -> Call | None:
        at = self._finished % self._depth
        entry = self._calls[at]
        assert entry is not None
        call, last = entry
        self._slots[at].finish(call)
        self._calls[at] = None
        self._finished += 1
        return call if last else None


def turn(slot: Slot, call: Call, steps: Sequence[Step]) -> None:
    """One call through one slot: the ring at its smallest, for the calls that must cost least."""
    try:
        for piece, groups in steps:
            slot.start(call, piece, groups)
            if not call.results:
                call.make_outputs()  # while the device works
            slot.finish(call)
    except BaseException:
        slot.abandon()
        raise
