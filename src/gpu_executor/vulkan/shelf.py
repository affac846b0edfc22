"""The shelf: slots that are not in use, kept for the next call that wants one like them."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.telemetry.stages import Record
from gpu_executor.vulkan.slot import Resources, Slot, SlotLayout

SLOTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A hit found a slot on the shelf; a miss made one."""

    hits: int
    misses: int
    idle: int
    in_use: int


@dataclass(slots=True, eq=False)
class Row:
    """The slots of one layout: a route keeps its row at hand and need not search for slots."""

    layout: SlotLayout
    idle: list[Slot] = field(default_factory=list)
    last_used: int = 0


class Shelf:
    """Slots by layout, the least recently used given up first. Safe from several threads."""

    def __init__(self, resources: Resources, *, most: int = SLOTS_KEPT) -> None:
        self._resources = resources
        self._most = most
        self._rows: dict[SlotLayout, Row] = {}
        self._slots: set[Slot] = set()
        self._retired: defaultdict[str, Record] = defaultdict(Record)
        self._clock = itertools.count(1)
        self._idle = self._in_use = self._waiting = self._hits = self._misses = 0
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def row(self, layout: SlotLayout) -> Row:
        """The row for a layout; the same one every time."""
        with self._lock:
            return self._rows.setdefault(layout, Row(layout))

    def take(self, row: Row) -> Slot:
        """A slot of that row, or a new one. Give it back with `put_back`.

        Where memory is short, idle slots are given up; where others' slots hold it, this waits.
        """
        with self._lock:
            if row.idle and not self._closed:
                self._hits += 1
                self._idle -= 1
                slot = row.idle.pop()
            else:
                slot = self._make(row.layout)
            self._in_use += 1
            return slot

    def put_back(self, row: Row, slot: Slot) -> None:
        with self._lock:
            self._in_use -= 1
            self._idle += 1
            row.idle.append(slot)
            row.last_used = next(self._clock)
            if self._idle > self._most:
                self._give_up_oldest()
            if self._waiting:
                self._changed.notify_all()

    def clear(self) -> None:
        """Give up every idle slot."""
        with self._lock:
            while self._idle:
                self._give_up_oldest()

    def close(self) -> None:
        """Take no more calls, wait for those that run, give up every slot."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            while self._in_use:
                self._wait_for_change()
        self.clear()

    def stats(self) -> SlotStats:
        with self._lock:
            return SlotStats(self._hits, self._misses, self._idle, self._in_use)

    def records(self) -> list[tuple[str, Record]]:
        """What was done with every slot there is or was, by data path."""
        with self._lock:
            known = [(slot.layout.path, slot.record) for slot in self._slots]
            return [*known, *self._retired.items()]

    def _make(self, layout: SlotLayout) -> Slot:
        while not self._closed:
            try:
                slot = Slot(self._resources, layout)
            except OutOfMemoryError:
                if self._idle:
                    self._give_up_oldest()
                elif self._in_use:
                    self._wait_for_change()
                else:
                    raise
            else:
                self._misses += 1
                self._slots.add(slot)
                return slot
        raise ClosedError("the backend is closed; open another one")

    def _give_up_oldest(self) -> None:
        row = min((row for row in self._rows.values() if row.idle), key=lambda row: row.last_used)
        slot = row.idle.pop()
        self._idle -= 1
        self._slots.remove(slot)
        self._retired[slot.layout.path].add(slot.record)
        slot.close()

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1
