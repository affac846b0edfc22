"""Transfers between NumPy arrays and device arrays.

`Upload` copies to the device, in the order of the command stream. A small array becomes part of the
commands, unless it is secret. A larger one goes through staging memory in segments: the device
copies one segment while the host fills the next, and the caller goes on before the device has
copied the last segments. Only an array in mapped memory is waited for.

`Readback` copies from the device, in the same order, and waits for the result.

`ConcurrentUpload` copies to new memory on a transfer queue, beside the command stream.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.kernel import ElementType, to_native
from gpu_executor.steps.bound_steps import MAX_UPDATE_BYTES, Copy
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.command_stream import CommandStream
from gpu_executor.vulkan.commands import COPIES, HOST, KERNELS, CommandPool, Recorder
from gpu_executor.vulkan.device_storage import VulkanStorage
from gpu_executor.vulkan.mapped_arrays import MappedArrays, is_imported
from gpu_executor.vulkan.memory import (
    Allocation,
    MemoryPool,
    Purpose,
    invalidate_block,
    mapped_view,
)
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.timeline import FETCH_SPIN_NS, Submission, Timeline

SEGMENT_BYTES = 32 << 20
SEGMENTS_IN_FLIGHT = 2
"""In each direction. All threads of the host share the copy of a segment, and they wait for each
other at its end: so segments are large, on any bus. 128 MiB to an NVIDIA H200 took 3.6 ms in
segments of 32 MiB, 4.0 ms in segments of 16 MiB and 7.8 ms in segments of 8 MiB; on another host
the way there and back took 8.0 ms, and 9.9 ms in segments of 4 MiB that one thread each fills and
submits."""
MAX_STAGING_BYTES = SEGMENTS_IN_FLIGHT * SEGMENT_BYTES
"""Staging memory of one transfer."""
BYTES = ElementType(np.dtype(np.uint8))


class StagingSegment:
    """Mapped memory for one segment of a transfer; it returns to the pool with this object."""

    __slots__ = ("__weakref__", "allocation")

    def __init__(
        self,
        memory: MemoryPool,
        stream: CommandStream,
        purpose: Purpose,
        nbytes: int,
        *,
        is_secret: bool,
    ) -> None:
        """With `is_secret` it is overwritten before."""
        self.allocation = stream.allocate(purpose, nbytes, "staging")
        if is_secret:
            memory.mark_secret(self.allocation)
        weakref.finalize(self, stream.release, self.allocation, 0).atexit = False

    def view(self, nbytes: int) -> Array:
        """The first bytes as a NumPy array."""
        return mapped_view(self.allocation, 0, nbytes, BYTES)


def flatten(array: Array) -> Array:
    """The bytes of an array."""
    return np.ascontiguousarray(array, to_native(array.dtype)).reshape(-1).view(np.uint8)


def split_segments(flat: Array) -> list[Array]:
    """An array of bytes, in segments of at most SEGMENT_BYTES."""
    return [flat[start : start + SEGMENT_BYTES] for start in range(0, len(flat), SEGMENT_BYTES)]


def find_mapped_copy(
    mapped: MappedArrays, array: Array, target: Allocation
) -> tuple[Copy, object] | None:
    """The copy of an array in mapped memory, and what it keeps alive; None for other memory."""
    found = mapped.find(array)
    imported = None if found is None else mapped.get_import(found.serial)
    if found is None or (imported is None and is_imported(found)):
        return None
    copy = Copy(found.buffer, found.offset, target.buffer, target.offset, array.nbytes)
    return copy, imported


class Upload:
    """Copies NumPy arrays to device memory. Safe from several threads."""

    def __init__(
        self, resources: Resources, mapped: MappedArrays, stream: CommandStream, readback: Readback
    ) -> None:
        self._memory, self._copy_threads = resources.memory, resources.copy_threads
        self._mapped, self._stream, self._readback = mapped, stream, readback
        self._segments: weakref.WeakSet[StagingSegment] = weakref.WeakSet()
        """Segments that the host fills or the device reads."""

    def copy(self, array: Array, storage: VulkanStorage, *, borrow: bool = False) -> None:
        """Copy an array to device memory.

        The caller may change the array as soon as this returns. With `borrow` the caller waits for
        the device first, if the array is in mapped memory.
        """
        if not array.nbytes:
            return
        target = storage.allocation
        if array.nbytes <= MAX_UPDATE_BYTES and not target.is_secret:
            data = np.ascontiguousarray(array, to_native(array.dtype)).tobytes()
            data += bytes(-len(data) % 4)  # every allocation has room for the padding
            self._stream.write(target.buffer, target.offset, data, storage)
            return
        mapped = find_mapped_copy(self._mapped, array, target)
        if mapped is not None:
            copy, imported = mapped
            if borrow:
                self._stream.copy(copy, storage, (array, imported))
            else:  # wait: the caller may change the array
                self._readback.copy(copy, (array, storage, imported))
            return
        offset = target.offset
        # One segment alone is filled in device memory: no copy of another segment overlaps with its
        # fill.
        is_one = array.nbytes <= SEGMENT_BYTES
        purpose = self._memory.input_purpose if is_one else Purpose.UPLOAD
        for segment in split_segments(flatten(array)):
            staging = self._allocate_segment(len(segment), purpose, is_secret=target.is_secret)
            self._copy_threads.copy([(staging.view(len(segment)), segment)])
            source = staging.allocation
            copy = Copy(source.buffer, source.offset, target.buffer, offset, len(segment))
            self._stream.copy(copy, storage, staging)
            offset += len(segment)

    def can_fill(self, array: Array) -> bool:
        """Whether the host writes an array to device memory by itself: where it can, and the array
        is not in mapped memory."""
        return self._memory.input_purpose is Purpose.INPUT and self._mapped.find(array) is None

    def fill(self, array: Array, target: Allocation) -> None:
        """Write such an array to memory for inputs that nothing submitted uses. Commands that are
        submitted later see it."""
        self._copy_threads.copy([(mapped_view(target, 0, array.nbytes, BYTES), flatten(array))])

    def _allocate_segment(
        self, nbytes: int, purpose: Purpose, *, is_secret: bool
    ) -> StagingSegment:
        """Another segment; with SEGMENTS_IN_FLIGHT in flight it waits until the device has read
        one."""
        while len(self._segments) >= SEGMENTS_IN_FLIGHT and self._stream.wait_for_oldest():
            pass
        segment = StagingSegment(self._memory, self._stream, purpose, nbytes, is_secret=is_secret)
        self._segments.add(segment)
        return segment


@dataclass(slots=True, eq=False)
class _CopyInFlight:
    """A command buffer for one copy at a time, and what the device may still use for it."""

    commands: Handle
    submission: Submission
    keep_alive: tuple[object, ...] = ()


class Readback:
    """Copies that the caller waits for, after everything submitted to the command stream before.

    Safe from several threads: one at a time copies, since all copies share one queue anyway.
    """

    def __init__(self, resources: Resources, stream: CommandStream) -> None:
        self._device, self._memory = resources.device, resources.memory
        self._copy_threads, self._timeline = resources.copy_threads, resources.compute
        self._stream = stream
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._copies: list[_CopyInFlight] = []
        self._closed = False

    def copy(self, copy: Copy, keep_alive: tuple[object, ...]) -> None:
        """Run a copy between device memory and mapped memory, and wait for it."""
        with self._lock:
            in_flight = self._acquire_copy(0)
            self._start(in_flight, copy, keep_alive)
            self._finish(in_flight)

    def fetch(self, source: Allocation, offset: int, target: Array, storage: object) -> None:
        """Copy device memory from byte `offset` of its buffer to an array of bytes, in segments."""
        started: deque[tuple[_CopyInFlight, StagingSegment, Array]] = deque()
        with self._lock:
            segments = split_segments(target)
            stagings = self._allocate_segments(segments, is_secret=source.is_secret)
            for number, segment in enumerate(segments):
                if number < len(stagings):
                    in_flight, staging = self._acquire_copy(number), stagings[number]
                else:
                    in_flight, staging, earlier = started.popleft()
                    self._drain(in_flight, staging, earlier)
                to = staging.allocation
                copy = Copy(source.buffer, offset, to.buffer, to.offset, len(segment))
                self._start(in_flight, copy, (staging, storage))
                started.append((in_flight, staging, segment))
                offset += len(segment)
            for in_flight, staging, segment in started:
                self._drain(in_flight, staging, segment)

    def release_completed(self) -> None:
        """Release what completed but interrupted copies keep alive.

        Does nothing if another thread is copying.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            for each in self._copies:
                if each.keep_alive and self._timeline.is_done(each.submission):
                    each.keep_alive = ()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for the device and free everything; nothing can be copied afterwards."""
        with self._lock:
            self._closed = True
            interrupt = None
            for each in self._copies:
                interrupt = self._timeline.wait_uninterrupted(each.submission) or interrupt
            self._copies.clear()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _acquire_copy(self, number: int) -> _CopyInFlight:
        """A command buffer that the device does not use.

        If an interrupt ended the wait for its last copy, the wait is made up for here.
        """
        if self._closed:
            raise ClosedError("the backend that owns the device array is closed")
        if self._pool is None:
            self._pool = CommandPool(self._device, self._timeline.family)
            self._opened.callback(self._pool.close)
        if number == len(self._copies):
            commands = self._pool.allocate()
            self._copies.append(_CopyInFlight(commands, self._timeline.prepare(commands)))
        in_flight = self._copies[number]
        if in_flight.keep_alive:
            self._finish(in_flight)
        return in_flight

    def _start(self, in_flight: _CopyInFlight, copy: Copy, keep_alive: tuple[object, ...]) -> None:
        with Recorder(in_flight.commands) as recorder:
            recorder.copy([copy])
            recorder.barrier_all()
            recorder.barrier(COPIES | KERNELS, HOST)
        in_flight.keep_alive = keep_alive
        self._timeline.submit(in_flight.submission)

    def _finish(self, in_flight: _CopyInFlight) -> None:
        self._timeline.wait(in_flight.submission, spin_ns=FETCH_SPIN_NS)
        in_flight.keep_alive = ()

    def _drain(self, in_flight: _CopyInFlight, staging: StagingSegment, segment: Array) -> None:
        """Wait for a copy and move its segment from staging memory to the caller's array."""
        self._finish(in_flight)
        block = staging.allocation.block
        if not block.coherent:
            invalidate_block(self._device, block)
        self._copy_threads.copy([(segment, staging.view(len(segment)))])

    def _allocate_segments(
        self, segments: Sequence[Array], *, is_secret: bool
    ) -> list[StagingSegment]:
        """Staging memory for SEGMENTS_IN_FLIGHT segments; for fewer if memory is short."""
        made: list[StagingSegment] = []
        for segment in segments[:SEGMENTS_IN_FLIGHT]:
            try:
                staging = StagingSegment(
                    self._memory,
                    self._stream,
                    Purpose.READBACK,
                    len(segment),
                    is_secret=is_secret,
                )
                made.append(staging)
            except OutOfMemoryError:
                if not made:
                    raise
                break
        return made


@dataclass(slots=True, eq=False)
class _UploadInFlight:
    """A command buffer of a transfer queue, and what it copies from: staging memory, or the import
    of a mapped array."""

    commands: Handle
    submission: Submission
    staging: StagingSegment | None = None
    mapped: tuple[Copy, object] | None = None


class ConcurrentUpload:
    """Copies NumPy arrays to device memory on a transfer queue, while the compute queue computes.

    The target is memory that nothing submitted uses. The caller waits for the copy. Safe from
    several threads: one at a time copies.
    """

    def __init__(
        self, resources: Resources, mapped: MappedArrays, stream: CommandStream, queue: Timeline
    ) -> None:
        self._memory, self._mapped, self._stream = resources.memory, mapped, stream
        self._copy_threads = resources.copy_threads
        self._device, self._compute, self._queue = resources.device, resources.compute, queue
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._copies: list[_UploadInFlight] = []
        self._arrival: Submission | None = None

    def copy(self, array: Array, target: Allocation) -> None:
        """Copy an array; commands that are submitted to the compute queue later see it."""
        mapped = find_mapped_copy(self._mapped, array, target)
        with self._lock:
            arrival = self._arrival or self._open()
            try:
                if mapped is None:
                    self._copy_segments(array, target)
                else:
                    self._copies[0].mapped = mapped
                    self._start(self._copies[0], mapped[0])
            finally:
                self._finish()
            # The transfer queue is done. This wait of the compute queue makes the bytes visible.
            self._compute.submit(arrival)

    def close(self) -> None:
        """Wait for the compute queue and free everything; nothing can be copied afterwards."""
        with self._lock:
            interrupt = None
            if self._arrival is not None:
                interrupt = self._compute.wait_uninterrupted(self._arrival)
            self._copies.clear()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _open(self) -> Submission:
        pool = CommandPool(self._device, self._queue.family)
        self._opened.callback(pool.close)
        made = [pool.allocate() for _ in range(SEGMENTS_IN_FLIGHT)]
        self._copies = [_UploadInFlight(each, self._queue.prepare(each)) for each in made]
        waiting = CommandPool(self._device, self._compute.family)
        self._opened.callback(waiting.close)
        nothing = waiting.allocate()
        with Recorder(nothing, simultaneous_use=True):
            pass
        after = [(self._queue, each.submission) for each in self._copies]
        stage = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        self._arrival = self._compute.prepare(nothing, after, stage)
        return self._arrival

    def _copy_segments(self, array: Array, target: Allocation) -> None:
        offset = target.offset
        for number, segment in enumerate(split_segments(flatten(array))):
            each = self._copies[number % SEGMENTS_IN_FLIGHT]
            if each.staging is None:
                each.staging = StagingSegment(
                    self._memory,
                    self._stream,
                    Purpose.UPLOAD,
                    len(segment),
                    is_secret=target.is_secret,
                )
            else:
                self._queue.wait(each.submission)
            self._copy_threads.copy([(each.staging.view(len(segment)), segment)])
            source = each.staging.allocation
            copy = Copy(source.buffer, source.offset, target.buffer, offset, len(segment))
            self._start(each, copy)
            offset += len(segment)

    def _start(self, each: _UploadInFlight, copy: Copy) -> None:
        with Recorder(each.commands) as recorder:
            recorder.copy([copy])
        self._queue.submit(each.submission)

    def _finish(self) -> None:
        """Wait for all copies, also after an interrupt: they use their sources and the target."""
        interrupt = None
        for each in self._copies:
            if each.staging is not None or each.mapped is not None:
                interrupt = self._queue.wait_uninterrupted(each.submission) or interrupt
                each.staging = each.mapped = None
        if interrupt is not None:
            raise interrupt
