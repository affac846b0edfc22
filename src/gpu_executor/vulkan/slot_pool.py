"""The slot pool: idle slots, cached for the next call with the same layout."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.telemetry.stages import Record
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot import Slot, SlotLayout

MAX_IDLE_SLOTS = 32


@dataclass(frozen=True, slots=True)
class SlotStats:
    """A hit found an idle slot; a miss made one."""

    hits: int
    misses: int
    idle: int
    in_use: int


@dataclass(slots=True, eq=False, weakref_slot=True)
class SlotKey:
    """The idle slots of one layout.

    A prepared call holds its key, so that it need not look up the layout.
    """

    layout: SlotLayout
    idle: list[Slot] = field(default_factory=list)


class SlotPool:
    """Slots by layout; the least recently used idle slot is closed first. Thread-safe."""

    def __init__(self, resources: Resources, *, capacity: int = MAX_IDLE_SLOTS) -> None:
        self._resources = resources
        self._capacity = capacity
        self._keys: weakref.WeakValueDictionary[SlotLayout, SlotKey] = weakref.WeakValueDictionary()
        self._keys_by_use: OrderedDict[SlotKey, None] = OrderedDict()
        """Keys that have or had idle slots, least recently used first."""
        self._last_used: SlotKey | None = None
        self._slots: set[Slot] = set()
        self._retired: defaultdict[str, Record] = defaultdict(Record)
        self._idle = self._busy = self._waiting = self._hits = self._misses = 0
        self._changes = 0
        """How often a slot was put back or could not be made."""
        self._closed = False
        self.count_blocked: Callable[[], int] = int
        """Returns how many slots in use are put back only after the calling thread has gone on."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def get_key(self, layout: SlotLayout) -> SlotKey:
        """Return the key of a layout; the same object as long as anybody holds it."""
        with self._lock:
            return self._keys.setdefault(layout, SlotKey(layout))

    def take(self, slot_key: SlotKey) -> Slot:
        """Take an idle slot, or make one.

        Return it with `put_back`. Where memory is short, idle slots are closed; if slots in use
        hold the memory, this waits for them, unless they wait for this thread.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the backend is closed; open another one")
            self._busy += 1
            if slot_key.idle:
                return self._take_idle(slot_key)
        return self._make(slot_key.layout)

    def try_take(self, slot_key: SlotKey) -> Slot | None:
        """Take one more slot for a call that has one already; None where memory is short."""
        with self._lock:
            self._busy += 1
            if slot_key.idle:
                return self._take_idle(slot_key)
        try:
            return self._make(slot_key.layout, wait=False)
        except OutOfMemoryError:
            return None

    def put_back(self, slot_key: SlotKey, slot: Slot) -> None:
        """Return a slot to the pool; it becomes idle."""
        with self._lock:
            slot_key.idle.append(slot)
            self._idle += 1
            if slot_key is not self._last_used:
                self._last_used = slot_key
                self._keys_by_use[slot_key] = None
                self._keys_by_use.move_to_end(slot_key)
            if self._idle > self._capacity:
                self._close_oldest()
            self._end_use()

    def clear(self) -> None:
        """Close every idle slot."""
        with self._lock:
            while self._idle:
                self._close_oldest()

    def close(self) -> None:
        """Refuse new calls, wait for running calls, close every slot."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            while self._busy:
                self._wait_for_change()
        self.clear()

    def stats(self) -> SlotStats:
        with self._lock:
            return SlotStats(self._hits, self._misses, self._idle, self._busy)

    def list_records(self) -> list[tuple[str, Record]]:
        """Return the records of all slots, open and closed, by data path."""
        with self._lock:
            known = [(slot.layout.path, slot.record) for slot in self._slots]
            return [*known, *self._retired.items()]

    def _take_idle(self, slot_key: SlotKey) -> Slot:
        self._hits += 1
        self._idle -= 1
        return slot_key.idle.pop()

    def _make(self, layout: SlotLayout, *, wait: bool = True) -> Slot:
        """Make a slot without holding the lock, because compiling a pipeline is slow."""
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
        """After a failed allocation: return if another attempt may succeed, otherwise raise
        `error`.

        `changes` is the value of `_changes` when the attempt began. If it has changed since,
        another call has released memory, perhaps in a failed attempt of its own.
        """
        with self._lock:
            if self._idle:
                self._close_oldest()
                return
            if self._changes != changes and wait:
                return
            self._end_use()
            if not wait or self._busy <= self.count_blocked():
                raise error
            self._wait_for_change()
            if self._closed:
                raise ClosedError(
                    "the backend was closed while this call waited for memory; open another one"
                )
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
