"""The shelf: slots that are not in use, kept for the next call that wants one like them."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field

from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.telemetry.stages import Record
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot import Slot, SlotLayout

SLOTS_KEPT = 32


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A hit found a slot on the shelf; a miss made one."""

    hits: int
    misses: int
    idle: int
    in_use: int


@dataclass(slots=True, eq=False, weakref_slot=True)
class SlotKey:
    """The slots of one layout: a route keeps its row at hand and need not search for slots."""

    layout: SlotLayout
    idle: list[Slot] = field(default_factory=list)


class SlotPool:
    """Slots by layout, the least recently used given up first. Safe from several threads."""

    def __init__(self, resources: Resources, *, most: int = SLOTS_KEPT) -> None:
        self._resources = resources
        self._most = most
        self._rows: weakref.WeakValueDictionary[SlotLayout, SlotKey] = weakref.WeakValueDictionary()
        self._stocked: OrderedDict[SlotKey, None] = OrderedDict()
        """The rows that have idle slots, or had, the longest unused first."""
        self._latest: SlotKey | None = None
        self._slots: set[Slot] = set()
        self._retired: defaultdict[str, Record] = defaultdict(Record)
        self._idle = self._busy = self._waiting = self._hits = self._misses = 0
        self._changes = 0
        """How often somebody stopped being busy."""
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def slot_key(self, layout: SlotLayout) -> SlotKey:
        """The row for a layout; the same one as long as anybody has it."""
        with self._lock:
            return self._rows.setdefault(layout, SlotKey(layout))

    def take(self, slot_key: SlotKey) -> Slot:
        """A slot of that row, or a new one. Give it back with `put_back`.

        Where memory is short, idle slots are given up; where others' slots hold it, this waits.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the backend is closed; open another one")
            self._busy += 1
            if slot_key.idle:
                return self._unshelve(slot_key)
        return self._make(slot_key.layout)

    def take_another(self, slot_key: SlotKey) -> Slot | None:
        """One more slot of that row for a call that has one; None where there is no memory."""
        with self._lock:
            self._busy += 1
            if slot_key.idle:
                return self._unshelve(slot_key)
        try:
            return self._make(slot_key.layout, patient=False)
        except OutOfMemoryError:
            return None

    def put_back(self, slot_key: SlotKey, slot: Slot) -> None:
        with self._lock:
            slot_key.idle.append(slot)
            self._idle += 1
            if slot_key is not self._latest:
                self._latest = slot_key
                self._stocked[slot_key] = None
                self._stocked.move_to_end(slot_key)
            if self._idle > self._most:
                self._give_up_oldest()
            self._no_longer_busy()

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
            while self._busy:
                self._wait_for_change()
        self.clear()

    def stats(self) -> SlotStats:
        with self._lock:
            return SlotStats(self._hits, self._misses, self._idle, self._busy)

    def records(self) -> list[tuple[str, Record]]:
        """What was done with every slot there is or was, by data path."""
        with self._lock:
            known = [(slot.layout.path, slot.record) for slot in self._slots]
            return [*known, *self._retired.items()]

    def _unshelve(self, slot_key: SlotKey) -> Slot:
        self._hits += 1
        self._idle -= 1
        return slot_key.idle.pop()

    def _make(self, layout: SlotLayout, *, patient: bool = True) -> Slot:
        """A new slot, made without the lock: compiling takes long, and others want theirs."""
        while True:
            changes = self._changes
            try:
                slot = Slot(self._resources, layout)
            except OutOfMemoryError as error:
                self._find_memory(error, changes, patient=patient)
                continue
            except BaseException:
                with self._lock:
                    self._no_longer_busy()
                raise
            with self._lock:
                self._misses += 1
                self._slots.add(slot)
            return slot

    def _find_memory(self, error: OutOfMemoryError, changes: int, *, patient: bool) -> None:
        """After an allocation failed: return when another attempt may succeed, else raise it.

        `changes` is what was counted when the attempt began: whoever stopped since then, another
        failed attempt perhaps, has given memory back.
        """
        with self._lock:
            if self._idle:
                self._give_up_oldest()
                return
            if self._changes != changes and patient:
                return
            self._no_longer_busy()
            if not (self._busy and patient):
                raise error
            self._wait_for_change()
            if self._closed:
                raise ClosedError("the backend was closed while this call waited for memory")
            self._busy += 1

    def _give_up_oldest(self) -> None:
        while not (oldest := next(iter(self._stocked))).idle:
            self._forget(oldest)
        self._idle -= 1
        slot = oldest.idle.pop()
        self._slots.remove(slot)
        self._retired[slot.layout.path].add(slot.record)
        slot.close()

    def _forget(self, slot_key: SlotKey) -> None:
        del self._stocked[slot_key]
        if slot_key is self._latest:
            self._latest = None

    def _no_longer_busy(self) -> None:
        self._busy -= 1
        self._changes += 1
        if self._waiting:
            self._changed.notify_all()

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1
