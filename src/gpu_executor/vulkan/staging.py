"""Staging: mapped memory that data passes through on its way to the card or back, part by part.

While the device copies one part the host copies the next.
"""

from __future__ import annotations

import weakref

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernel import ElementType
from gpu_executor.vulkan.arrays import mapped_view
from gpu_executor.vulkan.chain import Chain
from gpu_executor.vulkan.memory import MemoryPool, Purpose

PART_BYTES = 32 << 20
PARTS = 2
"""In flight at once in each direction. 128 MiB to an NVIDIA H200 took 5.5 ms so, 6.7 ms in parts of
16 MiB, 10.9 in parts of 8: eight threads share a large part, one or two a small one."""
BYTES = ElementType(np.dtype(np.uint8))


class Staging:
    """Memory for one part; it goes back to the pool when nobody holds this any more."""

    __slots__ = ("__weakref__", "allocation")

    def __init__(self, memory: MemoryPool, chain: Chain, purpose: Purpose, nbytes: int) -> None:
        self.allocation = chain.allocate(purpose, nbytes)
        weakref.finalize(self, memory.release_when_possible, self.allocation).atexit = False

    def view(self, nbytes: int) -> Array:
        """Its first bytes."""
        return mapped_view(self.allocation, 0, nbytes, BYTES)


def cut_in_parts(flat: Array) -> list[Array]:
    """Bytes, part by part."""
    return [flat[start : start + PART_BYTES] for start in range(0, len(flat), PART_BYTES)]
