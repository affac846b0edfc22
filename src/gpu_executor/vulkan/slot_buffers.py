"""The buffers of one slot: the range of every operand, and the host's views of them.

All inputs share one allocation and all outputs another. Each operand is aligned, so that it can be
bound at its offset. On the host-visible path the kernel works on the mapped allocations. On the
device-local path the kernel works on device memory, and the mapped allocations are the staging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_executor.call import Array, Operand
from gpu_executor.kernel import Kernel
from gpu_executor.plan import DataPath
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.descriptors import DescriptorRange
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.mapped_arrays import BufferRange, BufferRanges
from gpu_executor.vulkan.memory import (
    Allocation,
    MemoryPool,
    Purpose,
    invalidate_block,
    mapped_view,
)

STATUS_CLEAR = 0xFFFFFFFF
"""The value of a status word that no invocation has written."""
STATUS_BYTES = 4
BufferOffset = tuple[Handle, int]


@dataclass(frozen=True, slots=True)
class OperandGroup:
    """The inputs or the outputs of a slot: their mapped memory, and what the kernel binds."""

    operands: Sequence[Operand]
    offsets: Sequence[int]
    mapped: Allocation
    bound: Allocation
    """What the kernel binds: the mapped allocation itself, or its counterpart in device memory."""
    views: Sequence[Array]

    @property
    def staged(self) -> bool:
        """Whether the mapped allocation is the staging of device memory."""
        return self.bound is not self.mapped

    def make_host_views(self, buffer_ranges: BufferRanges, count: int | None) -> list[Array | None]:
        """Return what the host copies: views of the first `count` elements (None: of all).

        An operand with a buffer range is not copied; its view is None.
        """
        return [
            view[:count] if buffer_range is None else None
            for view, buffer_range in zip(self.views, buffer_ranges, strict=True)
        ]

    def binds_in_place(self, buffer_ranges: BufferRanges) -> bool:
        """Whether the kernel binds any of the caller's arrays where they are."""
        return any(self._binds_range(buffer_range) for buffer_range in buffer_ranges)

    def list_descriptor_ranges(
        self, buffer_ranges: BufferRanges, count: int | None
    ) -> list[DescriptorRange]:
        """Return the range that each descriptor binds."""
        return [
            DescriptorRange(buffer_range.buffer, buffer_range.offset, _count_bytes(operand, count))
            if buffer_range is not None and self._binds_range(buffer_range)
            else DescriptorRange(self.bound.buffer, self.bound.offset + offset, operand.nbytes)
            for buffer_range, offset, operand in zip(
                buffer_ranges, self.offsets, self.operands, strict=True
            )
        ]

    def make_uploads(self, buffer_ranges: BufferRanges, count: int | None) -> list[Copy]:
        """Make the copies to the kernel's buffers, from staging or from the arrays' own ranges."""
        return [
            Copy(*host, *kernel, nbytes)
            for host, kernel, nbytes in self._pair_ranges(buffer_ranges, count)
        ]

    def make_downloads(self, buffer_ranges: BufferRanges, count: int | None) -> list[Copy]:
        """Make the copies from the kernel's buffers, to staging or to the arrays' own ranges."""
        return [
            Copy(*kernel, *host, nbytes)
            for host, kernel, nbytes in self._pair_ranges(buffer_ranges, count)
        ]

    def _pair_ranges(
        self, buffer_ranges: BufferRanges, count: int | None
    ) -> Iterator[tuple[BufferOffset, BufferOffset, int]]:
        if not self.staged:
            return
        for buffer_range, offset, operand in zip(
            buffer_ranges, self.offsets, self.operands, strict=True
        ):
            if buffer_range is None:
                host = self.mapped.buffer, self.mapped.offset + offset
            elif buffer_range.on_device:
                continue
            else:
                host = buffer_range.buffer, buffer_range.offset
            kernel = self.bound.buffer, self.bound.offset + offset
            yield host, kernel, _count_bytes(operand, count)

    def _binds_range(self, buffer_range: BufferRange | None) -> bool:
        return buffer_range is not None and (buffer_range.on_device or not self.staged)


def _count_bytes(operand: Operand, count: int | None) -> int:
    return operand.nbytes if count is None else count * operand.type.nbytes


class SlotBuffers:
    """The memory of one slot, allocated and released as a whole."""

    def __init__(
        self, memory: MemoryPool, kernel: Kernel, operands: Sequence[Operand], path: DataPath
    ) -> None:
        self._memory = memory
        self.allocations: list[Allocation] = []
        staged = path == "device-local"
        try:
            self.inputs = self._allocate_group(operands[: kernel.inputs], Purpose.UPLOAD, staged)
            self.outputs = self._allocate_group(operands[kernel.inputs :], Purpose.READBACK, staged)
            self.coherent = self.outputs.mapped.block.coherent
            self._status: Handle | None = None
            self.status_ranges: list[DescriptorRange] = []
            if kernel.status:
                # In host memory on both paths: a kernel writes it on invalid input only.
                word = self._allocate(Purpose.UPLOAD, STATUS_BYTES)
                self._status = vk.ffi.cast("uint32_t *", word.address)
                self._status[0] = STATUS_CLEAR
                self.status_ranges = [DescriptorRange(word.buffer, word.offset, STATUS_BYTES)]
        except BaseException:
            self.release()
            raise

    def list_descriptor_ranges(self) -> list[DescriptorRange]:
        """Return the ranges of the slot's own memory: inputs, outputs, status word."""
        no_ranges = [(None,) * len(side.operands) for side in (self.inputs, self.outputs)]
        return [
            *self.inputs.list_descriptor_ranges(no_ranges[0], None),
            *self.outputs.list_descriptor_ranges(no_ranges[1], None),
            *self.status_ranges,
        ]

    def take_status(self) -> int | None:
        """Return the code that the kernel wrote, or None; the status word is cleared."""
        if self._status is None or (code := int(self._status[0])) == STATUS_CLEAR:
            return None
        self._status[0] = STATUS_CLEAR
        return code

    def make_outputs_visible(self, device: Device) -> None:
        """Invalidate the host's caches over outputs in memory that is not host-coherent."""
        invalidate_block(device, self.outputs.mapped.block)

    def release(self) -> None:
        for allocation in self.allocations:
            self._memory.release(allocation)
        self.allocations.clear()

    def _allocate_group(
        self, operands: Sequence[Operand], purpose: Purpose, staged: bool
    ) -> OperandGroup:
        alignment = self._memory.alignment
        offsets, end = [], 0
        for operand in operands:
            offsets.append(end)
            end += -(-operand.nbytes // alignment) * alignment
        mapped = self._allocate(purpose, end)
        bound = self._allocate(Purpose.DEVICE, end) if staged else mapped
        views = [
            mapped_view(mapped, offset, operand.count, operand.type)
            for offset, operand in zip(offsets, operands, strict=True)
        ]
        return OperandGroup(operands, offsets, mapped, bound, views)

    def _allocate(self, purpose: Purpose, nbytes: int) -> Allocation:
        allocation = self._memory.allocate(purpose, nbytes)
        self.allocations.append(allocation)
        return allocation
