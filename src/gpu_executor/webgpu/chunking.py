"""Chunking: divides calls into chunks that a buffer set can hold, and finds their buckets."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NoReturn

from gpu_executor.calls.call import MAX_SIGNATURES, Signature
from gpu_executor.common.lru import remember
from gpu_executor.errors import DeviceLacksError, OutOfMemoryError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import ElementRange
from gpu_executor.plan.plan import WORK_GROUP_SIZES
from gpu_executor.webgpu.boundaries import BucketBoundaries
from gpu_executor.webgpu.buffer_layout import BufferLayout, describe_buffers
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice


class ChunkPlanner:
    """Plans chunks within three limits: the largest binding and the largest buffer of the device,
    and the memory limit of the pool."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        boundaries: BucketBoundaries,
        *,
        maps_inputs: bool,
    ) -> None:
        self._device, self._pool, self._boundaries = device, pool, boundaries
        self._maps_inputs = maps_inputs
        self._max_counts: dict[Kernel, int] = {}
        self._undivided: dict[Signature, tuple[ElementRange]] = {}
        """The only chunk of calls that fit in one buffer set, by their signature."""

    @property
    def is_adaptive(self) -> bool:
        """Whether the buckets follow the sizes of the calls."""
        return self._boundaries.adaptive

    def split(self, signature: Signature) -> Sequence[ElementRange]:
        """Return the chunks of a call: one if a buffer set can hold the call, else several.

        A call that is too large raises if its kernel cannot be chunked.
        """
        known = self._undivided.get(signature)
        if known is not None:
            return known
        kernel, sizes = signature.kernel, [operand.nbytes for operand in signature.operands]
        layout = BufferLayout.pack(kernel, sizes, signature.scratch_bytes)
        fits_grid = kernel.split == "whole" or signature.count <= self._count_grid_elements(kernel)
        if fits_grid and self._fits_device(layout) and self._fits_limit(layout):
            whole = (ElementRange(0, signature.count),)
            remember(self._undivided, signature, whole, MAX_SIGNATURES)
            return whole
        chunk = 0 if kernel.split == "whole" else self._compute_max_count(kernel)
        if not chunk:
            self._refuse(kernel, layout)
        starts = range(0, signature.count, chunk)
        return [ElementRange(start, min(chunk, signature.count - start)) for start in starts]

    def find_chunk_bucket(self, signature: Signature, count: int) -> int:
        """Return the bucket of a chunk of `count` elements of a call."""
        if signature.kernel.split == "whole":
            return signature.invocations
        return self.find_bucket(signature.kernel, count)

    def find_bucket(self, kernel: Kernel, count: int) -> int:
        """Return the bucket of `count` elements, at most the largest that a buffer set can hold."""
        most = self._compute_max_count(kernel)
        count = min(count, most)
        return max(count, min(self._boundaries.find_bucket(count), most))

    def _compute_max_count(self, kernel: Kernel) -> int:
        """Return how many elements a buffer set can hold."""
        known = self._max_counts.get(kernel)
        if known is None:
            types = kernel.types

            def is_too_large(count: int) -> bool:
                layout = BufferLayout.pack(kernel, [count * each.nbytes for each in types])
                return not (self._fits_device(layout) and self._fits_limit(layout))

            most = min(self._device.max_binding_bytes, self._count_grid_elements(kernel) + 1)
            counts = range(1, most)
            known = self._max_counts[kernel] = bisect.bisect_left(counts, True, key=is_too_large)
        return known

    def _count_grid_elements(self, kernel: Kernel) -> int:
        """Return how many elements the work-groups of a dispatch surely cover: those of SPIR-V are
        in one row, those of WGSL in several."""
        if kernel.wgsl is not None:
            return self._device.max_binding_bytes
        return self._device.max_groups * WORK_GROUP_SIZES[0]

    def _fits_device(self, layout: BufferLayout) -> bool:
        """Return whether the device can make and bind the buffers of a set."""
        return (
            layout.find_largest_binding() <= self._device.max_binding_bytes
            and layout.find_largest_buffer() <= self._device.max_buffer_bytes
        )

    def _fits_limit(self, layout: BufferLayout) -> bool:
        """Return whether the memory limit allows the buffers of a set."""
        limit = self._pool.limit
        return limit is None or self._count_bytes(layout) <= limit

    def _count_bytes(self, layout: BufferLayout) -> int:
        buffers = describe_buffers(layout, self._device, maps_inputs=self._maps_inputs)
        return sum(self._pool.round_up(nbytes) for nbytes, _ in buffers.values())

    def _refuse(self, kernel: Kernel, layout: BufferLayout) -> NoReturn:
        reason = "this kernel cannot be chunked"
        if kernel.split != "whole":
            reason = "even one element does not fit"
        if self._fits_device(layout):
            raise OutOfMemoryError(
                f"{kernel.name}: these arrays need {self._count_bytes(layout):,} bytes of "
                f"buffers; GPU_MEMORY_LIMIT allows {self._pool.limit:,}, and {reason}"
            )
        raise DeviceLacksError(
            f"{kernel.name}: these arrays need more than the {self._device.max_binding_bytes:,} "
            f"bytes that {self._device.name} can bind, or more than the "
            f"{self._device.max_buffer_bytes:,} bytes that one of its buffers can hold, and "
            f"{reason}"
        )
