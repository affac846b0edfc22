"""Idle memory: what a backend keeps for later calls while nobody uses it.

A backend keeps slots or buffer sets, the memory of results that the caller has dropped, tables and
freed memory, because making them again is slow. `IdleMemory` is the one budget for all of it: at
most `GPU_IDLE_MEMORY` bytes, or twice the bytes of the largest call so far if that is more. Beyond
the budget the least recently used item is released first, whoever keeps it.

The bytes of a call are what it needs at once: its slots (or buffer sets) and the memory of its
results. A batch is one call, with all of its results; a stream is one, with the results in flight.
A call on device arrays needs these arrays, a transfer its array and staging memory. Twice that is
enough for the same call again while the caller still holds the results of the one before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpu_executor.common.lean_dataclass import dataclass


class IdleItem(NamedTuple):
    """Something that a backend keeps and nobody uses."""

    last_used: int
    """When it was used last, in nanoseconds of `time.monotonic_ns`."""
    release: Callable[[], object]
    """Releases it, unless it is in use again or was released already."""


ListIdle = Callable[[], Iterable[IdleItem]]


class IdleMemory:
    """The budget of a backend, and the holders of its idle memory. Thread-safe."""

    def __init__(self, minimum: int) -> None:
        """`minimum` is the limit in bytes as long as no call needs half of it."""
        self._minimum = minimum
        self.limit = minimum
        self.largest_call = 0
        """The bytes that the largest call so far needed at once."""
        self._lock = threading.Lock()
        self._holders: list[ListIdle] = []
        self.fits: Callable[[], bool] = lambda: True
        """Returns whether the idle memory is within the limit."""
        self.may_exceed: Callable[[], bool] = lambda: True
        """Returns False where it is certain that the idle memory is within the limit; quick."""
        self._evicting = 0

    def add_holder(self, list_idle: ListIdle) -> None:
        """Add a holder, by the function that lists its items."""
        self._holders.append(list_idle)

    def note_call(self, nbytes: int) -> None:
        """Raise the limit for a call that needs so many bytes at once."""
        with self._lock:
            if nbytes > self.largest_call:
                self.largest_call = nbytes
                self.limit = max(self._minimum, 2 * nbytes)

    @property
    def is_evicting(self) -> bool:
        """Whether items are being released, so that their memory is not to be kept."""
        return self._evicting > 0

    def settle(self) -> None:
        """Release items until the idle memory is within the limit."""
        self.evict(self.fits)

    def settle_if_exceeded(self) -> None:
        """Release items if the idle memory exceeds the limit, since arrays were dropped: finalizers
        keep their memory, because what was used longest ago is released first, and only here."""
        if self.may_exceed():
            self.settle()

    def evict(self, enough: Callable[[], bool]) -> bool:
        """Release items, the least recently used first, until `enough` returns True.

        Returns whether it did. No lock is held meanwhile, because holders have locks of their own.
        """
        items = [item for list_idle in self._holders for item in list_idle()]
        with self._lock:
            self._evicting += 1
        try:
            for item in sorted(items, key=lambda item: item.last_used):
                if enough():
                    return True
                item.release()
            return enough()
        finally:
            with self._lock:
                self._evicting -= 1


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What holds the memory of a backend, in bytes."""

    in_use: dict[str, int]
    """By what the caller or a running call uses."""
    idle: dict[str, int]
    """By what is kept for later calls; nobody uses it."""
    fragments: int
    """Free ranges between arrays that the caller holds. They serve later calls, and return to the
    device with these arrays."""
    idle_limit: int
    """The most bytes that may be idle: GPU_IDLE_MEMORY, or twice the largest call so far."""
    largest_call: int
    """The bytes that the largest call so far needed at once."""

    @property
    def bytes_idle(self) -> int:
        return sum(self.idle.values())

    def __str__(self) -> str:
        def describe(parts: dict[str, int]) -> str:
            named = ", ".join(f"{name} {nbytes:,}" for name, nbytes in parts.items() if nbytes)
            return named or "nothing"

        return (
            f"in use: {describe(self.in_use)}; idle: {describe(self.idle)} (at most "
            f"{self.idle_limit:,}); fragments {self.fragments:,}"
        )


def sum_memory_use(uses: Iterable[MemoryUse]) -> MemoryUse:
    """What holds the memory of several backends. The largest call is that of one of them."""
    listed = list(uses)
    in_use, idle = Counter[str](), Counter[str]()
    for use in listed:
        in_use.update(use.in_use)
        idle.update(use.idle)
    return MemoryUse(
        dict(in_use),
        dict(idle),
        sum(use.fragments for use in listed),
        sum(use.idle_limit for use in listed),
        max((use.largest_call for use in listed), default=0),
    )


def round_up_to_class(count: int) -> int:
    """Round up to 4, 5, 6 or 7 times a power of two: at most a quarter of the memory is unused."""
    if count <= 4:
        return 4
    step = 1 << max((count - 1).bit_length() - 3, 0)
    return -(-count // step) * step
