"""Slot: one set of buffers for one kernel, with its commands recorded once per way of using it.

    host-visible   fill -> kernel on mapped memory -> drain
    device-local   fill -> copy in -> kernel on device memory -> copy out -> drain

What lies between fill and drain is one command buffer on one queue, or three on three queues: copy
in, compute, copy out, each waiting for the one before it. Submitting them again is all that a call
of a known size does. An array that the device can reach where it is (`Place`) is neither filled nor
drained.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from gpu_executor.call import Array, Call, Operand, Signature
from gpu_executor.errors import DeviceLostError, ElementRangeError, GpuError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import LruCache
from gpu_executor.plan import DataPath, Piece, Plan, QueueUse
from gpu_executor.telemetry.stages import Record
from gpu_executor.vulkan.mapped_arrays import BufferRanges, of_piece
from gpu_executor.vulkan.profile import Profile, StageMarks
from gpu_executor.vulkan.recording import Recording, RecordingRoom
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.slot_buffers import SlotBuffers

RECORDINGS_KEPT = 64
"""Ways of using a slot that it has commands for: a chunk, its tail, arrays at many places."""


NOTHING = Recording((), (), (), None)
TRACKS: dict[QueueUse, tuple[str, str, str]] = {
    "one": ("queue", "queue", "queue"),
    "split": ("queue for copies in", "queue", "queue for copies out"),
    "several": ("queues side by side",) * 3,
}
"""Names of the queues of copy in, compute and copy out, for profiles."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """What tells slots apart. Two calls with equal layouts can use the same slot."""

    kernel: Kernel
    path: DataPath
    queues: QueueUse
    work_group: int
    per_invocation: int
    operands: tuple[Operand, ...]
    """With the counts that the slot has room for, not those of any call."""
    profiled: bool = False
    """Whether its commands write timestamps."""
    shape_words: bytes = b""
    """What the kernel finds behind its own push constants."""

    @classmethod
    def of(cls, plan: Plan, signature: Signature, *, profiled: bool = False) -> SlotLayout:
        """The layout that a plan asks for, for calls of that form."""
        kernel, operands = signature.kernel, signature.operands
        if kernel.split == "elements":
            operands = tuple(Operand(operand.type, plan.capacity) for operand in operands)
        return cls(
            kernel,
            plan.path,
            plan.queues,
            plan.work_group,
            plan.per_invocation,
            operands,
            profiled,
            signature.shape_words,
        )


class Slot:
    """Buffers, descriptors and commands. One call at a time uses it."""

    def __init__(self, resources: Resources, layout: SlotLayout) -> None:
        kernel = layout.kernel
        self.layout = layout
        self.record = Record()
        """What was done with this slot; its user adds to it."""
        self._device, self._copy_threads = resources.device, resources.copy_threads
        self._recordings: LruCache[Hashable, Recording] = LruCache()
        self._recording, self._piece = NOTHING, Piece(0, 0)
        """What it was prepared for last."""
        self._submitted = 0
        """How many of its submissions the device has, or may have."""
        self._call: Call | None = None
        """Whose arrays the device may still use."""
        self.profile: Profile | None = None
        """Where its user wants to know what happens, if the layout is a profiled one."""
        self._number = 0
        self._tracks = TRACKS[layout.queues]
        with contextlib.ExitStack() as undo:
            with self.record.stage("pipeline"):
                pipeline = resources.pipelines.acquire(
                    kernel, layout.work_group, layout.per_invocation
                )
                undo.callback(resources.pipelines.release, pipeline)
            with self.record.stage("descriptors"):
                self._buffers = SlotBuffers(resources.memory, kernel, layout.operands, layout.path)
                undo.callback(self._buffers.release)
            with self.record.stage("recording"):
                self._marks: StageMarks | None = None
                if layout.profiled:
                    self._marks = StageMarks(resources.device, resources.families(layout.queues))
                    undo.callback(self._marks.close)
                push = kernel.push + layout.shape_words
                self._room = RecordingRoom(
                    resources, kernel, push, pipeline, self._buffers, layout.queues, self._marks
                )
                undo.callback(self._room.close)
            self._undo = undo.pop_all()

    def recording(self, count: int, groups: int, places: BufferRanges | None = None) -> Recording:
        """The commands for that many elements with arrays at those places, recorded if need be."""
        key = count if places is None else (count, places)
        known = self._recordings.get(key)
        if known is None:
            with self.record.stage("recording"):
                # The oldest one is evicted first: its command buffers are recorded again.
                evicted = self._recordings.evict(RECORDINGS_KEPT - 1)
                oldest = evicted[0] if evicted else None
                known = self._room.record(count, groups, places, oldest)
                self._recordings[key] = known
            self.record.recordings += 1
        elif places is not None:
            self._recordings.move_to_end(key)
        return known

    def start(self, call: Call, piece: Piece, groups: int) -> None:
        """Fill the slot with a piece of the call and hand it to the device; returns at once."""
        self.prepare(call, piece, groups)
        self.fill(call)
        self.submit()

    def finish(self, call: Call, *, spin: bool = True) -> None:
        """Wait for the piece that was started last and drain it."""
        self.wait(spin=spin)
        self.drain(call)

    def prepare(self, call: Call, piece: Piece, groups: int) -> None:
        """Find or record the commands for a piece of the call; the slot is its own from now on."""
        if self._submitted:
            self.abandon()  # a call that was interrupted twice left it running
        self._call = call
        places = None if call.places is None else of_piece(call.places, call.signature, piece)
        self._recording, self._piece = self.recording(piece.count, groups, places), piece
        if self.profile is not None:
            self._number = self.profile.next_piece()

    @property
    def much_to_fill(self) -> bool:
        """Whether filling is worth another thread."""
        return self._recording.much_to_fill

    @property
    def much_to_drain(self) -> bool:
        return self._recording.much_to_drain

    def fill(self, call: Call, *, alone: bool = False) -> None:
        """Copy the piece's inputs into mapped memory; `alone` in this thread only."""
        recording = self._recording
        if not recording.fills:
            return
        begun = perf_counter_ns()
        pairs = _pairs(recording.inputs, call.inputs, call, self._piece)
        if alone or not recording.much_to_fill:
            for target, source in pairs:
                if target is not None:
                    target[...] = source
        else:
            self._copy_threads.copy(
                [(target, source) for target, source in pairs if target is not None]
            )
        end = perf_counter_ns()
        self.record.upload += end - begun
        if self.profile is not None and self._marks is not None:
            self.profile.host("fill", begun, end, self._number)

    def submit(self) -> None:
        """Hand the piece to the device."""
        if self._marks is not None:
            self._marks.reset()
        for timeline, submission in self._recording.submissions:
            self._submitted += 1  # before it is: after an interrupt the device may have it
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
            timeline.wait(submission, spin=spin)
            self._submitted, self._call = 0, None
            self.record.compute += perf_counter_ns() - begun

    def drain(self, call: Call, *, alone: bool = False) -> None:
        """Copy the piece's outputs to the caller's arrays; raise what the kernel found."""
        recording, piece = self._recording, self._piece
        begun = perf_counter_ns()
        code = self._buffers.take_status()
        if code is not None:
            kernel = self.layout.kernel
            element, argument = divmod(code, kernel.inputs)
            raise ElementRangeError(kernel.name, argument, piece.start + element, call.job)
        if not self._buffers.coherent:
            self._buffers.make_outputs_visible(self._device)
        if recording.drains:
            pairs = _pairs(recording.outputs, call.outputs, call, piece)
            if alone or not recording.much_to_drain:
                for source, target in pairs:
                    if source is not None:
                        target[...] = source
            else:
                among = [(target, source) for source, target in pairs if source is not None]
                self._copy_threads.copy(among)
        end = perf_counter_ns()
        self.record.download += end - begun
        self.record.pieces += 1
        if self.profile is not None and self._marks is not None:
            self.profile.host("drain", begun, end, self._number)
            self.profile.device(self._marks.spans(self._tracks), self._number)

    def abandon(self) -> None:
        """Wait for what was submitted and forget it, with anything the kernel reported."""
        with contextlib.suppress(DeviceLostError):  # it will not go on with it
            self.wait()
        self._submitted, self._call = 0, None
        self._buffers.take_status()

    def close(self) -> None:
        """Give everything back, when the device is done with it."""
        with contextlib.suppress(DeviceLostError):
            self.wait()
        for recording in self._recordings.values():
            self._room.release(recording)
        self._undo.close()


def _pairs(
    views: Sequence[Array | None], arrays: Sequence[Array], call: Call, piece: Piece
) -> Iterable[tuple[Array | None, Array]]:
    """Mapped memory (None for an array that is used where it is) and the caller's part of each."""
    if piece.count == call.signature.count:
        return zip(views, arrays)  # noqa: B905 - on the path of every call
    start, end = piece.start, piece.start + piece.count
    return [
        (view, array if view is None else array[start:end])
        for view, array in zip(views, arrays, strict=True)
    ]
