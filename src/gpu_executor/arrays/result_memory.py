"""Memory of results, used again once the caller has dropped them.

A result is an array over memory that a pool also refers to. The result and every view of it hold a
reference to that memory, so the memory is free when the pool's reference is the only one. Counting
the references takes less than a microsecond. It pays: pages of new memory, touched for the first
time, are written at 2 GB/s, pages of recycled memory at 10 GB/s and more.

Memory is kept by size class, so results of similar sizes use the same memory one after the other.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any, Generic, TypeVar

from gpu_executor.arrays.idle_memory import round_up_to_class
from gpu_executor.common.lean_dataclass import dataclass

MIN_RECYCLED_BYTES = 256 << 10
"""Bytes from which a result's memory is recycled."""
MAX_PROBES = 4
"""Entries of one size class that are examined before the search gives up."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ResultMemory(Generic[T]):
    """Memory of one size class, and its owner's object."""

    memory: Any
    belongs: T
    nbytes: int
    last_used: int
    """When a result was placed in it last, in nanoseconds of `time.monotonic_ns`."""


class ResultMemoryPool(Generic[T]):
    """Memory by size class, each block with an owner's object. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_size: dict[int, deque[ResultMemory[T]]] = {}
        self.nbytes = 0
        """The bytes of all memory in the pool, with and without a holder."""

    def find(self, nbytes: int) -> tuple[Any, T] | None:
        """Return memory for that size without a holder, and its object; None if none is found."""
        with self._lock:
            known = self._by_size.get(round_up_to_class(nbytes))
            if known is None:
                return None
            for _ in range(min(MAX_PROBES, len(known))):
                entry = known[0]
                known.rotate(-1)
                if count_references(entry) == UNUSED_REFERENCES:
                    entry.last_used = time.monotonic_ns()
                    return entry.memory, entry.belongs  # adds a reference under the lock
        return None

    def add(self, nbytes: int, memory: Any, belongs: T) -> None:
        """Add the memory of a new result, which is found again when the result is dropped.

        The memory has the bytes of the size class, `round_up_to_class(nbytes)`.
        """
        size = round_up_to_class(nbytes)
        entry = ResultMemory(memory, belongs, size, time.monotonic_ns())
        with self._lock:
            self._by_size.setdefault(size, deque()).append(entry)
            self.nbytes += size

    def list_entries(self) -> list[ResultMemory[T]]:
        """Return all entries."""
        with self._lock:
            return [entry for entries in self._by_size.values() for entry in entries]

    def count_unused_bytes(self) -> int:
        """Return the bytes of the memory that has no holder."""
        with self._lock:
            entries = (entry for entries in self._by_size.values() for entry in entries)
            return sum(entry.nbytes for entry in entries if is_unused(entry))

    def remove_held(self) -> list[T]:
        """Remove the older half of the entries whose memory has a holder; return their objects.

        The memory is freed when its holder drops it. A caller that collects results would otherwise
        make each search for idle memory longer than the one before.
        """
        held = [entry for entry in self.list_entries() if not is_unused(entry)]
        held.sort(key=lambda entry: entry.last_used)
        return [entry.belongs for entry in held[: len(held) // 2] if self.remove(entry)]

    def remove(self, entry: ResultMemory[T]) -> bool:
        """Remove an entry; return whether its memory has a holder, which frees it some day.

        Memory without a holder is freed now. An entry that is gone is none.
        """
        with self._lock:
            entries = self._by_size.get(entry.nbytes)
            if entries is None or entry not in entries:
                return False
            entries.remove(entry)
            if not entries:
                del self._by_size[entry.nbytes]
            self.nbytes -= entry.nbytes
            has_holder = not is_unused(entry)
            entry.memory = None  # somebody may still refer to the entry
            return has_holder


def count_references(entry: ResultMemory[Any]) -> int:
    """Count the references to an entry's memory, including this function's own."""
    return sys.getrefcount(entry.memory)


UNUSED_REFERENCES = count_references(ResultMemory(object(), None, 0, 0))
"""What `count_references` returns where the entry's reference is the only one."""


def is_unused(entry: ResultMemory[Any]) -> bool:
    """Whether nobody but the entry refers to its memory."""
    return count_references(entry) == UNUSED_REFERENCES
