"""Results in mapped memory that is used again when nobody holds them any more.

The device writes such a result itself: no copy by the host, and no pages touched for the first
time. Taking memory from the pool and giving it back costs 20 us a result on the H200's host;
finding one that nobody holds and making an array over it costs 2 us.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from gpu_executor.call import Array, Form
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.kernel import Shape
from gpu_executor.recycling import SMALLEST, Recycled
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.places import Place

LARGE = 64 << 20
"""Mapped memory takes long to make. From here on a size must be asked for twice to be recycled."""
MOST_BYTES, MOST_OF_HOST = 512 << 20, 16
"""Users' arrays in mapped memory, these among them, hold no more than so many bytes, or than that
part of the host's memory."""
LARGE_SIZES_SEEN = 64


def recycles(form: Form) -> bool:
    """Whether the results of a call are large enough."""
    return all(output.nbytes >= SMALLEST for output in form.operands[form.kernel.inputs :])


class RecycledResults:
    """Memory for results by size. Safe from several threads."""

    def __init__(self, memory: MemoryPool, mapped: MappedArrays, info: DeviceInfo) -> None:
        self._memory, self._mapped = memory, mapped
        self._most = max(MOST_BYTES, info.host_memory // MOST_OF_HOST)
        if memory.limit is not None:
            self._most = min(self._most, memory.limit // 2)  # what is left is for slots and staging
        self._seen: deque[int] = deque(maxlen=LARGE_SIZES_SEEN)
        self._recycled: Recycled[Place] = Recycled()

    def make(self, form: Form) -> list[tuple[Array, Place]]:
        """Arrays for the results of a call and their places; none where there is no memory."""
        outputs = form.operands[form.kernel.inputs :]
        made = []
        for (shape, dtype), output in zip(form.results, outputs, strict=True):
            one = self.make_one(shape, dtype, output.nbytes)
            if one is None:
                return []
            made.append(one)
        return made

    def make_one(
        self, shape: Shape, dtype: np.dtype[Any], nbytes: int
    ) -> tuple[Array, Place] | None:
        """An array of so many bytes and its place; None where there is no memory for it."""
        return self._known(shape, dtype, nbytes) or self._new(shape, dtype, nbytes)

    def clear(self) -> None:
        """Keep none: what nobody holds goes back to the pool, the rest when it is dropped."""
        self._recycled.clear()

    def _known(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> tuple[Array, Place] | None:
        found = self._recycled.find(nbytes)
        return None if found is None else (np.ndarray(shape, dtype, found[0]), found[1])

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
        self._recycled.add(nbytes, array.base, place)
        return array, place
