"""The layout of a slot, and its buffers: the range of every operand, and the host's views of them.

Operands of equal access share one allocation. Each operand is aligned, so that it can be bound at
its offset. On the host-visible path the kernel works on the mapped allocations. On the device-local
path the kernel works on device memory, and the mapped allocations are the staging; but the host
fills inputs in device memory where it can write there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_executor.calls.call import Array, Operand, Signature
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.kernel import Kernel
from gpu_executor.plan import CallPlan, DataPath, QueueUse
from gpu_executor.steps.bound_steps import BoundStep, Copy
from gpu_executor.steps.call_binder import (
    BufferOffset,
    HiddenBuffer,
    HiddenUse,
    list_hidden_buffers,
)
from gpu_executor.steps.status import STATUS_CLEAR
from gpu_executor.vulkan.binding import Handle, get_integer, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.mapped_arrays import BufferRange, BufferRanges
from gpu_executor.vulkan.memory import (
    Allocation,
    MemoryPool,
    Purpose,
    invalidate_block,
    mapped_view,
)

SlotMemory = tuple[int, int]
"""Identifies the memory of an array: the handle of its buffer, and its offset there. Operands of a
slot do not overlap, and callers' arrays that overlap in part are refused (`calls/call.py`)."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """What distinguishes slots: calls with equal layouts can use the same slot."""

    kernel: Kernel
    path: DataPath
    queues: QueueUse
    work_group: int
    per_invocation: int
    operands: tuple[Operand, ...]
    """With the element counts that the slot has room for, not those of a call."""
    profiled: bool = False
    """Whether the commands write timestamps."""
    shape_words: bytes = b""
    """Appended to the kernel's push constants."""
    scratch_bytes: int = 0

    @classmethod
    def of(cls, plan: CallPlan, signature: Signature, *, profiled: bool = False) -> SlotLayout:
        """Make the layout for calls of a signature under a plan."""
        kernel, operands = signature.kernel, signature.operands
        if kernel.split == "elements":
            operands = tuple(operand.resize(plan.capacity) for operand in operands)
        return cls(
            kernel,
            plan.path,
            plan.queues,
            plan.work_group,
            plan.per_invocation,
            operands,
            profiled,
            signature.shape_words,
            signature.scratch_bytes,
        )


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
    mapped: Allocation
    bound: Allocation
    """What the kernel binds: the mapped allocation itself, or its counterpart in device memory."""
    staged: bool
    """Whether the kernel works on device memory alone: the device-local path."""
    offset: int
    """Of the operand in both allocations, in bytes."""
    view: Array
    """All elements in the mapped allocation."""

    def _find_bound_range(self, ranges: OperandRanges) -> BufferRange | None:
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

    def locate(self, ranges: OperandRanges) -> BufferOffset[SlotMemory]:
        """Return where the elements are that the kernel works on."""
        found = self._find_bound_range(ranges)
        return _locate(self.bound, self.offset) if found is None else _locate_range(found)

    def make_upload(self, ranges: OperandRanges, count: int | None) -> BoundStep[SlotMemory] | None:
        """Make the copy that brings an input to the kernel's memory, if it is not there."""
        if not self.operand.is_input:
            return None
        return self._make_copy(self._locate_host(ranges.source), self.locate(ranges), count)

    def make_download(
        self, ranges: OperandRanges, count: int | None
    ) -> BoundStep[SlotMemory] | None:
        """Make the copy that takes an output from the kernel's memory, if it is elsewhere."""
        if not self.operand.is_output:
            return None
        return self._make_copy(self.locate(ranges), self._locate_host(ranges.target), count)

    def _make_copy(
        self, source: BufferOffset[SlotMemory], target: BufferOffset[SlotMemory], count: int | None
    ) -> BoundStep[SlotMemory] | None:
        """Make the copy of the first `count` elements (None: of all) from one buffer to another;
        None if both are the same."""
        if source.memory == target.memory:
            return None
        nbytes = self.operand.nbytes if count is None else count * self.operand.type.nbytes
        copy = Copy(source.buffer, source.offset, target.buffer, target.offset, nbytes)
        return BoundStep(copy, (source.memory, target.memory), 1)

    def _locate_host(self, caller: BufferRange | None) -> BufferOffset[SlotMemory]:
        return _locate(self.mapped, self.offset) if caller is None else _locate_range(caller)


def _locate(allocation: Allocation, offset: int = 0) -> BufferOffset[SlotMemory]:
    block, at = allocation.block, allocation.offset + offset
    return BufferOffset(block.buffer, block.handle, at, (block.handle, at))


def _locate_range(buffer_range: BufferRange) -> BufferOffset[SlotMemory]:
    handle = get_integer(buffer_range.buffer)
    return BufferOffset(
        buffer_range.buffer, handle, buffer_range.offset, (handle, buffer_range.offset)
    )


class SlotBuffers:
    """The memory of one slot, allocated and released as a whole."""

    def __init__(
        self, memory: MemoryPool, layout: SlotLayout, params_binding: int | None = None
    ) -> None:
        """`params_binding` is the binding of a uniform buffer for the kernel's push constants."""
        self._memory = memory
        self.allocations: list[Allocation] = []
        try:
            self.operands = self._allocate_operands(layout.operands, layout.path == "device-local")
            self._readback = [each.mapped for each in self.operands if each.operand.is_output]
            self.coherent = all(each.block.coherent for each in self._readback)
            self._status: Handle = None
            self._uniform: Handle = None
            self._push: Handle = None
            self.hidden: dict[HiddenUse, HiddenBuffer[SlotMemory]] = {}
            sizes = list_hidden_buffers(layout.kernel, layout.scratch_bytes, params_binding)
            for use, nbytes in sizes.items():
                self._allocate_hidden(use, nbytes)
        except BaseException:
            self.release()
            raise

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

    def _allocate_operands(self, operands: Sequence[Operand], staged: bool) -> list[OperandBuffer]:
        """Allocate inputs in memory that the host writes fast, the others in memory that it reads
        fast.
        """
        made: dict[int, OperandBuffer] = {}
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
                made[index] = OperandBuffer(operand, mapped, bound, staged, offset, view)
        return [made[index] for index in range(len(operands))]

    def _allocate_hidden(self, use: HiddenUse, nbytes: int) -> None:
        """Allocate a hidden buffer: scratch memory on the device, the others where the host reads
        and writes them, on both paths. A kernel lowers its status word on invalid input only."""
        purpose = Purpose.DEVICE if use == "scratch" else Purpose.UPLOAD
        made = self._allocate(purpose, nbytes)
        block, memory = made.block, None
        if use == "scratch":
            memory = block.handle, made.offset
        elif use == "status":
            self._status = vk.ffi.cast("uint32_t *", made.address)
            self._status[0] = STATUS_CLEAR
        elif use == "uniform":
            self._uniform = _map_bytes(made, nbytes)
        elif use == "push":
            self._push = _map_bytes(made, nbytes)
        self.hidden[use] = HiddenBuffer(block.buffer, block.handle, made.offset, nbytes, memory)

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


def _map_bytes(allocation: Allocation, nbytes: int) -> Handle:
    """Return mapped memory as a cffi buffer."""
    return vk.ffi.buffer(vk.ffi.cast("char *", allocation.address), nbytes)
