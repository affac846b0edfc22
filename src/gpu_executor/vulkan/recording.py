"""Recordings: the command buffers for one use of a slot, which can be submitted again and again."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.calibration import LARGE_COPY_BYTES
from gpu_executor.call import Array
from gpu_executor.kernel import Kernel
from gpu_executor.plan import QueueUse
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.mapped_arrays import BufferRanges
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import StageTimestamps
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot_buffers import SlotBuffers
from gpu_executor.vulkan.timeline import Submission, Timeline


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded commands, and the mapped memory that the host fills before and drains after them."""

    submissions: Sequence[tuple[Timeline, Submission]]
    """In submission order; when the last one is done, all are."""
    inputs: Sequence[Array | None]
    outputs: Sequence[Array | None]
    """Views of the elements that take part; None for an operand with a buffer range."""
    in_place_set: DescriptorSet | None
    """The descriptor set of a recording that binds the caller's arrays where they are."""
    fills: bool = False
    drains: bool = False
    """Whether the host copies anything in, or out."""
    large_fill: bool = False
    large_drain: bool = False
    """Whether the copy is large enough for the copy threads."""


class SlotRecorder:
    """Records the commands of one slot, with its command pools and descriptor sets."""

    def __init__(
        self,
        resources: Resources,
        kernel: Kernel,
        push: bytes,
        pipeline: Pipeline,
        buffers: SlotBuffers,
        queues: QueueUse,
        timestamps: StageTimestamps | None = None,
    ) -> None:
        self._kernel, self._push = kernel, push
        self._pipeline, self._buffers = pipeline, buffers
        self._timestamps = None if timestamps is None else timestamps.timestamps
        self._descriptors = resources.descriptors
        self._compute = resources.choose_compute_queue(queues)
        self._upload, self._download = resources.upload, resources.download
        with contextlib.ExitStack() as undo:
            self._set = self._descriptors.allocate(pipeline, buffers.list_descriptor_ranges())
            undo.callback(self._descriptors.release, self._set)
            self._pool = CommandPool(resources.device, self._compute.family)
            undo.callback(self._pool.close)
            self._copies: CommandPool | None = None
            if queues == "split" and self._upload is not None:
                self._copies = CommandPool(resources.device, self._upload.family)
                undo.callback(self._copies.close)
            self._undo = undo.pop_all()

    def record(
        self, count: int, groups: int, buffer_ranges: BufferRanges | None, oldest: Recording | None
    ) -> Recording:
        """Record the commands for `count` elements.

        The command buffers of `oldest` are recorded again.
        """
        reused: list[Handle] = []
        if oldest is not None:
            reused = [submission.commands for _, submission in oldest.submissions]
            self.release(oldest)
        inputs, outputs = self._buffers.inputs, self._buffers.outputs
        buffer_ranges = buffer_ranges or (None,) * (len(inputs.operands) + len(outputs.operands))
        sides = buffer_ranges[: len(inputs.operands)], buffer_ranges[len(inputs.operands) :]
        moved = None if self._kernel.split == "whole" else count
        in_place_set = self._make_in_place_set(sides, moved)
        try:
            push = struct.pack("<I", count) + self._push
            work = _PieceCommands(
                uploads=inputs.make_uploads(sides[0], moved),
                downloads=outputs.make_downloads(sides[1], moved),
                dispatch=(self._pipeline, in_place_set or self._set, push, groups),
            )
            submissions = (
                self._record_one_queue(work, reused)
                if self._copies is None
                else self._record_three_queues(work, self._copies, reused)
            )
        except BaseException:
            if in_place_set is not None:
                self._descriptors.release(in_place_set)
            raise
        filled, drained = (
            inputs.make_host_views(sides[0], moved),
            outputs.make_host_views(sides[1], moved),
        )
        into, back = _count_bytes(filled), _count_bytes(drained)
        return Recording(
            submissions,
            filled,
            drained,
            in_place_set,
            fills=into > 0,
            drains=back > 0,
            large_fill=into >= LARGE_COPY_BYTES,
            large_drain=back >= LARGE_COPY_BYTES,
        )

    def release(self, recording: Recording) -> None:
        """Release the descriptor set of a recording; its command buffers stay in their pools."""
        if recording.in_place_set is not None:
            self._descriptors.release(recording.in_place_set)

    def close(self) -> None:
        self._undo.close()

    def _make_in_place_set(
        self, sides: tuple[BufferRanges, BufferRanges], moved: int | None
    ) -> DescriptorSet | None:
        """Make a descriptor set that binds the caller's arrays; None if it would bind none."""
        inputs, outputs = self._buffers.inputs, self._buffers.outputs
        if not (inputs.binds_in_place(sides[0]) or outputs.binds_in_place(sides[1])):
            return None
        ranges = [
            *inputs.list_descriptor_ranges(sides[0], moved),
            *outputs.list_descriptor_ranges(sides[1], moved),
        ]
        return self._descriptors.allocate(self._pipeline, [*ranges, *self._buffers.status_ranges])

    def _record_one_queue(
        self, work: _PieceCommands, reused: list[Handle]
    ) -> list[tuple[Timeline, Submission]]:
        """Record everything in one command buffer for one queue."""
        commands = reused[0] if reused else self._pool.allocate()
        timestamps = self._timestamps
        with Recorder(commands) as recorder:
            if work.uploads:
                recorder.write_timestamp(timestamps, 0)
                recorder.copy(work.uploads)
                recorder.barrier_copies_to_kernel()
                recorder.write_timestamp(timestamps, 1)
            recorder.write_timestamp(timestamps, 2)
            recorder.dispatch(*work.dispatch)
            if work.downloads:
                recorder.barrier_kernel_to_copies()
                recorder.write_timestamp(timestamps, 3)
                recorder.write_timestamp(timestamps, 4)
                recorder.copy(work.downloads)
            recorder.barrier_all_to_host()
            recorder.write_timestamp(timestamps, 5 if work.downloads else 3)
        return [(self._compute, self._compute.prepare(commands))]

    def _record_three_queues(
        self, work: _PieceCommands, copies: CommandPool, reused: list[Handle]
    ) -> list[tuple[Timeline, Submission]]:
        """Record copy in, dispatch and copy out for three queues, ordered by semaphores."""
        assert self._upload is not None
        assert self._download is not None
        into, compute, back = reused or (
            copies.allocate(),
            self._pool.allocate(),
            copies.allocate(),
        )
        timestamps = self._timestamps
        with Recorder(into) as recorder:
            recorder.write_timestamp(timestamps, 0)
            recorder.copy(work.uploads)
            recorder.write_timestamp(timestamps, 1)
        with Recorder(compute) as recorder:
            recorder.write_timestamp(timestamps, 2)
            recorder.dispatch(*work.dispatch)
            recorder.barrier_all_to_host()
            recorder.write_timestamp(timestamps, 3)
        with Recorder(back) as recorder:
            recorder.write_timestamp(timestamps, 4)
            recorder.copy(work.downloads)
            recorder.barrier_copies_to_host()
            recorder.write_timestamp(timestamps, 5)
        copied = (self._upload, self._upload.prepare(into))
        reads = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        computed = (self._compute, self._compute.prepare(compute, [copied], reads))
        copies_back = vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        fetched = (self._download, self._download.prepare(back, [computed], copies_back))
        return [copied, computed, fetched]


def _count_bytes(views: Sequence[Array | None]) -> int:
    return sum(view.nbytes for view in views if view is not None)


@dataclass(frozen=True, slots=True)
class _PieceCommands:
    uploads: Sequence[Copy]
    downloads: Sequence[Copy]
    dispatch: tuple[Pipeline, DescriptorSet, bytes, int]
