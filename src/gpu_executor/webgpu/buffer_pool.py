"""The buffer pool: idle buffers by size class and usage, and the limit on all buffers together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from gpu_executor.errors import OutOfMemoryError
from gpu_executor.plan import round_up_to_class
from gpu_executor.webgpu.wgpu_stats import PoolStats

SMALLEST_UNITS = 64
UNIT = 4
"""Buffer sizes are multiples of this many bytes."""

BufferDescriptor = tuple[int, int]
"""The size in bytes and the usage flags of a buffer."""


class BufferPool:
    """Lends buffers by size class and usage. Thread-safe.

    All buffers together, lent and idle, have at most `limit` bytes. The least recently used idle
    buffer is destroyed first.
    """

    def __init__(self, device: Any, *, largest: int, limit: int | None = None) -> None:
        """`largest` is the size of the largest buffer that the device can create, in bytes."""
        self._device, self._largest = device, largest
        self.limit = limit
        self.reclaim: Callable[[], bool] = lambda: False
        """Called when the memory limit is reached: releases a cached buffer set to the pool, and
        returns whether there was one."""
        self._idle: OrderedDict[Any, BufferDescriptor] = OrderedDict()
        """Idle buffers, the least recently used first."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._changes = 0
        """Incremented at every change that may let a waiting thread continue."""
        self._waiting: list[object] = []
        """Tickets of the waiting threads, in order of arrival: without an order, small requests
        could overtake a large one forever."""
        self._hits = self._misses = self.bytes_idle = self._bytes_in_use = 0

    def round_up(self, nbytes: int) -> int:
        """Return the size of the buffer that a request for `nbytes` gets."""
        size = round_up_to_class(max(-(-nbytes // UNIT), SMALLEST_UNITS)) * UNIT
        return max(nbytes, min(size, self._largest))

    def acquire(self, wanted: Sequence[BufferDescriptor], *, wait: bool = True) -> list[Any]:
        """Lend one buffer for each wanted size and usage: all of them or none.

        With `wait`, wait until other threads release buffers if the memory limit is reached. A
        thread that holds buffers must not wait: two such threads would wait for each other.
        """
        descriptors = [(self.round_up(nbytes), usage) for nbytes, usage in wanted]
        buffers: list[Any] = [None] * len(descriptors)
        reserved: list[int] = []  # filled inside `_reserve`: Ctrl-C may interrupt its return
        try:
            self._reserve(sum(size for size, _ in descriptors), reserved, wait=wait)
            self._take_idle(descriptors, buffers)
            for index, descriptor in enumerate(descriptors):
                if buffers[index] is None:
                    buffers[index] = self._create(*descriptor)
        except BaseException:
            if reserved:
                self._undo(buffers, descriptors)
            raise
        return buffers

    def release(self, buffer: Any) -> None:
        """Take back a lent buffer and make it idle. No submission may still use it."""
        with self._lock:
            self._bytes_in_use -= buffer.size
            self._idle[buffer] = buffer.size, buffer.usage
            self.bytes_idle += buffer.size
            self._destroy_beyond_limit()
            self._notify()

    def destroy(self, buffer: Any) -> None:
        """Destroy a lent buffer."""
        buffer.destroy()
        self._unreserve(buffer.size)

    def offer(self) -> None:
        """Offer a buffer set that was just put back into a cache to the threads that wait for
        memory.
        """
        # Reclaim it now: otherwise this thread could take it again before the waiting threads wake
        # up.
        while self._waiting and self.reclaim():
            pass
        if self.limit is not None:
            with self._lock:
                self._notify()

    def clear(self) -> None:
        """Destroy every idle buffer."""
        self.destroy_idle(0)

    def destroy_idle(self, max_bytes: int) -> None:
        """Destroy idle buffers until they have at most `max_bytes`."""
        with self._lock:
            self._destroy_idle(max_bytes)

    def stats(self) -> PoolStats:
        """Return the pool's counters."""
        with self._lock:
            return PoolStats(self._hits, self._misses, self.bytes_idle, self._bytes_in_use)

    def _reserve(self, nbytes: int, reserved: list[int], *, wait: bool) -> None:
        """Count bytes as used as soon as the limit allows it, and note them in `reserved`."""
        ticket = object()
        if self.limit is not None and nbytes > self.limit:
            raise self._make_limit_error(nbytes)
        try:
            while True:
                seen = self._changes  # read before the attempt, so that later changes are noticed
                if self._try_reserve(nbytes, reserved, ticket):
                    return
                if self._is_first(ticket) and self.reclaim():
                    continue
                with self._lock:
                    if self._changes != seen:
                        continue
                    if not wait:
                        raise self._make_limit_error(nbytes)
                    if ticket not in self._waiting:
                        self._waiting.append(ticket)
                    self._changed.wait()
        finally:
            if ticket in self._waiting:
                with self._lock:
                    self._waiting.remove(ticket)
                    self._notify()

    def _try_reserve(self, nbytes: int, reserved: list[int], ticket: object) -> bool:
        with self._lock:
            if self.limit is not None and not (
                self._is_first(ticket) and self._bytes_in_use + nbytes <= self.limit
            ):
                return False
            self._bytes_in_use += nbytes
            reserved[:] = [nbytes]
            return True

    def _is_first(self, ticket: object) -> bool:
        return self._waiting[:1] in ([], [ticket])

    def _make_limit_error(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{nbytes:,} bytes of buffers exceed GPU_MEMORY_LIMIT: {self._bytes_in_use:,} "
            f"of {self.limit:,} bytes are in use"
        )

    def _unreserve(self, nbytes: int) -> None:
        with self._lock:
            self._bytes_in_use -= nbytes
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _undo(self, buffers: Sequence[Any], descriptors: Sequence[BufferDescriptor]) -> None:
        """Release the buffers that were found or created, and the bytes reserved for the others."""
        for buffer, (size, _) in zip(buffers, descriptors, strict=True):
            if buffer is None:
                self._unreserve(size)
            else:
                self.release(buffer)

    def _take_idle(self, descriptors: Sequence[BufferDescriptor], buffers: list[Any]) -> None:
        """Put idle buffers that match into `buffers`, and destroy others to stay within the
        limit.
        """
        with self._lock:
            for index, descriptor in enumerate(descriptors):
                buffers[index] = self._take(descriptor)
            self._destroy_beyond_limit()

    def _take(self, descriptor: BufferDescriptor) -> Any:
        for buffer, its_descriptor in reversed(self._idle.items()):
            if its_descriptor == descriptor:
                del self._idle[buffer]
                self.bytes_idle -= descriptor[0]
                self._hits += 1
                return buffer
        self._misses += 1
        return None

    def _create(self, size: int, usage: int) -> Any:
        try:
            return self._device.create_buffer(size=size, usage=usage)
        except Exception as error:
            raise OutOfMemoryError(
                f"WebGPU could not create a buffer of {size:,} bytes: {error}"
            ) from error

    def _destroy_beyond_limit(self) -> None:
        """Destroy idle buffers beyond the memory limit."""
        if self.limit is not None:
            self._destroy_idle(self.limit - self._bytes_in_use)

    def _destroy_idle(self, max_bytes: int) -> None:
        while self.bytes_idle > max_bytes:
            oldest, (size, _) = self._idle.popitem(last=False)
            self.bytes_idle -= size
            oldest.destroy()
