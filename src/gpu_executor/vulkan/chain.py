"""Chains: dispatches on arrays on the card, submitted in order and not waited for.

Everything goes to one queue. A dispatch that touches what an earlier one of its submission wrote,
or writes what one read, waits behind a barrier; the others may overlap. Each submission ends with a
barrier, so that whatever comes to the queue later sees all of it.

What the device may still use (arrays, commands) is kept until it is done.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import Copying, Dispatch, Step
from gpu_executor.errors import ClosedError, DeviceLacksError, KernelError
from gpu_executor.plan.work_groups import choose_work_groups
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.descriptors import BufferRange, DescriptorSet
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.places import Place
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.timeline import Submission

IN_FLIGHT = 64
"""Submissions whose commands are kept; one more waits for the oldest."""
SETS_KEPT = 512
SetKey = tuple[int, tuple[tuple[int, int, int], ...]]


@dataclass(slots=True, eq=False)
class Link:
    """A command buffer in turn, and what its last submission keeps alive."""

    commands: Handle
    submission: Submission
    holds: list[object] = field(default_factory=list)


Sets = dict[SetKey, DescriptorSet]


@dataclass(slots=True, eq=False)
class Recorded:
    """Steps in a command buffer of their own, with what it refers to."""

    commands: Handle
    submission: Submission
    sets: Sets
    holds: list[object]
    runs: int = 0


class Chain:
    """One of these belongs to a session. Safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._timeline = resources.compute
        self._lock = threading.RLock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._links: deque[Link] = deque()
        """The one submitted longest ago first."""
        self._pipelines: dict[tuple[object, int, int], Pipeline] = {}
        self._sets: Sets = {}
        self._recorded: set[Recorded] = set()
        self._forgotten: deque[Recorded] = deque()
        self._closed = False
        self.submissions = self.dispatches = self.barriers = 0

    def submit(self, steps: Sequence[tuple[Step, Sequence[Place]]]) -> None:
        """Run steps on arrays at these places, in order, after all that came before."""
        with self._lock:
            self._check_open()
            if len(self._sets) + len(steps) > SETS_KEPT:
                self.wait()  # none of them is in use then
                self._release_sets()
            link = self._link()
            link.holds = [array.storage for each, _ in steps for array in _arrays(each)]
            try:
                with Recorder(link.commands) as recorder:
                    self._record(recorder, steps, self._sets)
            except BaseException:
                link.holds = []
                self._links.appendleft(link)
                raise
            # Whatever becomes of the submission, an interrupt too: the device may have it.
            self._links.append(link)
            self._timeline.submit(link.submission)
            self.submissions += 1

    def record(self, steps: Sequence[tuple[Step, Sequence[Place]]]) -> Recorded:
        """Commands for these steps, to be run any number of times."""
        with self._lock:
            self._check_open()
            commands = self._command_pool().allocate()
            sets: Sets = {}
            try:
                with Recorder(commands, again=True) as recorder:
                    self._record(recorder, steps, sets)
            except BaseException:
                self._give_back(sets)
                self._command_pool().free(commands)
                raise
            holds: list[object] = [array.storage for each, _ in steps for array in _arrays(each)]
            made = Recorded(commands, self._timeline.prepare(commands), sets, holds)
            self._recorded.add(made)
            return made

    def replay(self, recorded: Recorded) -> None:
        """Run recorded steps, after all that came before; returns at once."""
        with self._lock:
            self._check_open()
            self._timeline.submit(recorded.submission)
            recorded.runs += 1
            self.submissions += 1

    def forget(self, recorded: Recorded) -> None:
        """Nobody needs these steps any more. From a finalizer, which may run anywhere: what they
        have is freed with the next submission."""
        self._forgotten.append(recorded)

    def _free_forgotten(self) -> None:
        while self._forgotten:
            recorded = self._forgotten.popleft()
            self._recorded.discard(recorded)
            if recorded.runs:
                self._timeline.wait(recorded.submission)
            self._give_back(recorded.sets)
            self._command_pool().free(recorded.commands)

    def wait(self) -> None:
        """Return when the device is done with all of it."""
        with self._lock:
            for recorded in self._recorded:
                if recorded.runs:
                    self._timeline.wait(recorded.submission)
            for link in self._links:
                if link.holds:
                    self._timeline.wait(link.submission)
                    link.holds = []

    def close(self) -> None:
        """Wait and free; nothing can be submitted afterwards."""
        with self._lock:
            try:
                self.wait()
            finally:
                self._closed = True
                self._links.clear()
                self._release_sets()
                for recorded in self._recorded:
                    self._give_back(recorded.sets)
                self._recorded.clear()
                for pipeline in self._pipelines.values():
                    self._resources.pipelines.release(pipeline)
                self._pipelines.clear()
                self._opened.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the backend that the arrays lie on is closed")
        self._free_forgotten()

    def _command_pool(self) -> CommandPool:
        if self._pool is None:
            self._pool = CommandPool(self._resources.device, self._timeline.family)
            self._opened.callback(self._pool.close)
        return self._pool

    def _release_sets(self) -> None:
        self._give_back(self._sets)

    def _give_back(self, sets: Sets) -> None:
        for each in sets.values():
            self._resources.descriptors.release(each)
        sets.clear()

    def _link(self) -> Link:
        """Commands that the device does not use: the oldest where it is done, else new ones."""
        for link in self._links:
            if not link.holds:
                continue
            if not self._is_done(link):
                break
            link.holds = []  # frees arrays as early as may be
        if self._links and (not self._links[0].holds or len(self._links) >= IN_FLIGHT):
            oldest = self._links.popleft()
            if oldest.holds:
                self._timeline.wait(oldest.submission)
                oldest.holds = []
            return oldest
        commands = self._command_pool().allocate()
        return Link(commands, self._timeline.prepare(commands))

    def _is_done(self, link: Link) -> bool:
        return not link.holds or self._timeline.is_done(link.submission)

    def _record(
        self, recorder: Recorder, steps: Sequence[tuple[Step, Sequence[Place]]], sets: Sets
    ) -> None:
        read: set[object] = set()
        written: set[object] = set()
        copied = False
        for step, places in steps:
            arrays, inputs = _arrays(step), _inputs(step)
            reads = {array.storage for array in arrays[:inputs]}
            writes = {array.storage for array in arrays[inputs:]}
            copies = isinstance(step, Copying)
            if reads & written or writes & (written | read):
                if copied or copies:
                    recorder.all_before_all()
                else:
                    recorder.kernels_in_order()
                self.barriers += 1
                read, written, copied = set(), set(), False
            read |= reads
            written |= writes
            copied |= copies
            if isinstance(step, Copying):
                _copy(recorder, step, places)
            else:
                self._dispatch(recorder, step, places, sets)
        recorder.all_before_all()

    def _dispatch(
        self, recorder: Recorder, dispatch: Dispatch, places: Sequence[Place], sets: Sets
    ) -> None:
        kernel, info = dispatch.kernel, self._resources.device.info
        if kernel.status or len(places) != kernel.bindings:
            raise KernelError(
                f"{kernel.name}: {len(places)} arrays for {kernel.bindings} bindings; a status "
                "word has no place in a chain, which nobody waits for"
            )
        size, per_invocation = choose_work_groups(kernel, dispatch.count, info, [])
        if dispatch.work_group is not None:
            size = dispatch.work_group
        groups = dispatch.groups
        if groups is None:
            groups = -(-dispatch.count // (size * per_invocation))
        most = info.limits.max_work_group_count[0]
        if dispatch.strides:
            groups = min(groups, most)
        if groups > most:
            raise DeviceLacksError(
                f"{kernel.name}: {groups:,} work-groups; {info.name} starts {most:,} at most"
            )
        push = struct.pack("<I", dispatch.count) + kernel.push
        push += struct.pack(f"<{len(dispatch.words)}I", *dispatch.words)
        if len(push) > kernel.interface.push_constant_bytes:
            raise KernelError(
                f"{kernel.name}: {len(push)} bytes of push constants; its code has "
                f"{kernel.interface.push_constant_bytes}"
            )
        pipeline = self._pipeline(dispatch, size, per_invocation)
        bound = self._set(pipeline, dispatch.arrays, places, sets)
        recorder.dispatch(pipeline, bound, push, groups)
        self.dispatches += 1

    def _pipeline(self, dispatch: Dispatch, size: int, per_invocation: int) -> Pipeline:
        key = (dispatch.kernel, size, per_invocation)
        known = self._pipelines.get(key)
        if known is None:
            known = self._resources.pipelines.acquire(dispatch.kernel, size, per_invocation)
            self._pipelines[key] = known
        return known

    def _set(
        self,
        pipeline: Pipeline,
        arrays: Sequence[DeviceArray],
        places: Sequence[Place],
        sets: Sets,
    ) -> DescriptorSet:
        ranges = [
            BufferRange(place.buffer, place.offset, max(array.nbytes, 4))
            for place, array in zip(places, arrays, strict=True)
        ]
        key = (
            id(pipeline),
            tuple(
                (place.serial, each.offset, each.nbytes)
                for place, each in zip(places, ranges, strict=True)
            ),
        )
        known = sets.get(key)
        if known is None:
            known = self._resources.descriptors.allocate(pipeline, ranges)
            sets[key] = known
        return known


def _arrays(step: Step) -> tuple[DeviceArray, ...]:
    """What a step reads, then what it writes."""
    return (step.source, step.target) if isinstance(step, Copying) else step.arrays


def _inputs(step: Step) -> int:
    return 1 if isinstance(step, Copying) else step.kernel.inputs


def _copy(recorder: Recorder, step: Copying, places: Sequence[Place]) -> None:
    source, target = places
    nbytes = step.source.nbytes
    if nbytes:
        recorder.copy([Copy(source.buffer, source.offset, target.buffer, target.offset, nbytes)])
