"""Cutting: pieces of calls that buffer sets can have room for, and the buckets they belong to."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NoReturn

from gpu_executor.call import Form
from gpu_executor.errors import DeviceLacksError, OutOfMemoryError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Piece
from gpu_executor.webgpu.borders import Borders
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.sets import regions, wanted_buffers


class Cutting:
    """By what the device binds, what a buffer can have and what all may have together."""

    def __init__(
        self, device: WebGpuDevice, pool: BufferPool, borders: Borders, *, maps_inputs: bool
    ) -> None:
        self._device, self._pool, self._borders = device, pool, borders
        self._maps_inputs = maps_inputs
        self._most: dict[Kernel, int] = {}

    def pieces(self, form: Form) -> list[Piece]:
        """A call that is larger than a buffer set may be is cut, where its kernel can be."""
        kernel, sizes = form.kernel, [operand.nbytes for operand in form.operands]
        if self._fits(kernel, sizes) and self._is_allowed(kernel, sizes):
            return [Piece(0, form.count)]
        chunk = 0 if kernel.split == "whole" else self._most_elements(kernel)
        if not chunk:
            self._refuse(kernel, sizes)
        starts = range(0, form.count, chunk)
        return [Piece(start, min(chunk, form.count - start)) for start in starts]

    def bucket_size(self, form: Form, count: int) -> int:
        """The bucket of a piece of so many elements."""
        return form.count if form.kernel.split == "whole" else self.bucket(form.kernel, count)

    def bucket(self, kernel: Kernel, count: int) -> int:
        """The bucket of so many elements, or of the most that a buffer set can have."""
        most = self._most_elements(kernel)
        count = min(count, most)
        return max(count, min(self._borders.bucket(count), most))

    def _most_elements(self, kernel: Kernel) -> int:
        """How many a buffer set can have room for."""
        known = self._most.get(kernel)
        if known is None:
            types = kernel.types
            assert types is not None, "kernels for WebGPU name their types"

            def is_too_large(count: int) -> bool:
                sizes = [count * each.nbytes for each in types]
                return not (self._fits(kernel, sizes) and self._is_allowed(kernel, sizes))

            counts = range(1, self._device.most_bound)
            known = self._most[kernel] = bisect.bisect_left(counts, True, key=is_too_large)
        return known

    def _fits(self, kernel: Kernel, sizes: Sequence[int]) -> bool:
        """Whether the device can have a set for arrays of so many bytes."""
        both = regions(kernel, sizes)
        return (
            max(size for region in both for size in region.sizes) <= self._device.most_bound
            and max(region.nbytes for region in both) <= self._device.most_in_buffer
        )

    def _is_allowed(self, kernel: Kernel, sizes: Sequence[int]) -> bool:
        """Whether it may have one."""
        limit = self._pool.limit
        return limit is None or self._set_bytes(kernel, sizes) <= limit

    def _set_bytes(self, kernel: Kernel, sizes: Sequence[int]) -> int:
        both = regions(kernel, sizes)
        wanted = wanted_buffers(*both, self._device, maps_inputs=self._maps_inputs)
        return sum(self._pool.size_of(nbytes) for nbytes, _ in wanted.values())

    def _refuse(self, kernel: Kernel, sizes: Sequence[int]) -> NoReturn:
        cannot = "cannot be cut" if kernel.split == "whole" else "is cut to elements, no further"
        if self._fits(kernel, sizes):
            raise OutOfMemoryError(
                f"{kernel.name}: these arrays need {self._set_bytes(kernel, sizes):,} bytes of "
                f"buffers, GPU_MEMORY_LIMIT allows {self._pool.limit:,}, and this kernel {cannot}"
            )
        raise DeviceLacksError(
            f"{kernel.name}: these arrays need more than the {self._device.most_bound:,} bytes "
            f"that {self._device.name} binds or the {self._device.most_in_buffer:,} of a "
            f"buffer, and this kernel {cannot}"
        )
