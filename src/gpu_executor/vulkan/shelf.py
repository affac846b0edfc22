"""The shelf: slots that are not in use, kept for the next call that wants one like them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.telemetry.stages import StageTimes
from gpu_executor.vulkan.slot import Resources, Slot, SlotLayout

SLOTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A hit found a slot on the shelf; a miss made one."""

    hits: int
    misses: int
    idle: int
    in_use: int


class Shelf:
    """Slots by layout, the least recently used given up first. Safe from several threads."""

    def __init__(self, resources: Resources, *, most: int = SLOTS_KEPT) -> None:
        self._resources = resources
        self._most = most
        self._shelved: OrderedDict[SlotLayout, list[Slot]] = OrderedDict()
        """Slots that wait, by layout, the longest unused layout first; no list is empty."""
        self._idle = self._in_use = self._waiting = self._hits = self._misses = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, layout: SlotLayout, times: StageTimes) -> Slot:
        """A slot of that layout, from the shelf or new. Give it back with `put_back`.

        Where memory is short, idle slots are given up; where others' slots hold it, this waits.
        """
        with self._changed:
            while True:
                if self._closed:
                    raise ClosedError("the backend is closed; open another one")
                if layout in self._shelved:
                    slot = self._unshelve(layout)
                    self._hits += 1
                    break
                try:
                    slot = Slot(self._resources, layout, times)
                    self._misses += 1
                    break
                except OutOfMemoryError:
                    if self._idle:
                        self._give_up_oldest()
                    elif self._in_use:
                        self._wait_for_change()
                    else:
                        raise
            self._in_use += 1
            return slot

    def put_back(self, slot: Slot) -> None:
        with self._changed:
            self._in_use -= 1
            self._idle += 1
            self._shelved.setdefault(slot.layout, []).append(slot)
            self._shelved.move_to_end(slot.layout)
            while self._idle > self._most:
                self._give_up_oldest()
            if self._waiting:
                self._changed.notify_all()

    def clear(self) -> None:
        """Give up every idle slot."""
        with self._changed:
            while self._idle:
                self._give_up_oldest()

    def close(self) -> None:
        """Take no more calls, wait for those that run, give up every slot."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._in_use:
                self._wait_for_change()
        self.clear()

    def stats(self) -> SlotStats:
        with self._changed:
            return SlotStats(self._hits, self._misses, self._idle, self._in_use)

    def _unshelve(self, layout: SlotLayout) -> Slot:
        alike = self._shelved[layout]
        slot = alike.pop()
        if not alike:
            del self._shelved[layout]
        self._idle -= 1
        return slot

    def _give_up_oldest(self) -> None:
        self._unshelve(next(iter(self._shelved))).close()

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1
