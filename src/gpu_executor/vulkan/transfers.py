"""Staging: mapped memory that data passes through on its way to the card or back, part by part.

While the device copies one part the host copies the next.

From NumPy to the card, in the chain's order; only data that lies in mapped memory is waited for.

Little data becomes part of the commands. More goes through staging memory, part by part: the device
copies one while the host fills the next, and the last ones after the caller has gone on.

Copies that somebody waits for, behind all that the chain was given before.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.call import Array
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.kernel import ElementType, to_native
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.command_stream import CommandStream
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.mapped_arrays import MappedArrays
from gpu_executor.vulkan.memory import (
    Allocation,
    MemoryPool,
    Purpose,
    invalidate_block,
    mapped_view,
)
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.timeline import Submission

PART_BYTES = 32 << 20
PARTS = 2
"""In flight at once in each direction. 128 MiB to an NVIDIA H200 took 5.5 ms so, 6.7 ms in parts of
16 MiB, 10.9 in parts of 8: eight threads share a large part, one or two a small one."""
BYTES = ElementType(np.dtype(np.uint8))


class Staging:
    """Memory for one part; it goes back to the pool when nobody holds this any more."""

    __slots__ = ("__weakref__", "allocation")

    def __init__(
        self, memory: MemoryPool, stream: CommandStream, purpose: Purpose, nbytes: int
    ) -> None:
        self.allocation = stream.allocate(purpose, nbytes)
        weakref.finalize(self, memory.release_when_possible, self.allocation).atexit = False

    def view(self, nbytes: int) -> Array:
        """Its first bytes."""
        return mapped_view(self.allocation, 0, nbytes, BYTES)


def cut_in_parts(flat: Array) -> list[Array]:
    """Bytes, part by part."""
    return [flat[start : start + PART_BYTES] for start in range(0, len(flat), PART_BYTES)]


IN_COMMANDS = 65_536
"""vkCmdUpdateBuffer takes no more bytes, and multiples of four (Vulkan 1.3, 19.5)."""


class Upload:
    """Safe from several threads."""

    def __init__(
        self, resources: Resources, mapped: MappedArrays, stream: CommandStream, readback: Readback
    ) -> None:
        self._memory, self._copy_threads = resources.memory, resources.copy_threads
        self._mapped, self._stream, self._readback = mapped, stream, readback
        self._parts: weakref.WeakSet[Staging] = weakref.WeakSet()
        """Filled now, or read by the device."""

    def copy(self, array: Array, target: Allocation, storage: object) -> None:
        """An array's contents to memory on the card, which lives as long as its storage."""
        if not array.nbytes:
            return
        if array.nbytes <= IN_COMMANDS:
            data = np.ascontiguousarray(array, to_native(array.dtype)).tobytes()
            data += bytes(-len(data) % 4)  # allocations end later than that
            self._stream.write(target.buffer, target.offset, data, (storage,))
            return
        place = self._mapped.find(array)
        if place is not None:
            copy = Copy(place.buffer, place.offset, target.buffer, target.offset, array.nbytes)
            self._readback.run(copy, (array, storage))  # its owner may write to it afterwards
            return
        flat = np.ascontiguousarray(array, to_native(array.dtype)).reshape(-1).view(np.uint8)
        offset = target.offset
        for part in cut_in_parts(flat):
            through = self._part(len(part))
            self._copy_threads.copy([(through.view(len(part)), part)])
            source = through.allocation
            copy = Copy(source.buffer, source.offset, target.buffer, offset, len(part))
            self._stream.copy(copy, (through, storage))
            offset += len(part)

    def _part(self, nbytes: int) -> Staging:
        """Another part; where there are many, the device is done with one first."""
        while len(self._parts) >= PARTS and self._stream.wait_for_oldest():
            pass
        part = Staging(self._memory, self._stream, Purpose.UPLOAD, nbytes)
        self._parts.add(part)
        return part


@dataclass(slots=True, eq=False)
class _CopyInFlight:
    """Commands for one copy at a time, and what the device may still use for it."""

    commands: Handle
    submission: Submission
    holds: tuple[object, ...] = ()


class Readback:
    """One thread at a time copies, others wait for it: they are on one queue anyway."""

    def __init__(self, resources: Resources, stream: CommandStream) -> None:
        self._device, self._memory = resources.device, resources.memory
        self._copy_threads, self._timeline = resources.copy_threads, resources.compute
        self._stream = stream
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._turns: list[_CopyInFlight] = []
        self._closed = False

    def run(self, copy: Copy, holds: tuple[object, ...]) -> None:
        """A copy between memory of the device and mapped memory, both held until it is done."""
        with self._lock:
            turn = self._turn(0)
            self._start(turn, copy, holds)
            self._finish(turn)

    def fetch(self, source: Allocation, offset: int, target: Array, storage: object) -> None:
        """Bytes of a storage on the card to those of an array, through staging memory."""
        started: deque[tuple[_CopyInFlight, Staging, Array]] = deque()
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
                interrupt = self._timeline.wait_uninterrupted(turn.submission) or interrupt
            self._turns.clear()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _turn(self, number: int) -> _CopyInFlight:
        """Commands that the device does not use, also where an interrupt left them to it."""
        if self._closed:
            raise ClosedError("the backend that the array lies on is closed")
        if self._pool is None:
            self._pool = CommandPool(self._device, self._timeline.family)
            self._opened.callback(self._pool.close)
        if number == len(self._turns):
            commands = self._pool.allocate()
            self._turns.append(_CopyInFlight(commands, self._timeline.prepare(commands)))
        turn = self._turns[number]
        if turn.holds:
            self._finish(turn)
        return turn

    def _start(self, turn: _CopyInFlight, copy: Copy, holds: tuple[object, ...]) -> None:
        with Recorder(turn.commands) as recorder:
            recorder.copy([copy])
            recorder.barrier_all()
            recorder.barrier_all_to_host()
        turn.holds = holds
        self._timeline.submit(turn.submission)

    def _finish(self, turn: _CopyInFlight) -> None:
        self._timeline.wait(turn.submission)
        turn.holds = ()

    def _drain(self, turn: _CopyInFlight, through: Staging, part: Array) -> None:
        self._finish(turn)
        block = through.allocation.block
        if not block.coherent:
            invalidate_block(self._device, block)
        self._copy_threads.copy([(part, through.view(len(part)))])

    def _stagings(self, parts: Sequence[Array]) -> list[Staging]:
        """Memory for as many parts as are under way at once, or as there is memory for."""
        made: list[Staging] = []
        for part in parts[:PARTS]:
            try:
                made.append(Staging(self._memory, self._stream, Purpose.READBACK, len(part)))
            except OutOfMemoryError:
                if not made:
                    raise
                break
        return made
