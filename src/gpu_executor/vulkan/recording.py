"""Recordings: the command buffers for one use of a slot, which can be submitted again and again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.calibration import LARGE_COPY_BYTES
from gpu_executor.call import Array
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.plan import QueueUse
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import CommandPool, Copy, Fill, Recorder
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.mapped_arrays import BufferRanges
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import StageTimestamps
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot_buffers import SlotBuffers, pair_ranges
from gpu_executor.vulkan.timeline import Submission, Timeline


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded commands, and the mapped memory that the host fills before and drains after them."""

    submissions: Sequence[tuple[Timeline, Submission]] = ()
    """In submission order; when the last one is done, all are."""
    fills: Sequence[Array | None] = ()
    drains: Sequence[Array | None] = ()
    """Views of the elements that the host copies, for each array that the caller passes or gets
    back; None for an array with a buffer range."""
    descriptors: DescriptorSet | None = None
    fill_bytes: int = 0
    drain_bytes: int = 0

    @property
    def large_fill(self) -> bool:
        """Whether the fill is large enough for the copy threads."""
        return self.fill_bytes >= LARGE_COPY_BYTES

    @property
    def large_drain(self) -> bool:
        """Whether the drain is large enough for the copy threads."""
        return self.drain_bytes >= LARGE_COPY_BYTES


@dataclass(frozen=True, slots=True)
class PieceCommands:
    """The commands of one piece: copies in, fills, a dispatch, copies out."""

    uploads: Sequence[Copy]
    clears: Sequence[Fill]
    downloads: Sequence[Copy]
    descriptors: DescriptorSet
    push: bytes
    grid: Grid


class SlotRecorder:
    """Records the commands of one slot, with its command pools and descriptor sets."""

    def __init__(
        self,
        resources: Resources,
        kernel: Kernel,
        pipeline: Pipeline,
        buffers: SlotBuffers,
        queues: QueueUse,
        timestamps: StageTimestamps | None = None,
    ) -> None:
        self._kernel = kernel
        self._pipeline, self._buffers = pipeline, buffers
        self._timestamps = None if timestamps is None else timestamps.timestamps
        self._descriptors = resources.descriptors
        self._compute = resources.choose_compute_queue(queues)
        self._upload, self._download = resources.upload, resources.download
        with contextlib.ExitStack() as undo:
            self._pool = CommandPool(resources.device, self._compute.family)
            undo.callback(self._pool.close)
            self._copies: CommandPool | None = None
            if queues == "split" and self._upload is not None:
                self._copies = CommandPool(resources.device, self._upload.family)
                undo.callback(self._copies.close)
            self._undo = undo.pop_all()

    def record(
        self,
        count: int,
        grid: Grid,
        push: bytes,
        buffer_ranges: BufferRanges | None,
        oldest: Recording | None,
    ) -> Recording:
        """Record the commands for `count` elements; `push` are all push constants.

        The command buffers of `oldest` are recorded again.
        """
        reused: list[Handle] = []
        if oldest is not None:
            reused = [submission.commands for _, submission in oldest.submissions]
            self.release(oldest)
        operands = self._buffers.operands
        ranges = pair_ranges([each.operand for each in operands], buffer_ranges)
        moved = None if self._kernel.split == "whole" else count
        pairs = list(zip(operands, ranges, strict=True))
        fills = [each.make_fill(own, moved) for each, own in pairs] + [self._buffers.scratch_fill]
        uploads = [each.make_upload(own, moved) for each, own in pairs]
        downloads = [each.make_download(own, moved) for each, own in pairs]
        descriptors = self._descriptors.allocate(
            self._pipeline, self._buffers.list_descriptor_ranges(ranges, moved)
        )
        try:
            commands = PieceCommands(
                [copy for copy in uploads if copy is not None],
                [fill for fill in fills if fill is not None],
                [copy for copy in downloads if copy is not None],
                descriptors,
                push,
                grid,
            )
            submissions = (
                self._record_one_queue(commands, reused)
                if self._copies is None
                else self._record_three_queues(commands, self._copies, reused)
            )
        except BaseException:
            self._descriptors.release(descriptors)
            raise
        filled = [
            each.view[:moved] if own.source is None else None
            for each, own in pairs
            if each.operand.is_input
        ]
        drained = [
            each.view[:moved] if own.target is None else None
            for each, own in pairs
            if each.operand.is_output
        ]
        return Recording(
            submissions,
            filled,
            drained,
            descriptors,
            _count_bytes(filled),
            _count_bytes(drained),
        )

    def release(self, recording: Recording) -> None:
        """Release the descriptor set of a recording; its command buffers stay in their pools."""
        if recording.descriptors is not None:
            self._descriptors.release(recording.descriptors)

    def close(self) -> None:
        self._undo.close()

    def _record_one_queue(
        self, work: PieceCommands, reused: list[Handle]
    ) -> list[tuple[Timeline, Submission]]:
        """Record everything in one command buffer for one queue."""
        commands = reused[0] if reused else self._pool.allocate()
        timestamps = self._timestamps
        with Recorder(commands) as recorder:
            if work.uploads:
                recorder.write_timestamp(timestamps, 0)
                recorder.copy(work.uploads)
                if not work.clears:
                    recorder.barrier_copies_to_kernel()
                recorder.write_timestamp(timestamps, 1)
            recorder.write_timestamp(timestamps, 2)
            self._dispatch(recorder, work)
            if work.downloads:
                recorder.barrier_kernel_to_copies()
                recorder.write_timestamp(timestamps, 3)
                recorder.write_timestamp(timestamps, 4)
                recorder.copy(work.downloads)
            recorder.barrier_all_to_host()
            recorder.write_timestamp(timestamps, 5 if work.downloads else 3)
        return [(self._compute, self._compute.prepare(commands))]

    def _dispatch(self, recorder: Recorder, work: PieceCommands) -> None:
        """Record the fills and the dispatch."""
        if work.clears:
            for clear in work.clears:
                recorder.fill(clear)
            recorder.barrier_copies_to_kernel()
        recorder.dispatch(self._pipeline, work.descriptors, work.push, work.grid)

    def _record_three_queues(
        self, work: PieceCommands, copies: CommandPool, reused: list[Handle]
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
            self._dispatch(recorder, work)
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
