"""`OutputAllocator`: the memory of results in NumPy arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gpu_executor.arrays.idle_memory import IdleItem
from gpu_executor.arrays.result_memory import MIN_RECYCLED_BYTES, ResultMemoryPool
from gpu_executor.calls.call import Array, Call
from gpu_executor.kernel import Shape
from gpu_executor.plan import round_up_to_class

MAX_RESULT_BYTES = 256 << 20
"""The bytes of the largest result whose memory is kept for later results."""


class OutputAllocator:
    """Allocates the arrays of results. Large arrays reuse the memory of dropped results."""

    def __init__(self, *, max_bytes: int = MAX_RESULT_BYTES) -> None:
        self._memory: ResultMemoryPool[None] = ResultMemoryPool()
        self._max_bytes = max_bytes

    @property
    def bytes_recycled(self) -> int:
        """The bytes of all recycled memory, with those of results that the caller holds."""
        return self._memory.nbytes

    def allocate(self, call: Call) -> int:
        """Allocate a call's outputs, unless the caller passed `out`; return the bytes of recycled
        memory among them.
        """
        if call.results:
            return 0
        results, recycled = [], 0
        signature = call.signature
        for (shape, dtype), nbytes in zip(signature.results, signature.result_bytes, strict=True):
            if MIN_RECYCLED_BYTES <= nbytes <= self._max_bytes:
                recycled += nbytes
                results.append(self._recycle(shape, dtype, nbytes))
            else:
                results.append(np.empty(shape, dtype))
        call.set_outputs(results)
        return recycled

    def list_idle(self) -> list[IdleItem]:
        """List the memory of all results, because no one can tell when a caller drops its result.

        The memory of a result that the caller holds is then freed when it is dropped.
        """
        self._memory.remove_held()
        return [
            IdleItem(entry.last_used, functools.partial(self._memory.remove, entry))
            for entry in self._memory.list_entries()
        ]

    def count_idle(self) -> int:
        """Return the bytes of the memory of dropped results."""
        return self._memory.count_unused_bytes()

    def clear(self) -> None:
        """Free the memory that is kept from earlier results."""
        for entry in self._memory.list_entries():
            self._memory.remove(entry)

    def _recycle(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> Array:
        """Return an array in the memory of a dropped result, or in memory that will be recycled."""
        found = self._memory.find(nbytes)
        if found is not None:
            return np.ndarray(shape, dtype, found[0])
        memory = np.empty(round_up_to_class(nbytes), np.uint8)
        self._memory.add(nbytes, memory, None)
        return np.ndarray(shape, dtype, memory)
