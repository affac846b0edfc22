"""The buffers of one slot: the range of every operand, and the host's views of them.

Operands of equal access share one allocation. Each operand is aligned, so that it can be bound at
its offset. On the host-visible path the kernel works on the mapped allocations. On the device-local
path the kernel works on device memory, and the mapped allocations are the staging; but the host
fills inputs in device memory where it can write there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_executor.call import Array, Operand
from gpu_executor.kernel import Kernel
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.plan import DataPath
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import Copy, Fill
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
FILL_UNIT = 4
"""vkCmdFillBuffer writes multiples of this many bytes."""
ZERO = b"\0\0\0\0"
BufferOffset = tuple[Handle, int]


@dataclass(frozen=True, slots=True)
class OperandRanges:
    """Where the caller's arrays of one operand lie, if the device can use them where they are.

    `source` is what the operand is read from, `target` what it is written to. An in-out operand has
    both. None is an array that the host copies, or that does not exist.
    """

    source: BufferRange | None = None
    target: BufferRange | None = None


def pair_ranges(operands: Sequence[Operand], ranges: BufferRanges | None) -> list[OperandRanges]:
    """Pair the ranges of a call's inputs and outputs with the operands."""
    if ranges is None:
        return [OperandRanges()] * len(operands)
    inputs = sum(operand.is_input for operand in operands)
    sources, targets = iter(ranges[:inputs]), iter(ranges[inputs:])
    return [
        OperandRanges(
            next(sources) if operand.is_input else None,
            next(targets) if operand.is_output else None,
        )
        for operand in operands
    ]


@dataclass(frozen=True, slots=True)
class OperandBuffer:
    """The slot's own memory of one operand."""

    operand: Operand
    binding: int
    mapped: Allocation
    bound: Allocation
    """What the kernel binds: the mapped allocation itself, or its counterpart in device memory."""
    staged: bool
    """Whether the kernel works on device memory alone: the device-local path."""
    offset: int
    """Of the operand in both allocations, in bytes."""
    view: Array
    """All elements in the mapped allocation."""
    init: bytes | None
    """The bytes of the element that fills a pure output; None leaves it as it is."""

    def find_bound_range(self, ranges: OperandRanges) -> BufferRange | None:
        """Return the caller's range that the kernel works on; None: the slot's own memory.

        An in-out operand is bound in place only if its array is also the result.
        """
        operand, staged = self.operand, self.staged
        if operand.is_input and operand.is_output:
            target = ranges.target
            if target is not None and (
                target.on_device or (not staged and ranges.source == target)
            ):
                return target
            return None
        one = ranges.source if operand.is_input else ranges.target
        return one if one is not None and (one.on_device or not staged) else None

    def locate(self, ranges: OperandRanges) -> BufferOffset:
        """Return the buffer and offset that the kernel works on."""
        found = self.find_bound_range(ranges)
        if found is not None:
            return found.buffer, found.offset
        return self.bound.buffer, self.bound.offset + self.offset

    def make_upload(self, ranges: OperandRanges, count: int | None) -> Copy | None:
        """Make the copy that brings an input to the kernel's memory, if it is not there."""
        if not self.operand.is_input:
            return None
        source, target = self._locate_host(ranges.source), self.locate(ranges)
        return None if source == target else Copy(*source, *target, self.count_bytes(count))

    def make_download(self, ranges: OperandRanges, count: int | None) -> Copy | None:
        """Make the copy that takes an output from the kernel's memory, if it is elsewhere."""
        if not self.operand.is_output:
            return None
        source, target = self.locate(ranges), self._locate_host(ranges.target)
        return None if source == target else Copy(*source, *target, self.count_bytes(count))

    def make_fill(self, ranges: OperandRanges, count: int | None) -> Fill | None:
        """Make the fill of a pure output with its initial value, if it has one."""
        if self.init is None:
            return None
        nbytes = -(-self.count_bytes(count) // FILL_UNIT) * FILL_UNIT
        return Fill(*self.locate(ranges), nbytes, self.init)

    def count_bytes(self, count: int | None) -> int:
        """Return the bytes of the first `count` elements (None: of all)."""
        return self.operand.nbytes if count is None else count * self.operand.type.nbytes

    def _locate_host(self, caller: BufferRange | None) -> BufferOffset:
        if caller is None:
            return self.mapped.buffer, self.mapped.offset + self.offset
        return caller.buffer, caller.offset


class SlotBuffers:
    """The memory of one slot, allocated and released as a whole."""

    def __init__(
        self,
        memory: MemoryPool,
        kernel: Kernel,
        operands: Sequence[Operand],
        path: DataPath,
        scratch_bytes: int = 0,
        params_binding: int | None = None,
    ) -> None:
        """`params_binding` is the binding of a uniform buffer for the kernel's push constants."""
        self._memory = memory
        self.allocations: list[Allocation] = []
        try:
            self.operands = self._allocate_operands(kernel, operands, path == "device-local")
            self._readback = [each.mapped for each in self.operands if each.operand.is_output]
            self.coherent = all(each.block.coherent for each in self._readback)
            self._status: Handle | None = None
            self.hidden_ranges: list[DescriptorRange] = []
            """What the kernel binds behind its arguments: scratch buffer and status word."""
            self.scratch_fill: Fill | None = None
            bindings = [each.binding for each in kernel.interface.buffers[len(operands) :]]
            if kernel.scratch is not None:
                nbytes = max(scratch_bytes, FILL_UNIT)
                scratch = self._allocate(Purpose.DEVICE, nbytes)
                self.hidden_ranges.append(
                    DescriptorRange(bindings[0], scratch.buffer, scratch.offset, nbytes)
                )
                if scratch_bytes:
                    self.scratch_fill = Fill(scratch.buffer, scratch.offset, nbytes, ZERO)
            if kernel.status:
                # In host memory on both paths: a kernel writes it on invalid input only.
                word = self._allocate(Purpose.UPLOAD, STATUS_BYTES)
                self._status = vk.ffi.cast("uint32_t *", word.address)
                self._status[0] = STATUS_CLEAR
                self.hidden_ranges.append(
                    DescriptorRange(bindings[-1], word.buffer, word.offset, STATUS_BYTES)
                )
            self._uniform = self._push = None
            uniform = kernel.interface.uniform
            if uniform is not None:
                self._uniform = self._allocate_uniform(uniform.binding, uniform.nbytes)
            if params_binding is not None:
                self._push = self._allocate_uniform(params_binding, kernel.push_bytes)
        except BaseException:
            self.release()
            raise

    def list_descriptor_ranges(
        self, ranges: Sequence[OperandRanges], count: int | None
    ) -> list[DescriptorRange]:
        """Return exactly the range of the piece that each descriptor binds, so that `length()` in
        the code is the number of elements.
        """
        return [
            DescriptorRange(each.binding, *each.locate(own), each.count_bytes(count))
            for each, own in zip(self.operands, ranges, strict=True)
        ] + self.hidden_ranges

    def write_uniform(self, data: bytes) -> None:
        """Write the contents of the kernel's uniform buffer."""
        assert self._uniform is not None
        self._uniform[:] = data

    def write_push(self, data: bytes) -> None:
        """Write the push constants that are in a uniform buffer."""
        assert self._push is not None
        self._push[:] = data

    def take_status(self) -> int | None:
        """Return the code that the kernel wrote, or None; the status word is cleared."""
        if self._status is None or (code := int(self._status[0])) == STATUS_CLEAR:
            return None
        self._status[0] = STATUS_CLEAR
        return code

    def make_outputs_visible(self, device: Device) -> None:
        """Invalidate the host's caches over outputs in memory that is not host-coherent."""
        for allocation in self._readback:
            if not allocation.block.coherent:
                invalidate_block(device, allocation.block)

    def release(self) -> None:
        for allocation in self.allocations:
            self._memory.release(allocation)
        self.allocations.clear()

    def _allocate_operands(
        self, kernel: Kernel, operands: Sequence[Operand], staged: bool
    ) -> list[OperandBuffer]:
        """Allocate inputs in memory that the host writes fast, the others in memory that it reads
        fast.
        """
        made: dict[int, OperandBuffer] = {}
        init = iter(kernel.init)
        values = [None if operand.is_input else next(init) for operand in operands]
        purposes = (self._memory.input_purpose, False), (Purpose.READBACK, True)
        for purpose, is_output in purposes:
            group = [
                (index, operand)
                for index, operand in enumerate(operands)
                if operand.is_output == is_output
            ]
            if not group:
                continue
            offsets = list(self._lay_out([operand for _, operand in group]))
            mapped = self._allocate(purpose, offsets[-1])
            bound = mapped
            if staged and mapped.block.purpose is not Purpose.INPUT:
                bound = self._allocate(Purpose.DEVICE, offsets[-1])
            for (index, operand), offset in zip(group, offsets, strict=False):
                view = mapped_view(mapped, offset, operand.count, operand.type)
                binding = kernel.arguments[index].binding
                made[index] = OperandBuffer(
                    operand, binding, mapped, bound, staged, offset, view, values[index]
                )
        return [made[index] for index in range(len(operands))]

    def _allocate_uniform(self, binding: int, nbytes: int) -> Handle:
        """Allocate a uniform buffer; return its mapped memory as a cffi buffer."""
        block = self._allocate(Purpose.UPLOAD, nbytes)
        self.hidden_ranges.append(
            DescriptorRange(binding, block.buffer, block.offset, nbytes, uniform=True)
        )
        return vk.ffi.buffer(vk.ffi.cast("char *", block.address), nbytes)

    def _lay_out(self, operands: Sequence[Operand]) -> Iterator[int]:
        """Yield the offset of each operand, then the end of the last."""
        alignment, end = self._memory.alignment, 0
        for operand in operands:
            yield end
            end += -(-operand.nbytes // alignment) * alignment
        yield end

    def _allocate(self, purpose: Purpose, nbytes: int) -> Allocation:
        allocation = self._memory.allocate(purpose, nbytes)
        self.allocations.append(allocation)
        return allocation
