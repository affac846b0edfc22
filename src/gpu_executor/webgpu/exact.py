"""The exact-size cache: buffer sets for single tasks that come again at one size."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from gpu_executor.call import Form, Operand
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.sets import BufferSet

ENTRIES_KEPT = 16
SIZES_SEEN = 64
Key = tuple[Kernel, tuple[Operand, ...]]


class ExactCache:
    """Sets by kernel and sizes, the least recently used given up first. Safe from many threads.

    A set that a task has is not in here, so it cannot be given up while it is in flight.
    """

    def __init__(self, *, most: int = ENTRIES_KEPT) -> None:
        self._most = most
        self._idle: OrderedDict[Key, BufferSet] = OrderedDict()
        self._seen: deque[Key] = deque(maxlen=SIZES_SEEN)
        self._lock = threading.Lock()
        self.hits = 0

    def take(self, form: Form) -> BufferSet | None:
        """The set for calls of that form, if there is one that is idle."""
        with self._lock:
            found = self._idle.pop((form.kernel, form.operands), None)
            self.hits += found is not None
            return found

    def comes_again(self, form: Form) -> bool:
        """Whether a call of that form came before; remembers that one came."""
        key = form.kernel, form.operands
        with self._lock:
            if key in self._seen:
                return True
            self._seen.append(key)
            return False

    def put_back(self, form: Form, buffers: BufferSet) -> None:
        """When the device is done with it."""
        key = form.kernel, form.operands
        with self._lock:
            surplus = [self._idle.pop(key)] if key in self._idle else []
            self._idle[key] = buffers
            while len(self._idle) > self._most:
                surplus.append(self._idle.popitem(last=False)[1])
        for each in surplus:
            each.release()

    def clear(self) -> None:
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for buffers in idle:
            buffers.release()

    def __len__(self) -> int:
        return len(self._idle)
