"""Memory of results, used again once the caller has dropped them.

A result is an array over memory that a pool also refers to. The result and every view of it hold a
reference to that memory, so the memory is free when the pool's reference is the only one. Counting
the references takes less than a microsecond. It pays: pages of new memory, touched for the first
time, are written at 2 GB/s, pages of recycled memory at 10 GB/s and more.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any, Generic, TypeVar

MIN_RECYCLED_BYTES = 256 << 10
"""Bytes from which a result's memory is recycled."""
MAX_PROBES = 4
"""Entries of one size that are examined before the search gives up."""
T = TypeVar("T")


class ResultMemoryPool(Generic[T]):
    """Memory by size, each piece with an owner's object. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_size: dict[int, deque[tuple[Any, T]]] = {}
        self.nbytes = 0

    def find(self, nbytes: int) -> tuple[Any, T] | None:
        """Return memory of that size without a holder, and its object; None where none is found."""
        with self._lock:
            known = self._by_size.get(nbytes)
            if known is None:
                return None
            for _ in range(min(MAX_PROBES, len(known))):
                entry = known[0]
                known.rotate(-1)
                if count_references(entry) == UNUSED_REFERENCES:
                    memory, belongs = entry
                    return memory, belongs  # adds a reference before the lock is released
        return None

    def add(self, nbytes: int, memory: Any, belongs: T) -> None:
        """Add the memory of a new result, which is found again when the result is dropped."""
        with self._lock:
            self._by_size.setdefault(nbytes, deque()).append((memory, belongs))
            self.nbytes += nbytes

    def clear(self) -> None:
        """Drop the pool's references. Memory without another holder is freed now, the rest when its
        last holder drops it."""
        with self._lock:
            self._by_size.clear()
            self.nbytes = 0


def count_references(entry: tuple[Any, Any]) -> int:
    """Count the references to an entry's memory, including this function's own."""
    memory, _ = entry
    return sys.getrefcount(memory)


UNUSED_REFERENCES = count_references((object(), None))
"""What `count_references` returns where the entry's reference is the only one."""
