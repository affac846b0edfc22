"""The buffer pool: GPU buffers that nobody uses, kept by size class and usage."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import OutOfMemoryError
from gpu_executor.plan import round_up_to_class

POOL_BYTES = 512 << 20
SMALLEST_UNITS = 64
UNIT = 4


@dataclass(frozen=True, slots=True)
class PoolStats:
    """A hit was served with a buffer that was there."""

    hits: int
    misses: int
    bytes_idle: int

    @property
    def hit_rate(self) -> float:
        """Of all that were asked for; 0 before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class BufferPool:
    """Buffers by size class and usage, the longest unused given up first. Safe from many threads.

    Whoever gives a buffer back says with it that no submission uses it any more.
    """

    def __init__(self, device: Any, *, largest: int, most_bytes: int = POOL_BYTES) -> None:
        """`largest` is what one buffer can have."""
        self._device, self._largest, self._most_bytes = device, largest, most_bytes
        self._idle: OrderedDict[Any, tuple[int, int]] = OrderedDict()
        """Buffers with their class, the longest unused first."""
        self._lock = threading.Lock()
        self._hits = self._misses = self._bytes_idle = 0

    def acquire(self, nbytes: int, usage: int) -> Any:
        """A buffer of at least that many bytes for that usage."""
        size = round_up_to_class(max(-(-nbytes // UNIT), SMALLEST_UNITS)) * UNIT
        size = max(nbytes, min(size, self._largest))
        with self._lock:
            for buffer, kind in reversed(self._idle.items()):
                if kind == (size, usage):
                    del self._idle[buffer]
                    self._bytes_idle -= size
                    self._hits += 1
                    return buffer
            self._misses += 1
        try:
            return self._device.create_buffer(size=size, usage=usage)
        except Exception as error:
            raise OutOfMemoryError(
                f"{size:,} bytes could not be had from WebGPU: {error}"
            ) from error

    def release(self, buffer: Any) -> None:
        with self._lock:
            self._idle[buffer] = buffer.size, buffer.usage
            self._bytes_idle += buffer.size
            while self._bytes_idle > self._most_bytes:
                oldest, (size, _) = self._idle.popitem(last=False)
                self._bytes_idle -= size
                oldest.destroy()

    def clear(self) -> None:
        """Destroy every idle buffer."""
        with self._lock:
            while self._idle:
                self._idle.popitem()[0].destroy()
            self._bytes_idle = 0

    def stats(self) -> PoolStats:
        with self._lock:
            return PoolStats(self._hits, self._misses, self._bytes_idle)
