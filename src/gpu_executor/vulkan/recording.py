"""Recordings: the command buffers for one use of a slot, which can be submitted again and again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from gpu_executor.calibration import (
    LARGE_COPY_BYTES,
    MAX_FILL_BYTES_IN_PARTS,
    MIN_FILL_BYTES_IN_PARTS,
)
from gpu_executor.call import Array
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.lean_dataclass import dataclass
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

FILL_PART_BYTES = 1 << 20
"""About the bytes of a part of a fill."""


@dataclass(frozen=True, slots=True)
class FillPart:
    """Elements of one input that the device copies in as soon as the host has filled them."""

    argument: int
    """The index of the input among those that the caller passes."""
    start: int
    view: Array
    """The elements from `start` on, in mapped memory."""
    submission: Submission
    """Copies them to device memory; on the queue of the recording."""


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
    parts: Sequence[FillPart] = ()
    """All that the host fills, where it is copied in before the other commands are submitted."""

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
    after_uploads: bool
    """Whether the dispatch follows copies in, which may be in other command buffers."""
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
        self._spare: list[Handle] = []
        """Command buffers of the compute queue, to be recorded again."""
        self._spare_copies: list[Handle] = []
        """The same of the transfer queues."""

    def record(
        self,
        count: int,
        grid: Grid,
        push: bytes,
        buffer_ranges: BufferRanges | None,
        oldest: Recording | None,
        *,
        in_parts: bool = False,
    ) -> Recording:
        """Record the commands for `count` elements; `push` are all push constants.

        The command buffers of `oldest` are recorded again. `in_parts` lets the device copy a large
        fill in parts.
        """
        if oldest is not None:
            self.release(oldest)
            for timeline, submission in oldest.submissions:
                spare = self._spare if timeline is self._compute else self._spare_copies
                spare.append(submission.commands)
            self._spare += [part.submission.commands for part in oldest.parts]
        operands = self._buffers.operands
        ranges = pair_ranges([each.operand for each in operands], buffer_ranges)
        moved = None if self._kernel.split == "whole" else count
        pairs = list(zip(operands, ranges, strict=True))
        fills = [each.make_fill(own, moved) for each, own in pairs] + [self._buffers.scratch_fill]
        downloads = [each.make_download(own, moved) for each, own in pairs]
        filled: list[Array | None] = []
        uploads: list[Copy] = []
        staged: list[tuple[int, Array, Copy]] = []
        """The inputs that the host fills and the device copies, with their views and copies."""
        for each, own in pairs:
            copy = each.make_upload(own, moved)
            if each.operand.is_input:
                view = each.view[:moved] if own.source is None else None
                if view is not None and copy is not None:
                    staged.append((len(filled), view, copy))
                elif copy is not None:
                    uploads.append(copy)
                filled.append(view)
        drained = [
            each.view[:moved] if own.target is None else None
            for each, own in pairs
            if each.operand.is_output
        ]
        parts: list[FillPart] = []
        nbytes = sum(copy.nbytes for _, _, copy in staged)
        large = MIN_FILL_BYTES_IN_PARTS <= nbytes <= MAX_FILL_BYTES_IN_PARTS
        if in_parts and large and self._copies is None:
            parts = [part for each in staged for part in self._record_parts(*each)]
        else:
            uploads = [copy for _, _, copy in staged] + uploads
        descriptors = self._descriptors.allocate(
            self._pipeline, self._buffers.list_descriptor_ranges(ranges, moved)
        )
        try:
            commands = PieceCommands(
                uploads,
                bool(uploads or parts),
                [fill for fill in fills if fill is not None],
                [copy for copy in downloads if copy is not None],
                descriptors,
                push,
                grid,
            )
            submissions = (
                self._record_one_queue(commands)
                if self._copies is None
                else self._record_three_queues(commands, self._copies)
            )
        except BaseException:
            self._descriptors.release(descriptors)
            raise
        return Recording(
            submissions,
            filled,
            drained,
            descriptors,
            _count_bytes(filled),
            _count_bytes(drained),
            parts,
        )

    def release(self, recording: Recording) -> None:
        """Release the descriptor set of a recording; its command buffers stay in their pools."""
        if recording.descriptors is not None:
            self._descriptors.release(recording.descriptors)

    def close(self) -> None:
        self._undo.close()

    def _record_parts(self, argument: int, view: Array, copy: Copy) -> Iterator[FillPart]:
        """Record the copy of one input in parts of about FILL_PART_BYTES, each by itself.

        They are in submission order before the dispatch, whose barrier waits for them.
        """
        element = view.nbytes // max(len(view), 1)
        step = max(FILL_PART_BYTES // max(element, 1), 1)
        for start in range(0, len(view), step):
            part, offset = view[start : start + step], start * element
            commands = self._allocate_commands()
            with Recorder(commands) as recorder:
                recorder.copy(
                    [
                        dataclasses.replace(
                            copy,
                            source_offset=copy.source_offset + offset,
                            target_offset=copy.target_offset + offset,
                            nbytes=len(part) * element,
                        )
                    ]
                )
            yield FillPart(argument, start, part, self._compute.prepare(commands))

    def _allocate_commands(self) -> Handle:
        return self._spare.pop() if self._spare else self._pool.allocate()

    def _allocate_copy_commands(self, copies: CommandPool) -> Handle:
        return self._spare_copies.pop() if self._spare_copies else copies.allocate()

    def _record_one_queue(self, work: PieceCommands) -> list[tuple[Timeline, Submission]]:
        """Record everything in one command buffer for one queue."""
        commands = self._allocate_commands()
        timestamps = self._timestamps
        with Recorder(commands) as recorder:
            if work.after_uploads:
                recorder.write_timestamp(timestamps, 0)
                if work.uploads:
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
        self, work: PieceCommands, copies: CommandPool
    ) -> list[tuple[Timeline, Submission]]:
        """Record copy in, if there is any, dispatch and copy out for three queues, ordered by
        semaphores."""
        assert self._upload is not None
        assert self._download is not None
        timestamps, copied = self._timestamps, list[tuple[Timeline, Submission]]()
        if work.uploads:
            into = self._allocate_copy_commands(copies)
            with Recorder(into) as recorder:
                recorder.write_timestamp(timestamps, 0)
                recorder.copy(work.uploads)
                recorder.write_timestamp(timestamps, 1)
            copied.append((self._upload, self._upload.prepare(into)))
        compute = self._allocate_commands()
        with Recorder(compute) as recorder:
            recorder.write_timestamp(timestamps, 2)
            self._dispatch(recorder, work)
            recorder.barrier_all_to_host()
            recorder.write_timestamp(timestamps, 3)
        back = self._allocate_copy_commands(copies)
        with Recorder(back) as recorder:
            recorder.write_timestamp(timestamps, 4)
            recorder.copy(work.downloads)
            recorder.barrier_copies_to_host()
            recorder.write_timestamp(timestamps, 5)
        reads = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        computed = (self._compute, self._compute.prepare(compute, copied, reads))
        copies_back = vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        fetched = (self._download, self._download.prepare(back, [computed], copies_back))
        return [*copied, computed, fetched]


def _count_bytes(views: Sequence[Array | None]) -> int:
    return sum(view.nbytes for view in views if view is not None)
