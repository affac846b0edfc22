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
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from gpu_executor.call import Array, Call, Operand
from gpu_executor.errors import DeviceLostError, ElementRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import DataPath, Piece, Plan
from gpu_executor.telemetry.stages import Record
from gpu_executor.vulkan.buffers import SlotBuffers
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


@dataclass(frozen=True, slots=True)
class Recording:
    """Commands for a number of elements, and the mapped memory of just those elements."""

    submission: Submission
    inputs: Sequence[Array]
    outputs: Sequence[Array]


class Slot:
    """Buffers, descriptors and commands. One call at a time uses it."""

    def __init__(self, resources: Resources, layout: SlotLayout) -> None:
        kernel = layout.kernel
        self.layout = layout
        self.record = Record()
        """What was done with this slot; its user adds to it."""
        self._device, self._timeline = resources.device, resources.timeline
        self._recordings: OrderedDict[int, Recording] = OrderedDict()
        self._running: tuple[Recording, Piece] | None = None
        with contextlib.ExitStack() as undo:
            with self.record.stage("pipeline"):
                self._pipeline = resources.pipelines.acquire(
                    kernel, layout.work_group, layout.per_invocation
                )
                undo.callback(resources.pipelines.release, self._pipeline)
            with self.record.stage("descriptors"):
                self._buffers = SlotBuffers(resources.memory, kernel, layout.operands, layout.path)
                undo.callback(self._buffers.release)
                self._set = resources.descriptors.allocate(self._pipeline, self._buffers.ranges())
                undo.callback(resources.descriptors.release, self._set)
            with self.record.stage("recording"):
                self._pool = CommandPool(resources.device)
                undo.callback(self._pool.close)
            self._undo = undo.pop_all()

    def recording(self, count: int, groups: int) -> Recording:
        """The commands for that many elements, recorded now if they are not yet."""
        known = self._recordings.get(count)
        if known is None:
            with self.record.stage("recording"):
                known = self._recordings[count] = self._record(count, groups)
            self.record.recordings += 1
        return known

    def start(self, call: Call, piece: Piece, groups: int) -> None:
        """Fill the slot with a piece of the call and hand it to the device; returns at once."""
        if self._running is not None:
            self.abandon()  # a call that was interrupted twice left it running
        recording = self.recording(piece.count, groups)
        begun = perf_counter_ns()
        self.fill(recording, call, piece)
        self.record.upload += perf_counter_ns() - begun
        self._timeline.submit(recording.submission)
        self._running = recording, piece

    def finish(self, call: Call) -> None:
        """Wait for the piece that was started last and drain it."""
        if self._running is None:
            raise AssertionError("nothing was started in this slot")
        recording, piece = self._running
        begun = perf_counter_ns()
        self.wait()
        done = perf_counter_ns()
        self.drain(recording, call, piece)
        record = self.record
        record.compute += done - begun
        record.download += perf_counter_ns() - done
        record.pieces += 1

    def abandon(self) -> None:
        """Wait for what was started and forget it, with anything the kernel reported."""
        self.wait()
        self._buffers.take_status()

    def wait(self) -> None:
        """Return when the device is done with what was started, if anything was."""
        if self._running is not None:
            self._timeline.wait(self._running[0].submission)
            self._running = None

    def fill(self, recording: Recording, call: Call, piece: Piece) -> None:
        """Copy a piece of the inputs into mapped memory."""
        whole = piece.count == call.form.count
        for view, array in zip(recording.inputs, call.inputs):  # noqa: B905 - on every call's path
            view[...] = array if whole else array[piece.start : piece.start + piece.count]

    def drain(self, recording: Recording, call: Call, piece: Piece) -> None:
        """Copy a piece of the outputs to the caller's arrays; raise what the kernel found."""
        code = self._buffers.take_status()
        if code is not None:
            kernel = self.layout.kernel
            element, argument = divmod(code, kernel.inputs)
            raise ElementRangeError(kernel.name, argument, piece.start + element)
        if not self._buffers.coherent:
            self._buffers.make_outputs_visible(self._device)
        whole = piece.count == call.form.count
        for view, array in zip(recording.outputs, call.outputs):  # noqa: B905 - as above
            part = array if whole else array[piece.start : piece.start + piece.count]
            part[...] = view

    def close(self) -> None:
        """Give everything back, when the device is done with it."""
        with contextlib.suppress(DeviceLostError):
            self.wait()
        self._undo.close()

    def _record(self, count: int, groups: int) -> Recording:
        """Commands for that many elements, in the command buffer of the oldest such recording."""
        if len(self._recordings) < RECORDINGS_KEPT:
            commands = self._pool.allocate()
        else:
            commands = self._recordings.popitem(last=False)[1].submission.commands
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
        submission = self._timeline.prepare(commands)
        return Recording(submission, inputs.parts(moved), outputs.parts(moved))
