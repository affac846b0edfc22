"""The ring: pieces of calls, one after the other, each taking the next slot.

One slot runs the pieces one by one. With more, pieces pass through it side by side:

    fill       the caller's thread where there is little to copy, else one of the crew's
    submit     whoever filled the oldest piece that is not submitted yet
    drain      like fill, when the device is done

Pieces are submitted and handed back in the order in which they came. A slot is drained before it is
filled again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from gpu_executor.call import Call
from gpu_executor.plan import Piece
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.slot import Slot

Step = tuple[Piece, int]
"""A piece and the work-groups for it."""


class PieceInFlight:
    """A piece on its way through a slot."""

    __slots__ = ("call", "drained", "error", "filled", "last", "slot", "submitted")

    def __init__(self, slot: Slot, call: Call, *, last: bool) -> None:
        self.slot, self.call, self.last = slot, call, last
        """`last` is the piece that ends its call."""
        self.filled = True
        self.submitted: threading.Event | None = None
        """Set when another thread has submitted it, or failed to; None where this one has."""
        self.drained: threading.Event | None = None
        """Set when another thread has drained it, or failed to; None where none does."""
        self.error: BaseException | None = None


class Ring:
    """Slots in rotation. Feed it calls; it hands back those that are done, in order."""

    def __init__(self, slots: Sequence[Slot], copy_threads: CopyThreads) -> None:
        self._slots, self._copy_threads = slots, copy_threads
        self._depth = len(slots)
        self._started = 0
        self._in_flight: deque[PieceInFlight] = deque()
        """All in flight, the oldest first."""
        self._unsubmitted: deque[PieceInFlight] = deque()
        self._submitting = threading.Lock()
        self._lock = threading.Lock()
        self._busy = 0
        """How many of the crew are at work for this ring."""
        self._abandoned = False
        self._idle = threading.Event()
        """Set when it is abandoned and nobody is at work for it any more."""

    def feed(self, call: Call, steps: Sequence[Step]) -> Iterator[Call]:
        """Start every piece of a call; yields earlier calls as their last pieces are done."""
        last = len(steps) - 1
        for number, (piece, groups) in enumerate(steps):
            if len(self._in_flight) == self._depth:
                done = self._retire_oldest()
                if done is not None:
                    yield done
            slot = self._slots[self._started % self._depth]
            self._started += 1
            self._start(PieceInFlight(slot, call, last=number == last), piece, groups)
            if number == 0 and not call.results:
                call.make_outputs()  # while the device works

    def flush(self) -> Iterator[Call]:
        """Finish what is in flight."""
        while self._in_flight:
            done = self._retire_oldest()
            if done is not None:
                yield done

    def abandon(self) -> None:
        """Wait for what is in flight and forget it. The ring is of no use afterwards."""
        with self._lock:
            self._abandoned = True
            if not self._busy:
                self._idle.set()
        interrupt = None
        while not self._idle.is_set():
            try:
                self._idle.wait()
            except KeyboardInterrupt as error:  # not before: others still write to the slots
                interrupt = error
        for slot in self._slots:
            slot.abandon()
        if interrupt is not None:
            raise interrupt

    def _run_in_copy_thread(
        self, work: Callable[[PieceInFlight], None], entry: PieceInFlight
    ) -> None:
        """Let the crew do it, unless the ring is abandoned before they come to it."""

        def task() -> None:
            with self._lock:
                if self._abandoned:
                    return
                self._busy += 1
            try:
                work(entry)
            finally:
                with self._lock:
                    self._busy -= 1
                    if self._abandoned and not self._busy:
                        self._idle.set()

        self._copy_threads.hand_over(task)

    def _start(self, entry: PieceInFlight, piece: Piece, groups: int) -> None:
        slot = entry.slot
        slot.prepare(entry.call, piece, groups)
        self._in_flight.append(entry)
        if not self._unsubmitted and (self._depth == 1 or not slot.large_fill):
            slot.fill(entry.call)
            slot.submit()
            return
        entry.submitted, entry.filled = threading.Event(), False
        self._unsubmitted.append(entry)
        if slot.large_fill:
            self._run_in_copy_thread(self._fill, entry)
        else:
            self._fill(entry)

    def _fill(self, entry: PieceInFlight) -> None:
        """In any thread."""
        try:
            entry.slot.fill(entry.call, single_threaded=True)
        except BaseException as error:
            entry.error = error
        entry.filled = True
        with self._submitting:
            while self._unsubmitted and self._unsubmitted[0].filled:
                first = self._unsubmitted[0]
                try:
                    if first.error is None:
                        first.slot.submit()
                except BaseException as error:
                    first.error = error
                finally:
                    # Not before: who finds none here submits at once.
                    self._unsubmitted.popleft()
                    assert first.submitted is not None
                    first.submitted.set()

    def _retire_oldest(self) -> Call | None:
        """Its call, where that is done with it."""
        self._drain_completed()
        oldest = self._in_flight[0]
        if oldest.drained is None:
            self._start_drain(oldest)
        if oldest.drained is not None:
            oldest.drained.wait()
        if oldest.error is not None:
            raise oldest.error
        self._in_flight.popleft()
        return oldest.call if oldest.last else None

    def _drain_completed(self) -> None:
        """Let others drain what the device is done with, so that they do so side by side."""
        for entry in self._in_flight:
            if entry.drained is None:
                submitted = entry.submitted is None or entry.submitted.is_set()
                if not (entry.slot.large_drain and submitted and entry.slot.is_done()):
                    return
                self._start_drain(entry)

    def _start_drain(self, entry: PieceInFlight) -> None:
        if entry.submitted is not None:
            entry.submitted.wait()
        if entry.error is not None:
            return
        spin = not self._unsubmitted
        if self._depth == 1 or not entry.slot.large_drain:
            entry.slot.finish(entry.call, spin=spin)
            return
        entry.slot.wait(spin=spin)
        entry.drained = threading.Event()
        self._run_in_copy_thread(self._drain, entry)

    def _drain(self, entry: PieceInFlight) -> None:
        """In another thread."""
        try:
            entry.slot.drain(entry.call, single_threaded=True)
        except BaseException as error:
            entry.error = error
        finally:
            assert entry.drained is not None
            entry.drained.set()


def run_in_slot(slot: Slot, call: Call, steps: Sequence[Step]) -> None:
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
