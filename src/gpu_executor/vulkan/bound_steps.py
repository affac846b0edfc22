"""Bound steps: dispatches, copies, fills and writes with the memory that they use, and the recorder
that turns a sequence of them into commands.

Slots record the steps of a chunk: copies in, fills, a dispatch, copies out. The command stream
records the steps of operations on device arrays, and graphs of them. In both, a step waits behind a
barrier if it touches what an earlier step wrote, or writes what an earlier step read; other steps
may overlap.

`DispatchCache` has the pipelines of dispatches and their push constants, in an LRU cache.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.kernel.parameters import NO_VALUES
from gpu_executor.plan.plan import choose_elements_per_invocation, choose_work_groups
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import COPIES, KERNELS, Copy, Fill, Recorder
from gpu_executor.vulkan.descriptors import SetLayout
from gpu_executor.vulkan.device_storage import StatusCheck
from gpu_executor.vulkan.pipeline import Pipeline, PipelineCache
from gpu_executor.vulkan.profile import Timestamps

MAX_CACHED_DISPATCHES = 256
"""A field operation needs one to five, for each number of elements."""
Memory = TypeVar("Memory", bound=Hashable)
"""Identifies the memory of an array: the storage of a device array, or an offset in a buffer."""


@dataclass(frozen=True, slots=True, eq=False)
class CallDispatch:
    """One dispatch of a call: everything but its arrays."""

    kernel: Kernel
    work_group: int
    per_invocation: int
    push: bytes
    grid: Grid
    set_layout: SetLayout


class Write(NamedTuple):
    """A few bytes that become part of the commands (`Recorder.write`)."""

    buffer: Handle
    offset: int
    data: bytes


class WriteTimestamp(NamedTuple):
    """The device's clock, when the steps before are done."""

    timestamps: Timestamps
    number: int


class BoundStep(NamedTuple, Generic[Memory]):
    """A dispatch, a copy, a fill or a write, with the memory that it uses."""

    work: Dispatch | CallDispatch | Copy | Fill | Write | WriteTimestamp
    memory: Sequence[Memory]
    """The memory of its arrays."""
    inputs: int
    """The number of entries of `memory` that it only reads; they come first. It writes the
    others."""
    bindings: Sequence[int] = ()
    """What a dispatch binds, as `DescriptorPools.write` takes it."""
    check: StatusCheck | None = None
    """The status word of a checked kernel."""
    staging: object = None
    """Memory that the host may not write before the device has completed the step."""


class ResolvedDispatch(NamedTuple):
    """A dispatch as `Recorder.dispatch` takes it."""

    pipeline: Pipeline
    sets: Handle
    push: Handle
    grid: Grid


Resolve = Callable[[Dispatch | CallDispatch, Sequence[int]], ResolvedDispatch]
"""Finds the pipeline of a dispatch, and makes a descriptor set of its bindings."""


class _Accesses:
    """What earlier steps read and wrote, and later steps of one stage do not wait for yet."""

    __slots__ = ("_read", "_written", "stages")

    def __init__(self) -> None:
        self._read: set[object] = set()
        self._written: set[object] = set()
        self.stages = 0
        """The stages of these steps."""

    def add(self, step: BoundStep[Memory], stage: int) -> None:
        self._read.update(step.memory[: step.inputs])
        self._written.update(step.memory[step.inputs :])
        self.stages |= stage

    def conflict_with(self, step: BoundStep[Memory]) -> bool:
        """Whether a step touches what was written, or writes what was read."""
        return not (
            self._written.isdisjoint(step.memory)
            and self._read.isdisjoint(step.memory[step.inputs :])
        )

    def clear(self) -> None:
        self._read.clear()
        self._written.clear()
        self.stages = 0


def record_steps(
    recorder: Recorder,
    steps: Sequence[BoundStep[Memory]],
    resolve: Resolve,
    earlier: Sequence[BoundStep[Memory]] = (),
) -> int:
    """Record steps in order, with barriers where they depend on each other; return the number of
    barriers. `earlier` steps are in commands that were submitted to the same queue before, without
    a barrier behind them."""
    barriers = 0
    has_order = len(steps) + len(earlier) > 1
    unseen = {COPIES: _Accesses(), KERNELS: _Accesses()}
    for step in earlier:
        for accesses in unseen.values():
            accesses.add(step, _get_stage(step))
    copies: list[Copy] = []
    """Copies that do not depend on each other, to be recorded together."""
    for step in steps:
        work = step.work
        if has_order and not isinstance(work, WriteTimestamp):
            stage = _get_stage(step)
            before = unseen[stage]
            if before.conflict_with(step):
                _record_copies(recorder, copies)
                recorder.barrier(before.stages, stage)
                before.clear()
                barriers += 1
            for accesses in unseen.values():
                accesses.add(step, stage)
        if isinstance(work, Copy):
            copies.append(work)
            continue
        _record_copies(recorder, copies)
        if isinstance(work, Fill):
            recorder.fill(work)
        elif isinstance(work, Write):
            recorder.write(*work)
        elif isinstance(work, WriteTimestamp):
            recorder.write_timestamp(*work)
        else:
            recorder.dispatch(*resolve(work, step.bindings))
    _record_copies(recorder, copies)
    return barriers


def _record_copies(recorder: Recorder, copies: list[Copy]) -> None:
    """Record the copies that were collected, and forget them."""
    if copies:
        recorder.copy(copies)
        copies.clear()


def _get_stage(step: BoundStep[Memory]) -> int:
    return COPIES if isinstance(step.work, Copy | Fill | Write) else KERNELS


# --- dispatches of algorithms ---


@dataclass(slots=True, eq=False)
class PreparedDispatch:
    """A pipeline, push constants in C memory, and the work-groups."""

    pipeline: Pipeline
    push: Handle
    grid: Grid
    uses: int = 0
    """Recorded dispatches that use the pipeline."""


def _make_key(dispatch: Dispatch) -> Hashable:
    return (
        dispatch.kernel,
        len(dispatch.arrays),
        dispatch.count,
        dispatch.push_words,
        dispatch.groups,
        dispatch.grid_stride,
        dispatch.work_group,
    )


def choose_sizes(dispatch: Dispatch, info: DeviceInfo) -> tuple[int, int, int]:
    """The numbers that a dispatch of an algorithm has elements to share out, invocations of a
    work-group, and elements of an invocation."""
    kernel = dispatch.kernel
    # A packed kernel loads several elements per invocation, and single elements at the end.
    needed = sum(divmod(dispatch.count, kernel.packed))
    if dispatch.work_group is None:
        return needed, *choose_work_groups(kernel, needed, info, [])
    per_invocation = choose_elements_per_invocation(kernel, needed, info)
    return needed, dispatch.work_group, per_invocation


class DispatchCache:
    """Prepared dispatches, least recently used first; one in use is never evicted.

    Not safe from several threads.
    """

    def __init__(self, pipelines: PipelineCache, info: DeviceInfo) -> None:
        self._pipelines, self._info = pipelines, info
        self._prepared: LruCache[Hashable, PreparedDispatch] = LruCache()

    def find(self, dispatch: Dispatch | CallDispatch) -> PreparedDispatch:
        """The prepared dispatch, which may be evicted unless it is acquired.

        That of a call has only the pipeline: its push constants and grid differ from call to call.
        """
        key: Hashable = (
            (dispatch.kernel, dispatch.work_group, dispatch.per_invocation)
            if isinstance(dispatch, CallDispatch)
            else _make_key(dispatch)
        )
        prepared = self._prepared.get(key)
        if prepared is not None:
            self._prepared.move_to_end(key)
            return prepared
        prepared = self._prepare(dispatch)
        for unused in self._prepared.evict(
            MAX_CACHED_DISPATCHES - 1, in_use=lambda each: each.uses > 0
        ):
            self._pipelines.release(unused.pipeline)
        self._prepared[key] = prepared
        return prepared

    def acquire(self, dispatch: Dispatch | CallDispatch) -> PreparedDispatch:
        """The prepared dispatch, in use until it is released."""
        prepared = self.find(dispatch)
        prepared.uses += 1
        return prepared

    def release(self, dispatches: list[PreparedDispatch]) -> None:
        """Take back dispatches that no recorded commands use any more, and empty the list."""
        while dispatches:
            dispatches.pop().uses -= 1

    def close(self) -> None:
        for prepared in self._prepared.values():
            self._pipelines.release(prepared.pipeline)
        self._prepared.clear()

    def _prepare(self, dispatch: Dispatch | CallDispatch) -> PreparedDispatch:
        if isinstance(dispatch, CallDispatch):
            pipeline = self._pipelines.acquire(
                dispatch.kernel,
                dispatch.work_group,
                dispatch.per_invocation,
                params_in_buffer=False,
            )
            return PreparedDispatch(pipeline, vk.ffi.NULL, (1, 1, 1))
        kernel, given = dispatch.kernel, len(dispatch.arrays)
        if kernel.status != (dispatch.make_error is not None):
            raise KernelError(
                f"{kernel.name}: a dispatch needs make_error if, and only if, its kernel has a "
                "status word"
            )
        if given + kernel.status != kernel.bindings:
            raise KernelError(
                f"{kernel.name}: {given} arrays were given for {kernel.bindings} bindings"
            )
        needed, size, per_invocation = choose_sizes(dispatch, self._info)
        groups = self._count_groups(dispatch, -(-needed // (size * per_invocation)))
        words = struct.pack(f"<{len(dispatch.push_words)}I", *dispatch.push_words)
        push = kernel.compose_push(dispatch.count, words, NO_VALUES)
        if len(push) > kernel.interface.push_constant_bytes:
            raise KernelError(
                f"{kernel.name}: {len(push)} bytes of push constants were given; its code declares "
                f"{kernel.interface.push_constant_bytes}"
            )
        pipeline = self._pipelines.acquire(kernel, size, per_invocation, params_in_buffer=False)
        return PreparedDispatch(pipeline, vk.ffi.from_buffer(push), (groups, 1, 1))

    def _count_groups(self, dispatch: Dispatch, needed: int) -> int:
        groups = needed if dispatch.groups is None else dispatch.groups
        most = self._info.limits.max_work_group_count[0]
        if dispatch.grid_stride:
            return min(groups, most)
        if groups > most:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: {groups:,} work-groups are needed; {self._info.name} "
                f"starts {most:,} at most"
            )
        return groups
