"""Memory of results, given again when nobody holds them any more.

A result is an array over memory of ours, and so is every view of it: as long as any of them lives,
the memory has more references than ours. Asking for them costs less than a microsecond; pages of
new memory, touched for the first time, are written at 2 GB/s, those of old memory at 10 and more.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any, Generic, TypeVar

SMALLEST = 256 << 10
"""Bytes of results that are worth it."""
LOOKED_AT = 4
"""How many of one size are asked before another is made."""
T = TypeVar("T")


class ResultMemoryPool(Generic[T]):
    """Memory by size, each with something that belongs to it. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_size: dict[int, deque[tuple[Any, T]]] = {}
        self.nbytes = 0

    def find(self, nbytes: int) -> tuple[Any, T] | None:
        """Memory of that size that nobody holds."""
        with self._lock:
            known = self._by_size.get(nbytes)
            if known is None:
                return None
            for _ in range(min(LOOKED_AT, len(known))):
                entry = known[0]
                known.rotate(-1)
                if count_references(entry) == NOBODY:
                    memory, belongs = entry
                    return memory, belongs  # a reference more, before anybody else may look
        return None

    def add(self, nbytes: int, memory: Any, belongs: T) -> None:
        """Remember memory that a result lies in."""
        with self._lock:
            self._by_size.setdefault(nbytes, deque()).append((memory, belongs))
            self.nbytes += nbytes

    def clear(self) -> None:
        """Forget all: what nobody holds is freed, the rest when it is dropped."""
        with self._lock:
            self._by_size.clear()
            self.nbytes = 0


def count_references(entry: tuple[Any, Any]) -> int:
    """To an entry's memory, whoever has them."""
    memory, _ = entry
    return sys.getrefcount(memory)


NOBODY = count_references((object(), None))
"""References where nobody but the entry has any."""
