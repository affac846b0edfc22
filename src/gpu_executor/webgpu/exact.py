"""The exact-size cache: buffer sets for single tasks that come again at one size."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from gpu_executor.call import Form
from gpu_executor.webgpu.sets import BufferSet

ENTRIES_KEPT = 16
KEPT_BYTES = 512 << 20
SIZES_SEEN = 64


class ExactCache:
    """Sets by kernel and sizes, the least recently used given up first. Safe from many threads.

    There are several of one form where a batch of calls that cannot share buckets needs them. A set
    that a task has is not in here, so it cannot be given up while it is in flight. What has more
    than `most_bytes` is given up too, all but the last one.
    """

    def __init__(self, *, most: int = ENTRIES_KEPT, most_bytes: int = KEPT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._bytes = 0
        self._idle: OrderedDict[Form, list[BufferSet]] = OrderedDict()
        self._number = 0
        self._seen: deque[Form] = deque(maxlen=SIZES_SEEN)
        self._lock = threading.Lock()
        self.hits = 0

    def take(self, form: Form) -> BufferSet | None:
        """The set for calls of that form, if there is one that is idle."""
        with self._lock:
            sets = self._idle.get(form)
            if sets is None:
                return None
            self.hits += 1
            found = sets.pop()
            self._uncount(form, found)
            return found

    def comes_again(self, form: Form) -> bool:
        """Whether a call of that form came before; remembers that one came."""
        with self._lock:
            if form in self._seen:
                return True
            self._seen.append(form)
            return False

    def put_back(self, form: Form, buffers: BufferSet) -> None:
        """When the device is done with it."""
        with self._lock:
            self._idle.setdefault(form, []).append(buffers)
            self._idle.move_to_end(form)
            self._number += 1
            self._bytes += buffers.nbytes
            surplus = []
            while self._number > self._most or (
                self._bytes > self._most_bytes and self._number > 1
            ):
                surplus.append(self._pop_oldest())
        for each in surplus:
            each.release()

    def give_up_set(self) -> bool:
        """The least recently used one; whether there was one."""
        with self._lock:
            oldest = self._pop_oldest() if self._idle else None
        if oldest is not None:
            oldest.release()
        return oldest is not None

    def clear(self) -> None:
        with self._lock:
            idle = [buffers for sets in self._idle.values() for buffers in sets]
            self._idle.clear()
            self._number = self._bytes = 0
        for buffers in idle:
            buffers.release()

    def __len__(self) -> int:
        return self._number

    def _pop_oldest(self) -> BufferSet:
        form, sets = next(iter(self._idle.items()))
        oldest = sets.pop(0)
        self._uncount(form, oldest)
        return oldest

    def _uncount(self, form: Form, taken: BufferSet) -> None:
        self._number -= 1
        self._bytes -= taken.nbytes
        if not self._idle[form]:
            del self._idle[form]
