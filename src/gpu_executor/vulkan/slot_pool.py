"""The slot pool: idle slots, cached for the next call with the same layout.

Idle slots are part of the session's idle memory: beyond its budget they are closed, the least
recently used first. Where another slot would exceed the budget, a call gets a larger idle slot of
the same kind, so calls of random sizes need no new slots.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import field

from gpu_executor.arrays.idle_memory import IdleItem, IdleMemory
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.plan import round_up_to_class
from gpu_executor.telemetry.stages import StageCounters
from gpu_executor.vulkan.memory import Allocation
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.slot_buffers import SlotLayout

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
    last_used: int = 0
    """When a slot was put back last, in nanoseconds of `time.monotonic_ns`. It is set when another
    key is used, not for every call."""
    nbytes: int = field(init=False)
    """About the bytes of a slot; `Slot.nbytes` are its actual bytes."""

    def __post_init__(self) -> None:
        copies, operands = 2 if self.layout.path == "device-local" else 1, self.layout.operands
        self.nbytes = copies * round_up_to_class(sum(operand.nbytes for operand in operands))

    def fits_in(self, other: SlotLayout) -> bool:
        """Whether calls of this key can use slots of another layout, which has more room."""
        if self.layout.kernel.split == "whole":
            return False
        pairs = list(zip(self.layout.operands, other.operands, strict=False))
        larger = tuple(mine.resize(its.count) for mine, its in pairs)
        return (
            all(mine.count < its.count for mine, its in pairs)
            and dataclasses.replace(self.layout, operands=larger) == other
        )


class SlotPool:
    """Slots by layout; the least recently used idle slot is closed first. Thread-safe."""

    def __init__(
        self, resources: Resources, idle_memory: IdleMemory, *, capacity: int = MAX_IDLE_SLOTS
    ) -> None:
        self._resources, self._memory = resources, resources.memory
        self._idle_memory = idle_memory
        self._capacity = capacity
        self._keys: weakref.WeakValueDictionary[SlotLayout, SlotKey] = weakref.WeakValueDictionary()
        self._keys_by_use: OrderedDict[SlotKey, None] = OrderedDict()
        """Keys that have or had idle slots, least recently used first."""
        self._last_used: SlotKey | None = None
        self._slots: set[Slot] = set()
        self._retired: defaultdict[str, StageCounters] = defaultdict(StageCounters)
        self._idle = self._busy = self._waiting = self._hits = self._misses = 0
        self._bytes_idle = self._bytes = 0
        """The bytes of idle slots, and of all slots."""
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
            larger = self._find_larger(slot_key)
            if larger is not None:
                return self._take_idle(larger)
        return self._make(slot_key.layout)

    def try_take(self, slot_key: SlotKey) -> Slot | None:
        """Take one more slot for a call that has one already; None where memory is short."""
        with self._lock:
            self._busy += 1
            if slot_key.idle:
                return self._take_idle(slot_key)
            larger = self._find_larger(slot_key)
            if larger is not None:
                return self._take_idle(larger)
        try:
            return self._make(slot_key.layout, wait=False)
        except OutOfMemoryError:
            return None

    def put_back(self, slot_key: SlotKey, slot: Slot) -> None:
        """Return a slot to the pool; it becomes idle."""
        with self._lock:
            if slot.layout is not slot_key.layout:  # a larger one
                slot_key = self._keys.setdefault(slot.layout, SlotKey(slot.layout))
            slot_key.idle.append(slot)
            self._idle += 1
            self._bytes_idle += slot.nbytes
            if slot_key is not self._last_used:
                self._stamp_last_used()
                self._last_used = slot_key
                self._keys_by_use[slot_key] = None
                self._keys_by_use.move_to_end(slot_key)
            if self._idle > self._capacity:
                self._close_oldest()
            if not self.exceeds_budget():
                self._end_use()
                return
        try:
            self._idle_memory.settle()
        finally:  # from here on the pool may be closed
            with self._lock:
                self._end_use()

    def exceeds_budget(self) -> bool:
        """Whether more memory is idle than the budget allows, idle slots included."""
        idle = self._memory.kept - self._bytes + self._bytes_idle
        return idle > self._idle_memory.limit

    def list_idle(self) -> list[IdleItem]:
        """List the idle slots."""
        with self._lock:
            self._stamp_last_used()
            return [
                IdleItem(key.last_used, functools.partial(self._close_idle, key, slot))
                for key in self._keys_by_use
                for slot in key.idle
            ]

    def list_allocations_in_use(self) -> list[Allocation]:
        """Return the memory of the slots that calls are using."""
        with self._lock:
            idle = {slot for key in self._keys_by_use for slot in key.idle}
            return [part for slot in self._slots - idle for part in slot.allocations]

    @property
    def bytes_idle(self) -> int:
        """The bytes of the idle slots."""
        return self._bytes_idle

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

    def list_counters(self) -> list[tuple[str, StageCounters]]:
        """Return the records of all slots, open and closed, by data path."""
        with self._lock:
            known = [(slot.layout.path, slot.record) for slot in self._slots]
            return [*known, *self._retired.items()]

    def _take_idle(self, slot_key: SlotKey) -> Slot:
        self._hits += 1
        self._idle -= 1
        slot = slot_key.idle.pop()
        self._bytes_idle -= slot.nbytes
        return slot

    def _find_larger(self, slot_key: SlotKey) -> SlotKey | None:
        """Find idle slots that are larger than necessary, the smallest of them.

        None if there are none, or if the budget of idle memory allows one more slot.
        """
        if self._memory.kept + slot_key.nbytes <= self._idle_memory.limit:
            return None
        larger = [key for key in self._keys_by_use if key.idle and slot_key.fits_in(key.layout)]
        return min(larger, key=lambda key: key.nbytes, default=None)

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
                self._bytes += slot.nbytes
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
        self._close(oldest, oldest.idle[-1])

    def _close_idle(self, slot_key: SlotKey, slot: Slot) -> None:
        """Close a slot, unless it is in use again or was closed."""
        with self._lock:
            if slot in slot_key.idle:
                self._close(slot_key, slot)

    def _close(self, slot_key: SlotKey, slot: Slot) -> None:
        slot_key.idle.remove(slot)
        self._idle -= 1
        self._bytes_idle -= slot.nbytes
        self._bytes -= slot.nbytes
        if not slot_key.idle:
            self._forget(slot_key)
        self._slots.remove(slot)
        self._retired[slot.layout.path].add(slot.record)
        slot.close()

    def _stamp_last_used(self) -> None:
        if self._last_used is not None:
            self._last_used.last_used = time.monotonic_ns()

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
