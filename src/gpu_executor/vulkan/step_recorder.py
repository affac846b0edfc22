"""The recorder that turns bound steps into commands, with barriers where they depend on each other.

Slots record the steps of a chunk: copies in, fills, a dispatch, copies out. The command stream
records the steps of operations on device arrays, and graphs of them. In both, a step waits behind a
barrier if it touches what an earlier step wrote, or writes what an earlier step read; other steps
may overlap.

`DispatchCache` has the pipelines of dispatches and their push constants, in an LRU cache.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Grid
from gpu_executor.steps.bound_steps import (
    BoundStep,
    CallDispatch,
    Copy,
    Fill,
    Memory,
    Write,
    WriteTimestamp,
)
from gpu_executor.steps.dispatch_sizes import DispatchSizes, make_dispatch_key
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import COPIES, KERNELS, Recorder
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.pipeline_cache import PipelineCache, PipelineRequest

MAX_CACHED_DISPATCHES = 256
"""A field operation needs one to five, for each number of elements."""


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
    is_retired: bool = False
    """Whether another one with another form of the pipeline is in its place."""


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
            else make_dispatch_key(dispatch)
        )
        prepared = self._prepared.get(key)
        if prepared is not None:
            if not prepared.pipeline.is_replaced:
                self._prepared.move_to_end(key)
                return prepared
            del self._prepared[key]
            prepared.is_retired = True
            if not prepared.uses:
                self._pipelines.release(prepared.pipeline)
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
            prepared = dispatches.pop()
            prepared.uses -= 1
            if prepared.is_retired and not prepared.uses:
                self._pipelines.release(prepared.pipeline)

    def compile_ahead(self, dispatches: Iterable[Dispatch]) -> None:
        """Let several threads compile what dispatches need that will be submitted soon."""
        self._pipelines.compile_ahead(self._list_requests(dispatches))

    def describe_pipelines(self, dispatches: Iterable[Dispatch]) -> str:
        """In which form the pipelines of dispatches are there, in words."""
        return self._pipelines.describe(self._list_requests(dispatches))

    def compile_all(
        self, dispatches: Iterable[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile the pipelines of dispatches in their usual form, and wait for them; returns their
        number."""
        return self._pipelines.compile_all(self._list_requests(dispatches), progress)

    def _list_requests(self, dispatches: Iterable[Dispatch]) -> Iterator[PipelineRequest]:
        for each in dispatches:
            sizes = DispatchSizes.choose(each, self._info)
            yield PipelineRequest(each.kernel, sizes.work_group, sizes.per_invocation)

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
        sizes = DispatchSizes.choose(dispatch, self._info)
        pipeline = self._pipelines.acquire(
            dispatch.kernel, sizes.work_group, sizes.per_invocation, params_in_buffer=False
        )
        return PreparedDispatch(pipeline, vk.ffi.from_buffer(sizes.push), (sizes.groups, 1, 1))
