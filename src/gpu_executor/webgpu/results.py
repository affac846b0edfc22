"""Arrays for results: large ones lie in memory that earlier results had."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_executor.call import Array, Call
from gpu_executor.kernel import Shape
from gpu_executor.recycling import SMALLEST, Recycled

MOST_BYTES = 256 << 20


class Results:
    """One of these belongs to an executor."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._recycled: Recycled[None] = Recycled()
        self._most_bytes = most_bytes

    def make(self, call: Call) -> None:
        """Make room for a call's outputs, unless the caller gave it."""
        if call.results:
            return
        outputs = call.form.operands[call.form.kernel.inputs :]
        sizes = [output.nbytes for output in outputs]
        call.set_outputs(
            [
                self._array(shape, dtype, nbytes)
                for (shape, dtype), nbytes in zip(call.form.results, sizes, strict=True)
            ]
        )

    def clear(self) -> None:
        self._recycled.clear()

    def _array(self, shape: Shape, dtype: np.dtype[Any], nbytes: int) -> Array:
        if not SMALLEST <= nbytes <= self._most_bytes:
            return np.empty(shape, dtype)
        found = self._recycled.find(nbytes)
        if found is not None:
            return np.ndarray(shape, dtype, found[0])
        if self._recycled.nbytes + nbytes > self._most_bytes:
            self._recycled.clear()
        memory = np.empty(nbytes, np.uint8)
        self._recycled.add(nbytes, memory, None)
        return np.ndarray(shape, dtype, memory)
