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

MAX_IDLE_SLOTS = 32


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

    def __init__(self, resources: Resources, *, most: int = MAX_IDLE_SLOTS) -> None:
        self._resources = resources
        self._most = most
        self._keys: weakref.WeakValueDictionary[SlotLayout, SlotKey] = weakref.WeakValueDictionary()
        self._keys_by_use: OrderedDict[SlotKey, None] = OrderedDict()
        """The rows that have idle slots, or had, the longest unused first."""
        self._last_used: SlotKey | None = None
        self._slots: set[Slot] = set()
        self._retired: defaultdict[str, Record] = defaultdict(Record)
        self._idle = self._busy = self._waiting = self._hits = self._misses = 0
        self._changes = 0
        """How often somebody stopped being busy."""
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def get_key(self, layout: SlotLayout) -> SlotKey:
        """The row for a layout; the same one as long as anybody has it."""
        with self._lock:
            return self._keys.setdefault(layout, SlotKey(layout))

    def take(self, slot_key: SlotKey) -> Slot:
        """A slot of that row, or a new one. Give it back with `put_back`.

        Where memory is short, idle slots are given up; where others' slots hold it, this waits.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the backend is closed; open another one")
            self._busy += 1
            if slot_key.idle:
                return self._take_idle(slot_key)
        return self._make(slot_key.layout)

    def try_take(self, slot_key: SlotKey) -> Slot | None:
        """One more slot of that row for a call that has one; None where there is no memory."""
        with self._lock:
            self._busy += 1
            if slot_key.idle:
                return self._take_idle(slot_key)
        try:
            return self._make(slot_key.layout, wait=False)
        except OutOfMemoryError:
            return None

    def put_back(self, slot_key: SlotKey, slot: Slot) -> None:
        with self._lock:
            slot_key.idle.append(slot)
            self._idle += 1
            if slot_key is not self._last_used:
                self._last_used = slot_key
                self._keys_by_use[slot_key] = None
                self._keys_by_use.move_to_end(slot_key)
            if self._idle > self._most:
                self._close_oldest()
            self._end_use()

    def clear(self) -> None:
        """Give up every idle slot."""
        with self._lock:
            while self._idle:
                self._close_oldest()

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

    def _take_idle(self, slot_key: SlotKey) -> Slot:
        self._hits += 1
        self._idle -= 1
        return slot_key.idle.pop()

    def _make(self, layout: SlotLayout, *, wait: bool = True) -> Slot:
        """A new slot, made without the lock: compiling takes long, and others want theirs."""
        while True:
            changes = self._changes
            try:
                slot = Slot(self._resources, layout)
            except OutOfMemoryError as error:
                self._find_memory(error, changes, wait=wait)
                continue
            except BaseException:
                with self._lock:
                    self._end_use()
                raise
            with self._lock:
                self._misses += 1
                self._slots.add(slot)
            return slot

    def _find_memory(self, error: OutOfMemoryError, changes: int, *, wait: bool) -> None:
        """After an allocation failed: return when another attempt may succeed, else raise it.

        `changes` is what was counted when the attempt began: whoever stopped since then, another
        failed attempt perhaps, has given memory back.
        """
        with self._lock:
            if self._idle:
                self._close_oldest()
                return
            if self._changes != changes and wait:
                return
            self._end_use()
            if not (self._busy and wait):
                raise error
            self._wait_for_change()
            if self._closed:
                raise ClosedError("the backend was closed while this call waited for memory")
            self._busy += 1

    def _close_oldest(self) -> None:
        while not (oldest := next(iter(self._keys_by_use))).idle:
            self._forget(oldest)
        self._idle -= 1
        slot = oldest.idle.pop()
        self._slots.remove(slot)
        self._retired[slot.layout.path].add(slot.record)
        slot.close()

    def _forget(self, slot_key: SlotKey) -> None:
        del self._keys_by_use[slot_key]
        if slot_key is self._last_used:
            self._last_used = None

    def _end_use(self) -> None:
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
