"""`DroppedMemory`: memory of arrays that are gone and that submissions may still use.

It serves the next arrays of the command stream, and returns to the pool when the device has
completed the last submission that uses it. Memory of secrets serves other secrets only, until it is
overwritten.
"""

from __future__ import annotations

from collections import deque

from gpu_executor.vulkan.memory import Allocation, MemoryPool

Entry = tuple[int, Allocation]
"""The timeline value of the last submission that uses memory, and the memory."""
STAGING = 0
"""Instead of the size of staging memory, which does not serve arrays; no array has this size."""


class DroppedMemory:
    """Only `add` is safe from several threads, and from finalizers."""

    def __init__(self, memory: MemoryPool) -> None:
        self._memory = memory
        self._added: deque[Entry] = deque()
        self._by_size: dict[bool, dict[int, list[Entry]]] = {False: {}, True: {}}
        """By whether it holds secrets, and by size."""

    def add(self, last_use: int, allocation: Allocation) -> None:
        """Take memory of an array that is gone, in any thread and at any point."""
        self._added.append((last_use, allocation))

    def __bool__(self) -> bool:
        return bool(self._added or self._by_size[False] or self._by_size[True])

    @property
    def has_secrets(self) -> bool:
        """Whether there is memory of secrets."""
        if self._added:
            self._sort()
        return bool(self._by_size[True])

    def take(self, nbytes: int, *, is_secret: bool) -> Entry | None:
        """Memory of this size, the latest first: for an array that is secret, that of others, too;
        None if there is none."""
        self._sort()
        for holds_secrets in (True, False) if is_secret else (False,):
            by_size = self._by_size[holds_secrets]
            entries = by_size.get(nbytes)
            if entries is not None:
                found = entries.pop()
                if not entries:
                    del by_size[nbytes]
                return found
        return None

    def take_secrets(self) -> list[Entry]:
        """All memory of secrets, which is to be overwritten."""
        self._sort()
        taken, self._by_size[True] = self._by_size[True], {}
        return [entry for entries in taken.values() for entry in entries]

    def release(self, completed: int) -> None:
        """Return memory to the pool that only submissions up to a timeline value use, except that
        of secrets."""
        self._sort()
        reusable = self._by_size[False]
        for size, entries in list(reusable.items()):
            used = [entry for entry in entries if entry[0] > completed]
            for last_use, allocation in entries:
                if last_use <= completed:
                    self._memory.release_when_possible(allocation)
            if used:
                reusable[size] = used
            else:
                del reusable[size]

    def count_bytes(self) -> int:
        """The bytes of all of it."""
        self._sort()
        by_size = self._by_size.values()
        lists = [entries for each in by_size for entries in each.values()]
        return sum(allocation.nbytes for entries in lists for _, allocation in entries)

    def _sort(self) -> None:
        while self._added:
            entry = self._added.popleft()
            allocation = entry[1]
            size = STAGING if allocation.owner == "staging" else allocation.nbytes
            self._by_size[allocation.is_secret].setdefault(size, []).append(entry)
