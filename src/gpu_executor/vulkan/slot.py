"""Slot: one set of buffers for one kernel, with its commands recorded once per use.

    host-visible   fill -> kernel on mapped memory -> drain
    device-local   fill -> copy in -> kernel on device memory -> copy out -> drain

The commands between fill and drain are one command buffer on one queue, or three on three queues:
copy in, dispatch, copy out, each of which waits for the previous one. A call of a known size only
submits them again. An array with a `BufferRange` is neither filled nor drained.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterable, Sequence
from time import perf_counter_ns

import numpy as np

from gpu_executor.calls.call import Array, Call
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import DeviceLostError, GpuError
from gpu_executor.kernel import Grid
from gpu_executor.kernel.parameters import NO_VALUES, ParameterValues
from gpu_executor.plan import ElementRange, QueueUse
from gpu_executor.steps.call_binder import make_dispatch
from gpu_executor.steps.status import make_range_error
from gpu_executor.telemetry.stages import StageCounters
from gpu_executor.vulkan.copy_threads import Segment
from gpu_executor.vulkan.mapped_arrays import BufferRanges, offset_to_chunk
from gpu_executor.vulkan.profile import Profile, StageTimestamps
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot_buffers import SlotBuffers, SlotLayout
from gpu_executor.vulkan.slot_commands import SlotCommands, SlotRecorder
from gpu_executor.vulkan.timeline import SPIN_NS

MAX_RECORDINGS = 64
"""Recordings that a slot caches: one for each element count and set of buffer ranges."""


NO_RECORDING = SlotCommands()
TRACKS: dict[QueueUse, tuple[str, str, str]] = {
    "one": ("queue", "queue", "queue"),
    "split": ("copy-in queue", "queue", "copy-out queue"),
    "several": ("parallel compute queues",) * 3,
}
"""Names of the queues of copy in, compute and copy out in profiles."""


class Slot:
    """Buffers, descriptor sets and recorded commands, used by one call at a time."""

    def __init__(self, resources: Resources, layout: SlotLayout) -> None:
        kernel = layout.kernel
        self.layout = layout
        self.record = StageCounters()
        """Counters and stage times of this slot; its users update them too."""
        self._device, self._copy_threads = resources.device, resources.copy_threads
        self._recordings: LruCache[Hashable, SlotCommands] = LruCache()
        self._recording, self._chunk = NO_RECORDING, ElementRange(0, 0)
        """The recording and the chunk that the slot was prepared for last."""
        self._submitted = 0
        """How many submissions of the recording the device has, or may have."""
        self._may_have_segments = False
        """Whether the device may have segments of a fill, and not the submissions after them."""
        self._call: Call | None = None
        """Keeps the arrays alive that the device may still use."""
        self.profile: Profile | None = None
        """Where spans are written, if the layout is profiled and a profile is active."""
        self._chunk_number = 0
        self._tracks = TRACKS[layout.queues]
        with contextlib.ExitStack() as undo:
            with self.record.stage("pipeline"):
                pipeline = resources.pipelines.acquire(
                    kernel, layout.work_group, layout.per_invocation
                )
                undo.callback(resources.pipelines.release, pipeline)
            with self.record.stage("descriptors"):
                self._buffers = SlotBuffers(resources.memory, layout, pipeline.params_binding)
                self._params_binding = pipeline.params_binding
                undo.callback(self._buffers.release)
                self.allocations = tuple(self._buffers.allocations)
                self.nbytes = sum(each.nbytes for each in self.allocations)
            with self.record.stage("recording"):
                self._timestamps: StageTimestamps | None = None
                if layout.profiled:
                    self._timestamps = StageTimestamps(
                        resources.device, resources.list_families(layout.queues)
                    )
                    undo.callback(self._timestamps.close)
                self._recorder = SlotRecorder(
                    resources, layout, pipeline, self._buffers, self._timestamps
                )
                undo.callback(self._recorder.close)
            self._undo = undo.pop_all()

    def find_recording(
        self,
        count: int,
        grid: Grid,
        buffer_ranges: BufferRanges | None = None,
        values: ParameterValues = NO_VALUES,
        *,
        in_segments: bool = False,
    ) -> SlotCommands:
        """Return the commands for `count` elements and those ranges; record them if not cached.

        `values` has parameters that are pushed: other values are other commands. `in_segments` lets
        the device copy a large fill in segments.
        """
        key: Hashable = (count, grid, in_segments)
        is_special = buffer_ranges is not None or values.push or values.given_count
        if is_special:
            key = (count, grid, in_segments, buffer_ranges, values.push, values.given_count)
        known = self._recordings.get(key)
        if known is None:
            with self.record.stage("recording"):
                layout = self.layout
                dispatch = make_dispatch(
                    layout.kernel,
                    (layout.work_group, layout.per_invocation),
                    count,
                    grid,
                    layout.shape_words,
                    values,
                    self._params_binding,
                )
                # Evict the oldest recording first: its command buffers are recorded again.
                evicted = self._recordings.evict(MAX_RECORDINGS - 1)
                oldest = evicted[0] if evicted else None
                known = self._recorder.record(
                    dispatch, count, buffer_ranges, oldest, in_segments=in_segments
                )
                self._recordings[key] = known
            self.record.recordings += 1
        elif is_special:
            self._recordings.move_to_end(key)
        return known

    def start(self, call: Call, chunk: ElementRange, grid: Grid) -> None:
        """Fill the slot with a chunk of the call and submit it; returns without waiting.

        The device copies the first segments of a large fill while threads fill the next ones.
        """
        self.prepare(call, chunk, grid, in_segments=self._timestamps is None)
        if self._recording.segments:
            self._fill_segments(call)
        else:
            self.fill(call)
        self.submit()

    def finish(self, call: Call, *, spin: bool = True) -> None:
        """Wait for the chunk that was started last, and drain it."""
        self.wait(spin=spin)
        self.drain(call)

    def prepare(
        self, call: Call, chunk: ElementRange, grid: Grid, *, in_segments: bool = False
    ) -> None:
        """Find or record the commands for a chunk of the call.

        The call owns the slot from now on. `in_segments` is for `start` alone, which submits the
        segments of a large fill.
        """
        if self._submitted or self._may_have_segments:
            self.abandon()  # left in flight by a call that was interrupted twice
        self._call = call
        buffer_ranges = (
            None
            if call.buffer_ranges is None
            else offset_to_chunk(call.buffer_ranges, call.signature, chunk)
        )
        values = call.values
        if self._params_binding is not None:
            self._recording = self.find_recording(
                chunk.count, grid, buffer_ranges, in_segments=in_segments
            )
            layout = self.layout
            self._buffers.write_push(
                layout.kernel.compose_push(chunk.count, layout.shape_words, values)
            )
        else:
            self._recording = self.find_recording(
                chunk.count, grid, buffer_ranges, values, in_segments=in_segments
            )
        self._chunk = chunk
        if values.uniform:
            self._buffers.write_uniform(values.uniform)
        if self.profile is not None:
            self._chunk_number = self.profile.next_chunk()

    @property
    def large_fill(self) -> bool:
        """Whether the fill is large enough for the copy threads."""
        return self._recording.large_fill

    @property
    def large_drain(self) -> bool:
        """Whether the drain is large enough for the copy threads."""
        return self._recording.large_drain

    def fill(self, call: Call, *, single_threaded: bool = False) -> None:
        """Copy the chunk's inputs into mapped memory.

        `single_threaded` does not use the copy threads.
        """
        recording = self._recording
        if not recording.fill_bytes:
            return
        begun = perf_counter_ns()
        pairs = _pair_views(recording.fills, call.inputs, call, self._chunk)
        if single_threaded or not recording.large_fill:
            for target, source in pairs:
                if target is not None:
                    np.copyto(target, source, casting="equiv")  # bytes, never values
        else:
            self._copy_threads.copy(
                [(target, source) for target, source in pairs if target is not None]
            )
        end = perf_counter_ns()
        self.record.upload += end - begun
        if self.profile is not None and self._timestamps is not None:
            self.profile.add_host_span("fill", begun, end, self._chunk_number)

    def _fill_segments(self, call: Call) -> None:
        """Copy the chunk's inputs into mapped memory in segments, and submit the copy of each."""
        recording, begun = self._recording, perf_counter_ns()
        timeline, _ = recording.submissions[0]
        self._may_have_segments = True
        segments: list[Segment] = []
        for segment in recording.segments:
            start = self._chunk.start + segment.start
            source = call.inputs[segment.argument][start : start + len(segment.view)]
            segments.append(
                ([(segment.view, source)], functools.partial(timeline.submit, segment.submission))
            )
        self._copy_threads.copy_segments(segments)
        self.record.upload += perf_counter_ns() - begun

    def submit(self) -> None:
        """Submit the chunk to the device."""
        if self._timestamps is not None:
            self._timestamps.reset()
        for timeline, submission in self._recording.submissions:
            self._submitted += 1  # counted first: after an interrupt the device may have it
            try:
                timeline.submit(submission)
            except GpuError:
                self._submitted -= 1
                raise

    def is_done(self) -> bool:
        """Whether the device is done with what was submitted."""
        timeline, submission = self._recording.submissions[-1]
        return timeline.is_done(submission)

    def wait(self, *, spin: bool = True) -> None:
        """Return when the device is done with what was submitted, if anything was."""
        if self._submitted:
            begun = perf_counter_ns()
            timeline, submission = self._recording.submissions[self._submitted - 1]
            timeline.wait(submission, spin_ns=SPIN_NS if spin else 0)
            self.record.compute += perf_counter_ns() - begun
        elif self._may_have_segments:
            timeline, _ = self._recording.submissions[0]
            for segment in self._recording.segments:
                timeline.wait(segment.submission)
        self._submitted, self._may_have_segments, self._call = 0, False, None

    def drain(self, call: Call, *, single_threaded: bool = False) -> None:
        """Copy the chunk's outputs to the caller's arrays.

        Raises `ElementRangeError` if the kernel reported one.
        """
        recording, chunk = self._recording, self._chunk
        begun = perf_counter_ns()
        code = self._buffers.take_status()
        if code is not None:
            raise make_range_error(self.layout.kernel, code, chunk.start, call.job)
        if not self._buffers.coherent:
            self._buffers.make_outputs_visible(self._device)
        if recording.drain_bytes:
            pairs = _pair_views(recording.drains, call.outputs, call, chunk)
            if single_threaded or not recording.large_drain:
                for source, target in pairs:
                    if source is not None:
                        np.copyto(target, source, casting="equiv")
            else:
                among = [(target, source) for source, target in pairs if source is not None]
                self._copy_threads.copy(among)
        end = perf_counter_ns()
        self.record.download += end - begun
        self.record.chunks += 1
        if self.profile is not None and self._timestamps is not None:
            self.profile.add_host_span("drain", begun, end, self._chunk_number)
            self.profile.add_device_spans(
                self._timestamps.read_spans(self._tracks), self._chunk_number
            )

    def abandon(self) -> None:
        """Wait for what was submitted, and discard it together with the status word."""
        with contextlib.suppress(DeviceLostError):  # a lost device runs nothing any more
            self.wait()
        self._submitted, self._may_have_segments, self._call = 0, False, None
        self._buffers.take_status()

    def close(self) -> None:
        """Wait for the device and release everything."""
        with contextlib.suppress(DeviceLostError):
            self.wait()
        for recording in self._recordings.values():
            self._recorder.release(recording)
        self._undo.close()


def _pair_views(
    views: Sequence[Array | None], arrays: Sequence[Array], call: Call, chunk: ElementRange
) -> Iterable[tuple[Array | None, Array]]:
    """Pair each view of mapped memory with the caller's part of its array.

    The view is None for an array that is used where it is.
    """
    if chunk.count == call.signature.count:
        return zip(views, arrays)  # noqa: B905 - on the path of every call
    start, end = chunk.start, chunk.start + chunk.count
    return [
        (view, array if view is None else array[start:end])
        for view, array in zip(views, arrays, strict=True)
    ]
