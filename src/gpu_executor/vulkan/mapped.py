"""NumPy arrays in memory that the device sees too: computing on them copies nothing on the host.

An array from here is an ordinary NumPy array. Views and slices of it count too: what matters is
where the data lies. Its memory goes back to the pool with the last view of it, also after the
backend was closed, so a view is always valid memory.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.call import Array
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.kernel import Shape
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.memory import Allocation, MemoryPool, Purpose
from gpu_executor.vulkan.places import Place


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    buffer: Handle
    offset: int
    serial: int


class MappedArrays:
    """Makes such arrays, and knows them again. Safe from several threads."""

    def __init__(self, memory: MemoryPool) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._regions: list[_Region] = []
        self._gone: deque[int] = deque()
        """Where regions began that finalizers gave back."""
        self.any = False
        """Whether there are any: calls look here first."""

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array:
        """An array of that shape, its contents whatever was there before."""
        return self.make(shape, dtype)[0]

    def make(self, shape: int | Shape, dtype: npt.DTypeLike) -> tuple[Array, Place]:
        """The same, and where the device finds it."""
        kind = np.dtype(dtype)
        if kind.kind not in "biufc":
            raise ArgumentTypeError(f"dtype {kind} cannot lie in device memory; it takes numbers")
        extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        if min(extents, default=0) < 0:
            raise ArgumentShapeError(f"shape {shape} has negative extents")
        nbytes = math.prod(extents) * kind.itemsize
        allocation = self._memory.allocate(Purpose.ARRAY, max(nbytes, 1))
        memory: Any = (ctypes.c_char * max(nbytes, 1)).from_address(allocation.address)
        block = allocation.block
        self.add(allocation.address, nbytes, block.buffer, allocation.offset, block.serial)
        # Not at exit: whoever still has a view then may still use it.
        weakref.finalize(memory, self._release, allocation).atexit = False
        array: Array = np.ndarray(extents, kind, memory)
        return array, Place(block.buffer, allocation.offset, False, block.serial)

    def find(self, array: Any) -> Place | None:
        """Where the device finds a NumPy array's data, if it can use it as it lies there."""
        if not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        address = int(vk.ffi.cast("uintptr_t", vk.ffi.from_buffer(array)))
        with self._lock:
            self._forget_gone()
            index = bisect.bisect(self._starts, address) - 1
            region = self._regions[index] if index >= 0 else None
        if region is None or address + array.nbytes > region.end:
            return None
        offset = region.offset + address - region.start
        return Place(region.buffer, offset, False, region.serial)

    def add(self, address: int, nbytes: int, buffer: Handle, offset: int, serial: int) -> None:
        """From now on, data in that range of addresses is found at `offset` of `buffer`."""
        with self._lock:
            self._forget_gone()
            index = bisect.bisect(self._starts, address)
            self._starts.insert(index, address)
            self._regions.insert(index, _Region(address, address + nbytes, buffer, offset, serial))
            self.any = True

    def remove(self, address: int) -> None:
        """Forget the range that begins there."""
        self._gone.append(address)
        with self._lock:
            self._forget_gone()

    def _release(self, allocation: Allocation) -> None:
        # A finalizer runs anywhere, where the lock is held too: leave the rest to who comes next.
        self._gone.append(allocation.address)
        self._memory.release_when_possible(allocation)

    def _forget_gone(self) -> None:
        while self._gone:
            index = bisect.bisect(self._starts, self._gone.popleft()) - 1
            del self._starts[index], self._regions[index]
        self.any = bool(self._starts)
