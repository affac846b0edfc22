"""The ring: chunks of calls that pass through slots in rotation.

With one slot the chunks run one by one. With several slots they overlap:

    fill       in the caller's thread if the copy is small, otherwise in a copy thread
    submit     by the thread that filled the oldest chunk that is not submitted yet
    drain      like fill, when the device is done

Chunks are submitted and returned in the order in which they came. A slot is drained before it is
filled again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from gpu_executor.calls.call import Call
from gpu_executor.kernel import Grid
from gpu_executor.plan import ElementRange
from gpu_executor.plan.splitter import RangeGrid
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.slot import Slot


class ChunkInFlight:
    """A chunk that was started in a slot and is not drained yet."""

    __slots__ = ("call", "drained", "error", "filled", "last", "slot", "submitted")

    def __init__(self, slot: Slot, call: Call, *, last: bool) -> None:
        self.slot, self.call, self.last = slot, call, last
        """`last`: the last chunk of its call."""
        self.filled = True
        self.submitted: threading.Event | None = None
        """Set when a copy thread has submitted it, or failed to; None if the caller submits it."""
        self.drained: threading.Event | None = None
        """Set when a copy thread has drained it, or failed to; None if the caller drains it."""
        self.error: BaseException | None = None


class Ring:
    """Slots in rotation. `feed` it calls; it yields the completed ones in order."""

    def __init__(
        self,
        slots: Sequence[Slot],
        copy_threads: CopyThreads,
        make_outputs: Callable[[Call], None] = Call.make_outputs,
    ) -> None:
        """`make_outputs` makes the arrays of a call's results, while the device works."""
        self._slots, self._copy_threads = slots, copy_threads
        self._make_outputs = make_outputs
        self._depth = len(slots)
        self._started = 0
        self._in_flight: deque[ChunkInFlight] = deque()
        """All chunks in flight, oldest first."""
        self._unsubmitted: deque[ChunkInFlight] = deque()
        self._submitting = threading.Lock()
        self._lock = threading.Lock()
        self._busy = 0
        """How many copy threads work for this ring."""
        self._abandoned = False
        self._idle = threading.Event()
        """Set when the ring is abandoned and no copy thread works for it."""

    def feed(self, call: Call, chunks: Sequence[RangeGrid]) -> Iterator[Call]:
        """Start every chunk of a call; yields earlier calls as they complete."""
        last = len(chunks) - 1
        for number, (chunk, grid) in enumerate(chunks):
            if len(self._in_flight) == self._depth:
                yield from self.free_slot()
            slot = self._slots[self._started % self._depth]
            self._started += 1
            self._start(ChunkInFlight(slot, call, last=number == last), chunk, grid)
            if number == 0 and not call.results:
                self._make_outputs(call)

    def free_slot(self) -> Iterator[Call]:
        """Finish the oldest chunk if every slot is in use; yields its call if that is complete."""
        if len(self._in_flight) == self._depth:
            done = self._retire_oldest()
            if done is not None:
                yield done

    def flush(self) -> Iterator[Call]:
        """Finish all chunks in flight; yields the calls as they complete."""
        while self._in_flight:
            done = self._retire_oldest()
            if done is not None:
                yield done

    def abandon(self) -> None:
        """Wait for all chunks in flight and discard them. The ring cannot be used afterwards."""
        interrupt, busy = None, True
        while busy:
            try:
                self._wait_for_copy_threads()
                busy = False
            except KeyboardInterrupt as error:  # raised later: copy threads still use the slots
                interrupt = error
        for slot in self._slots:
            slot.abandon()
        if interrupt is not None:
            raise interrupt

    def _wait_for_copy_threads(self) -> None:
        """Let copy threads start no more work, and wait for what they have begun."""
        with self._lock:
            self._abandoned = True
            if not self._busy:
                self._idle.set()
        self._idle.wait()

    def _run_in_copy_thread(
        self, work: Callable[[ChunkInFlight], None], entry: ChunkInFlight
    ) -> None:
        """Run `work` in a copy thread, unless the ring is abandoned before it starts."""

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

    def _start(self, entry: ChunkInFlight, chunk: ElementRange, grid: Grid) -> None:
        slot = entry.slot
        slot.prepare(entry.call, chunk, grid)
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

    def _fill(self, entry: ChunkInFlight) -> None:
        """Fill a chunk and submit all filled chunks in order; runs in any thread."""
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
                    # Removed after submitting: a caller that finds it empty submits at once.
                    self._unsubmitted.popleft()
                    assert first.submitted is not None
                    first.submitted.set()

    def _retire_oldest(self) -> Call | None:
        """Finish the oldest chunk; return its call if that is now complete."""
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
        """Start to drain every chunk that the device is done with, so that the drains overlap."""
        for entry in self._in_flight:
            if entry.drained is None:
                submitted = entry.submitted is None or entry.submitted.is_set()
                if not (entry.slot.large_drain and submitted and entry.slot.is_done()):
                    return
                self._start_drain(entry)

    def _start_drain(self, entry: ChunkInFlight) -> None:
        """Wait for the device and drain the chunk, in a copy thread if the drain is large."""
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

    def _drain(self, entry: ChunkInFlight) -> None:
        """Drain a chunk; runs in a copy thread."""
        try:
            entry.slot.drain(entry.call, single_threaded=True)
        except BaseException as error:
            entry.error = error
        finally:
            assert entry.drained is not None
            entry.drained.set()


def run_in_slot(slot: Slot, call: Call, chunks: Sequence[RangeGrid]) -> None:
    """Run one call in one slot: a ring of one slot without its overhead, for small calls."""
    try:
        for chunk, grid in chunks:
            slot.start(call, chunk, grid)
            if not call.results:
                call.make_outputs()  # while the device works
            slot.finish(call)
    except BaseException:
        slot.abandon()
        raise
