"""Commands of slots: the command buffers for one use of a slot, submitted again and again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpu_executor.calls.call import Array
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.plan import ElementRange
from gpu_executor.plan.calibration import (
    LARGE_COPY_BYTES,
    MAX_FILL_BYTES_IN_SEGMENTS,
    MIN_FILL_BYTES_IN_SEGMENTS,
)
from gpu_executor.steps.bound_steps import BoundStep, CallDispatch, Copy, WriteTimestamp
from gpu_executor.steps.call_binder import bind_range
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import COPIES, HOST, KERNELS, CommandPool, Recorder
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.mapped_arrays import BufferRanges
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import StageTimestamps
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot_buffers import SlotBuffers, SlotLayout, SlotMemory, pair_ranges
from gpu_executor.vulkan.step_recorder import ResolvedDispatch, record_steps
from gpu_executor.vulkan.timeline import Submission, Timeline

FILL_SEGMENT_BYTES = 1 << 20
"""About the bytes of a segment of a fill."""


@dataclass(frozen=True, slots=True)
class FillSegment:
    """Elements of one input that the device copies in as soon as the host has filled them."""

    argument: int
    """The index of the input among those that the caller passes."""
    start: int
    view: Array
    """The elements from `start` on, in mapped memory."""
    submission: Submission
    """Copies them to device memory; on the queue of the recording."""


@dataclass(frozen=True, slots=True)
class SlotCommands:
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
    segments: Sequence[FillSegment] = ()
    """All that the host fills, where it is copied in before the other commands are submitted."""

    @property
    def large_fill(self) -> bool:
        """Whether the fill is large enough for the copy threads."""
        return self.fill_bytes >= LARGE_COPY_BYTES

    @property
    def large_drain(self) -> bool:
        """Whether the drain is large enough for the copy threads."""
        return self.drain_bytes >= LARGE_COPY_BYTES


SlotStep = BoundStep[SlotMemory]


class ChunkSteps(NamedTuple):
    """The steps of one chunk: copies in, fills and a dispatch, copies out."""

    uploads: Sequence[SlotStep]
    copied: Sequence[SlotStep]
    """Copies in that are in other command buffers of the same queue."""
    work: Sequence[SlotStep]
    downloads: Sequence[SlotStep]


class SlotRecorder:
    """Records the commands of one slot, with its command pools and descriptor sets."""

    def __init__(
        self,
        resources: Resources,
        layout: SlotLayout,
        pipeline: Pipeline,
        buffers: SlotBuffers,
        timestamps: StageTimestamps | None = None,
    ) -> None:
        self._layout, queues = layout, layout.queues
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
        dispatch: CallDispatch,
        count: int,
        buffer_ranges: BufferRanges | None,
        oldest: SlotCommands | None,
        *,
        in_segments: bool = False,
    ) -> SlotCommands:
        """Record the commands of a dispatch on `count` elements.

        The command buffers of `oldest` are recorded again. `in_segments` lets the device copy a
        large fill in segments.
        """
        if oldest is not None:
            self.release(oldest)
            for timeline, submission in oldest.submissions:
                spare = self._spare if timeline is self._compute else self._spare_copies
                spare.append(submission.commands)
            self._spare += [segment.submission.commands for segment in oldest.segments]
        operands, layout = self._buffers.operands, self._layout
        ranges = pair_ranges(layout.operands, buffer_ranges)
        moved = None if dispatch.kernel.split == "whole" else count
        pairs = list(zip(operands, ranges, strict=True))
        work = bind_range(
            dispatch,
            ElementRange(0, count),
            [(each.operand, each.locate(own)) for each, own in pairs],
            self._buffers.hidden,
            layout.scratch_bytes,
        )
        downloads = [each.make_download(own, moved) for each, own in pairs]
        filled: list[Array | None] = []
        uploads: list[SlotStep] = []
        staged: list[tuple[int, Array, SlotStep]] = []
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
        segments: list[FillSegment] = []
        copied = [copy for _, _, copy in staged]
        nbytes = sum(view.nbytes for _, view, _ in staged)
        large = MIN_FILL_BYTES_IN_SEGMENTS <= nbytes <= MAX_FILL_BYTES_IN_SEGMENTS
        if in_segments and large and self._copies is None:
            segments = [segment for each in staged for segment in self._record_segments(*each)]
        else:
            uploads = copied + uploads
            copied = []
        descriptors = self._descriptors.allocate(dispatch.set_layout, work[-1].bindings)
        try:
            steps = ChunkSteps(
                uploads, copied, work, [copy for copy in downloads if copy is not None]
            )
            resolved = ResolvedDispatch(
                self._pipeline,
                descriptors.handles,
                vk.ffi.from_buffer(dispatch.push),
                dispatch.grid,
            )
            submissions = (
                self._record_one_queue(steps, resolved)
                if self._copies is None
                else self._record_three_queues(steps, resolved, self._copies)
            )
        except BaseException:
            self._descriptors.release(descriptors)
            raise
        return SlotCommands(
            submissions,
            filled,
            drained,
            descriptors,
            _count_bytes(filled),
            _count_bytes(drained),
            segments,
        )

    def release(self, recording: SlotCommands) -> None:
        """Release the descriptor set of a recording; its command buffers stay in their pools."""
        if recording.descriptors is not None:
            self._descriptors.release(recording.descriptors)

    def close(self) -> None:
        self._undo.close()

    def _record_segments(self, argument: int, view: Array, step: SlotStep) -> Iterator[FillSegment]:
        """Record the copy of one input in segments of about FILL_SEGMENT_BYTES, each by itself.

        They are in submission order before the dispatch, whose barrier waits for them.
        """
        copy = step.work
        assert isinstance(copy, Copy)
        element = view.nbytes // max(len(view), 1)
        length = max(FILL_SEGMENT_BYTES // max(element, 1), 1)
        for start in range(0, len(view), length):
            segment, offset = view[start : start + length], start * element
            commands = self._allocate_commands()
            with Recorder(commands) as recorder:
                recorder.copy(
                    [
                        dataclasses.replace(
                            copy,
                            source_offset=copy.source_offset + offset,
                            target_offset=copy.target_offset + offset,
                            nbytes=len(segment) * element,
                        )
                    ]
                )
            yield FillSegment(argument, start, segment, self._compute.prepare(commands))

    def _allocate_commands(self) -> Handle:
        return self._spare.pop() if self._spare else self._pool.allocate()

    def _allocate_copy_commands(self, copies: CommandPool) -> Handle:
        return self._spare_copies.pop() if self._spare_copies else copies.allocate()

    def _record_one_queue(
        self, steps: ChunkSteps, resolved: ResolvedDispatch
    ) -> list[tuple[Timeline, Submission]]:
        """Record everything in one command buffer for one queue."""
        commands, mark = self._allocate_commands(), self._mark
        ordered = [*mark(2), *steps.work]
        if steps.uploads or steps.copied:
            ordered = [*mark(0), *steps.uploads, *mark(1), *ordered]
        if steps.downloads:
            ordered += [*mark(3), *mark(4), *steps.downloads]
        with Recorder(commands) as recorder:
            record_steps(recorder, ordered, lambda *_: resolved, steps.copied)
            recorder.barrier(COPIES | KERNELS, HOST)
            recorder.write_timestamp(self._timestamps, 5 if steps.downloads else 3)
        return [(self._compute, self._compute.prepare(commands))]

    def _record_three_queues(
        self, steps: ChunkSteps, resolved: ResolvedDispatch, copies: CommandPool
    ) -> list[tuple[Timeline, Submission]]:
        """Record copy in, if there is any, dispatch and copy out for three queues, ordered by
        semaphores."""
        assert self._upload is not None
        assert self._download is not None
        mark, copied = self._mark, list[tuple[Timeline, Submission]]()

        def record(commands: Handle, ordered: Sequence[SlotStep], last: int, kinds: int) -> None:
            with Recorder(commands) as recorder:
                record_steps(recorder, [*mark(last - 1), *ordered], lambda *_: resolved)
                if kinds:
                    recorder.barrier(kinds, HOST)
                recorder.write_timestamp(self._timestamps, last)

        if steps.uploads:
            into = self._allocate_copy_commands(copies)
            record(into, steps.uploads, 1, 0)
            copied.append((self._upload, self._upload.prepare(into)))
        compute = self._allocate_commands()
        record(compute, steps.work, 3, COPIES | KERNELS)
        back = self._allocate_copy_commands(copies)
        record(back, steps.downloads, 5, COPIES)
        reads = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        computed = (self._compute, self._compute.prepare(compute, copied, reads))
        copies_back = vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        fetched = (self._download, self._download.prepare(back, [computed], copies_back))
        return [*copied, computed, fetched]

    def _mark(self, index: int) -> list[SlotStep]:
        """The step that writes a timestamp, if the slot is profiled."""
        if self._timestamps is None:
            return []
        return [BoundStep(WriteTimestamp(self._timestamps, index), (), 0)]


def _count_bytes(views: Sequence[Array | None]) -> int:
    return sum(view.nbytes for view in views if view is not None)
