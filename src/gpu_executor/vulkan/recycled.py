"""Results in mapped memory that is used again when nobody holds them any more.

The device writes such a result itself: no copy by the host, and no pages touched for the first
time. Taking memory from the pool and giving it back costs 20 us a result on the H200's host; asking
an object of ours how many references it has, which is how a result that nobody holds is found, and
making an array over it costs 2 us.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any

import numpy as np

from gpu_executor.call import Array, Form
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.kernel import Shape
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.places import Place

SMALLEST = 256 << 10
"""Bytes of results that are worth it."""
LARGE = 64 << 20
"""Mapped memory takes long to make. From here on a size must be asked for twice to be recycled."""
MOST_BYTES, MOST_OF_HOST = 512 << 20, 16
"""Users' arrays in mapped memory, these among them, hold no more than so many bytes, or than that
part of the host's memory."""
LARGE_SIZES_SEEN = 64
LOOKED_AT = 4
"""How many of one size are asked before another is made."""
Entry = tuple[Any, Place]
"""Memory, and where the device finds it."""


def recycles(form: Form) -> bool:
    """Whether the results of a call are large enough."""
    return all(output.nbytes >= SMALLEST for output in form.operands[form.kernel.inputs :])


class RecycledResults:
    """Memory for results by size. Safe from several threads."""

    def __init__(self, memory: MemoryPool, mapped: MappedArrays, info: DeviceInfo) -> None:
        self._memory, self._mapped = memory, mapped
        self._most = max(MOST_BYTES, info.host_memory // MOST_OF_HOST)
        self._seen: deque[int] = deque(maxlen=LARGE_SIZES_SEEN)
        self._lock = threading.Lock()
        self._by_size: dict[int, deque[Entry]] = {}

    def make(self, form: Form) -> list[tuple[Array, Place]]:
        """Arrays for the results of a call and their places; none where there is no memory."""
        outputs = form.operands[form.kernel.inputs :]
        made = []
        for (shape, dtype), output in zip(form.results, outputs, strict=True):
            one = self._known(shape, dtype, output.nbytes)
            if one is None:
                one = self._new(shape, dtype, output.nbytes)
            if one is None:
                return []
            made.append(one)
        return made

    def clear(self) -> None:
        """Keep none: what nobody holds goes back to the pool, the rest when it is dropped."""
        with self._lock:
            self._by_size.clear()

    def _known(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> tuple[Array, Place] | None:
        with self._lock:
            known = self._by_size.get(nbytes, ())
            for _ in range(min(LOOKED_AT, len(known))):
                assert isinstance(known, deque)
                entry = known[0]
                known.rotate(-1)
                if references(entry) == NOBODY:
                    return np.ndarray(shape, dtype, entry[0]), entry[1]
        return None

    def _new(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> tuple[Array, Place] | None:
        if nbytes > LARGE and nbytes not in self._seen:
            self._seen.append(nbytes)
            return None
        if self._memory.bytes_in_arrays + nbytes > self._most:
            self.clear()
            if self._memory.bytes_in_arrays + nbytes > self._most:
                return None
        try:
            array, place = self._mapped.make(shape, dtype)
        except OutOfMemoryError:
            return None
        with self._lock:
            self._by_size.setdefault(nbytes, deque()).append((array.base, place))
        return array, place


def references(entry: Entry) -> int:
    """To an entry's memory, whoever has them."""
    memory, _ = entry
    return sys.getrefcount(memory)


NOBODY = references((object(), Place(None, 0, False, 0)))
"""References where nobody but the entry has any."""
