"""Slot: one set of buffers for one kernel, with its commands recorded once per number of elements.

    host-visible   fill -> kernel on mapped memory -> drain
    device-local   fill -> copy in -> kernel on device memory -> copy out -> drain

The part between fill and drain is one command buffer, and submitting it again is all that a call of
a known size does.
"""

from __future__ import annotations

import contextlib
import struct
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from gpu_executor.call import Array, Call, Operand
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import DataPath, Piece, Plan
from gpu_executor.telemetry.stages import StageTimes
from gpu_executor.vulkan.buffers import STATUS_CLEAR, SlotBuffers
from gpu_executor.vulkan.commands import CommandPool, Recorder
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.timeline import Submission, Timeline

RECORDINGS_KEPT = 8
"""Different element counts that a slot has commands for at once: a chunk, its tail, a few more."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """What tells slots apart. Two calls with equal layouts can use the same slot."""

    kernel: Kernel
    path: DataPath
    work_group: int
    per_invocation: int
    operands: tuple[Operand, ...]
    """With the counts that the slot has room for, not those of any call."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Looked up twice in every call: hash once.
        parts = (self.kernel, self.path, self.work_group, self.per_invocation, self.operands)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, plan: Plan, kernel: Kernel, operands: tuple[Operand, ...]) -> SlotLayout:
        """The layout that a plan asks for, for a call with these operands."""
        if kernel.split == "elements":
            operands = tuple(Operand(operand.type, plan.capacity) for operand in operands)
        return cls(kernel, plan.path, plan.work_group, plan.per_invocation, operands)


@dataclass(frozen=True, slots=True)
class Resources:
    """The open device and the pools that slots are made from."""

    device: Device
    memory: MemoryPool
    pipelines: PipelineCache
    descriptors: DescriptorPools
    timeline: Timeline


class Slot:
    """Buffers, descriptors and commands. One call at a time uses it."""

    def __init__(self, resources: Resources, layout: SlotLayout, times: StageTimes) -> None:
        kernel = layout.kernel
        self.layout = layout
        self._resources = resources
        self._recordings: OrderedDict[int, Submission] = OrderedDict()
        self._running: Submission | None = None
        with contextlib.ExitStack() as undo:
            with times.stage("pipeline"):
                self._pipeline = resources.pipelines.acquire(
                    kernel, layout.work_group, layout.per_invocation
                )
                undo.callback(resources.pipelines.release, self._pipeline)
            with times.stage("descriptors"):
                self._buffers = SlotBuffers(resources.memory, kernel, layout.operands, layout.path)
                undo.callback(self._buffers.release)
                self._set = resources.descriptors.allocate(self._pipeline, self._buffers.ranges())
                undo.callback(resources.descriptors.release, self._set)
            with times.stage("recording"):
                self._pool = CommandPool(resources.device)
                undo.callback(self._pool.close)
            self._undo = undo.pop_all()

    def fill(self, call: Call, piece: Piece) -> None:
        """Copy a piece of the inputs into mapped memory."""
        for view, array in zip(self._buffers.inputs.views, call.inputs, strict=True):
            part = self._part(array, piece)
            np.copyto(view[: len(part)], part)
        if self._buffers.status is not None:
            self._buffers.status[0] = STATUS_CLEAR

    def prepare(self, count: int, groups: int, times: StageTimes) -> Submission:
        """The commands for that many elements, recorded now if they are not yet."""
        submission = self._recordings.get(count)
        if submission is None:
            with times.stage("recording"):
                submission = self._record(count, groups)
                times.recordings += 1
        return submission

    def submit(self, piece: Piece, groups: int, times: StageTimes) -> None:
        """Hand the piece to the device; returns at once."""
        submission = self.prepare(piece.count, groups, times)
        self._resources.timeline.submit(submission)
        self._running = submission

    def wait(self) -> None:
        """Return when the device is done with what was submitted, if anything was."""
        if self._running is not None:
            self._resources.timeline.wait(self._running)
            self._running = None

    def drain(self, call: Call, piece: Piece) -> None:
        """Copy a piece of the outputs to the caller's arrays; raise what the kernel found."""
        status = self._buffers.status
        if status is not None and (code := int(status[0])) != STATUS_CLEAR:
            element, argument = divmod(code, call.kernel.inputs)
            raise ElementRangeError(call.kernel.name, argument, piece.start + element)
        self._buffers.make_outputs_visible(self._resources.device)
        for view, array in zip(self._buffers.outputs.views, call.outputs, strict=True):
            part = self._part(array, piece)
            np.copyto(part, view[: len(part)])

    def close(self) -> None:
        """Give everything back. Nothing of it may be in flight."""
        self._undo.close()

    def _part(self, array: Array, piece: Piece) -> Array:
        if self.layout.kernel.split == "whole":
            return array
        return array[piece.start : piece.start + piece.count]

    def _record(self, count: int, groups: int) -> Submission:
        """Commands for that many elements, in the command buffer of the oldest such recording."""
        if len(self._recordings) < RECORDINGS_KEPT:
            commands = self._pool.allocate()
        else:
            commands = self._recordings.popitem(last=False)[1].commands
        inputs, outputs = self._buffers.inputs, self._buffers.outputs
        kernel = self.layout.kernel
        moved = None if kernel.split == "whole" else count
        with Recorder(commands) as recorder:
            if inputs.staged:
                recorder.copy(inputs.mapped, inputs.kernels, inputs.regions(moved))
                recorder.copies_before_kernel()
            push = struct.pack("<I", count) + kernel.push
            recorder.dispatch(self._pipeline, self._set, push, groups)
            if outputs.staged:
                recorder.kernel_before_copies()
                recorder.copy(outputs.kernels, outputs.mapped, outputs.regions(moved))
            recorder.all_before_host()
        submission = self._recordings[count] = self._resources.timeline.prepare(commands)
        return submission
