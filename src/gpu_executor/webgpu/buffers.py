"""The buffer pool: how much all buffers have, and those that nobody uses by class and usage."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import OutOfMemoryError
from gpu_executor.plan import round_up_to_class

POOL_BYTES = 512 << 20
SMALLEST_UNITS = 64
UNIT = 4

Wanted = tuple[int, int]
"""Bytes and usage of a buffer."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """A hit was served with a buffer that was there."""

    hits: int
    misses: int
    bytes_idle: int
    bytes_in_use: int
    """Of buffers that are not in the pool: those of tasks, and of sets that are kept for them."""

    @property
    def hit_rate(self) -> float:
        """Of all that were asked for; 0 before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class BufferPool:
    """Buffers by size class and usage, the longest unused given up first. Safe from many threads.

    Whoever gives a buffer back says with it that no submission uses it any more. All buffers
    together have no more than `limit` bytes.
    """

    def __init__(
        self,
        device: Any,
        *,
        largest: int,
        most_bytes: int = POOL_BYTES,
        limit: int | None = None,
    ) -> None:
        """`largest` is what one buffer can have, `most_bytes` what may lie idle."""
        self._device, self._largest, self._most_bytes = device, largest, most_bytes
        self.limit = limit
        self.reclaim: Callable[[], bool] = lambda: False
        """Asked, where there is no room, to give back something that is kept for later; says
        whether it had anything."""
        self._idle: OrderedDict[Any, Wanted] = OrderedDict()
        """Buffers with their class, the longest unused first."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._changes = 0
        """How often there was something new for who waits."""
        self._waiting: list[object] = []
        """Who waits, in the order they came: else small calls would pass a large one for ever."""
        self._hits = self._misses = self._bytes_idle = self._bytes_in_use = 0

    def size_of(self, nbytes: int) -> int:
        """The size of the buffer that is had for so many bytes."""
        size = round_up_to_class(max(-(-nbytes // UNIT), SMALLEST_UNITS)) * UNIT
        return max(nbytes, min(size, self._largest))

    def acquire(self, wanted: Sequence[Wanted], *, wait: bool = True) -> list[Any]:
        """Buffers of at least those many bytes, for those usages: all of them or none.

        With `wait` it waits for what others use, if there is no room but for that. Whoever has
        buffers already must not: two of them would wait for each other.
        """
        kinds = [(self.size_of(nbytes), usage) for nbytes, usage in wanted]
        buffers: list[Any] = [None] * len(kinds)
        reserved: list[int] = []  # written where it is counted: Ctrl-C may come behind that
        try:
            self._reserve(sum(size for size, _ in kinds), reserved, wait=wait)
            self._find(kinds, buffers)
            for index, kind in enumerate(kinds):
                if buffers[index] is None:
                    buffers[index] = self._make(*kind)
        except BaseException:
            if reserved:
                self._take_back(buffers, kinds)
            raise
        return buffers

    def release(self, buffer: Any) -> None:
        """Nobody uses it any more; somebody may soon."""
        with self._lock:
            self._bytes_in_use -= buffer.size
            self._idle[buffer] = buffer.size, buffer.usage
            self._bytes_idle += buffer.size
            self._drop_idle(self._most_bytes)
            self._tell()

    def destroy(self, buffer: Any) -> None:
        """Nobody is to use it again."""
        buffer.destroy()
        self._unreserve(buffer.size)

    def offer(self) -> None:
        """Something that is kept for later came back: it goes to who waits, if anybody does."""
        while self._waiting and self.reclaim():
            pass  # else the one who brought it would have it again before they wake up
        if self.limit is not None:
            with self._lock:
                self._tell()

    def clear(self) -> None:
        """Destroy every idle buffer."""
        with self._lock:
            self._drop_idle(0)

    def stats(self) -> PoolStats:
        with self._lock:
            return PoolStats(self._hits, self._misses, self._bytes_idle, self._bytes_in_use)

    def _reserve(self, nbytes: int, reserved: list[int], *, wait: bool) -> None:
        """Count bytes as used, when there is room for them, and note that."""
        turn = object()
        if self.limit is not None and nbytes > self.limit:
            raise self._over_limit(nbytes)
        try:
            while True:
                seen = self._changes  # before it is tried: what comes after is noticed
                if self._is_reserved(nbytes, reserved, turn):
                    return
                if self._is_first(turn) and self.reclaim():
                    continue
                with self._lock:
                    if self._changes != seen:
                        continue
                    if not wait:
                        raise self._over_limit(nbytes)
                    if turn not in self._waiting:
                        self._waiting.append(turn)
                    self._changed.wait()
        finally:
            if turn in self._waiting:
                with self._lock:
                    self._waiting.remove(turn)
                    self._tell()

    def _is_reserved(self, nbytes: int, reserved: list[int], turn: object) -> bool:
        with self._lock:
            if self.limit is not None and not (
                self._is_first(turn) and self._bytes_in_use + nbytes <= self.limit
            ):
                return False
            self._bytes_in_use += nbytes
            reserved[:] = [nbytes]
            return True

    def _is_first(self, turn: object) -> bool:
        return self._waiting[:1] in ([], [turn])

    def _over_limit(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{nbytes:,} bytes for buffers are over the limit: {self._bytes_in_use:,} "
            f"of {self.limit:,} are in use (GPU_MEMORY_LIMIT)"
        )

    def _unreserve(self, nbytes: int) -> None:
        with self._lock:
            self._bytes_in_use -= nbytes
            self._tell()

    def _tell(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _take_back(self, buffers: Sequence[Any], kinds: Sequence[Wanted]) -> None:
        """What was reserved, and those that there are."""
        for buffer, (size, _) in zip(buffers, kinds, strict=True):
            if buffer is None:
                self._unreserve(size)
            else:
                self.release(buffer)

    def _find(self, kinds: Sequence[Wanted], buffers: list[Any]) -> None:
        """An idle buffer of each kind, where there is one; room for the others is made."""
        with self._lock:
            for index, kind in enumerate(kinds):
                buffers[index] = self._take(kind)
            self._drop_idle(self._most_bytes)

    def _take(self, kind: Wanted) -> Any:
        for buffer, its_kind in reversed(self._idle.items()):
            if its_kind == kind:
                del self._idle[buffer]
                self._bytes_idle -= kind[0]
                self._hits += 1
                return buffer
        self._misses += 1
        return None

    def _make(self, size: int, usage: int) -> Any:
        try:
            return self._device.create_buffer(size=size, usage=usage)
        except Exception as error:
            raise OutOfMemoryError(
                f"{size:,} bytes could not be had from WebGPU: {error}"
            ) from error

    def _drop_idle(self, most: int) -> None:
        """The longest unused first, until there is no more than that and nothing over the limit."""
        if self.limit is not None:
            most = min(most, self.limit - self._bytes_in_use)
        while self._bytes_idle > most:
            oldest, (size, _) = self._idle.popitem(last=False)
            self._bytes_idle -= size
            oldest.destroy()
