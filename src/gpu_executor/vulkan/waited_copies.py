"""Copies that somebody waits for, behind all that the chain was given before."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.call import Array
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.vulkan import staging
from gpu_executor.vulkan.arrays import make_visible
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.chain import Chain
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.staging import Staging, cut_in_parts
from gpu_executor.vulkan.timeline import Submission


@dataclass(slots=True, eq=False)
class _Turn:
    """Commands for one copy at a time, and what the device may still use for it."""

    commands: Handle
    submission: Submission
    holds: tuple[object, ...] = ()


class WaitedCopies:
    """One thread at a time copies, others wait for it: they are on one queue anyway."""

    def __init__(self, resources: Resources, chain: Chain) -> None:
        self._device, self._memory = resources.device, resources.memory
        self._crew, self._timeline = resources.crew, resources.compute
        self._chain = chain
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._turns: list[_Turn] = []
        self._closed = False

    def run(self, copy: Copy, holds: tuple[object, ...]) -> None:
        """A copy between memory of the device and mapped memory, both held until it is done."""
        with self._lock:
            turn = self._turn(0)
            self._start(turn, copy, holds)
            self._finish(turn)

    def fetch(self, source: Allocation, offset: int, target: Array, storage: object) -> None:
        """Bytes of a storage on the card to those of an array, through staging memory."""
        started: deque[tuple[_Turn, Staging, Array]] = deque()
        with self._lock:
            parts = cut_in_parts(target)
            room = self._stagings(parts)
            for number, part in enumerate(parts):
                if number < len(room):
                    turn, through = self._turn(number), room[number]
                else:
                    turn, through, earlier = started.popleft()
                    self._drain(turn, through, earlier)
                to = through.allocation
                copy = Copy(source.buffer, offset, to.buffer, to.offset, len(part))
                self._start(turn, copy, (through, storage))
                started.append((turn, through, part))
                offset += len(part)
            for turn, through, part in started:
                self._drain(turn, through, part)

    def let_go_of_done(self) -> None:
        """Free what interrupted copies hold that are done, unless another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for turn in self._turns:
                if turn.holds and self._timeline.is_done(turn.submission):
                    turn.holds = ()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait and free; nothing can be copied afterwards."""
        with self._lock:
            self._closed = True
            interrupt = None
            for turn in self._turns:
                interrupt = self._timeline.wait_out(turn.submission) or interrupt
            self._turns.clear()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _turn(self, number: int) -> _Turn:
        """Commands that the device does not use, also where an interrupt left them to it."""
        if self._closed:
            raise ClosedError("the backend that the array lies on is closed")
        if self._pool is None:
            self._pool = CommandPool(self._device, self._timeline.family)
            self._opened.callback(self._pool.close)
        if number == len(self._turns):
            commands = self._pool.allocate()
            self._turns.append(_Turn(commands, self._timeline.prepare(commands)))
        turn = self._turns[number]
        if turn.holds:
            self._finish(turn)
        return turn

    def _start(self, turn: _Turn, copy: Copy, holds: tuple[object, ...]) -> None:
        with Recorder(turn.commands) as recorder:
            recorder.copy([copy])
            recorder.all_before_all()
            recorder.all_before_host()
        turn.holds = holds
        self._timeline.submit(turn.submission)

    def _finish(self, turn: _Turn) -> None:
        self._timeline.wait(turn.submission)
        turn.holds = ()

    def _drain(self, turn: _Turn, through: Staging, part: Array) -> None:
        self._finish(turn)
        block = through.allocation.block
        if not block.coherent:
            make_visible(self._device, block)
        self._crew.copy([(part, through.view(len(part)))])

    def _stagings(self, parts: Sequence[Array]) -> list[Staging]:
        """Memory for as many parts as are under way at once, or as there is memory for."""
        made: list[Staging] = []
        for part in parts[: staging.PARTS]:
            try:
                made.append(Staging(self._memory, self._chain, Purpose.READBACK, len(part)))
            except OutOfMemoryError:
                if not made:
                    raise
                break
        return made
