"""What recording a dispatch needs: a descriptor set, and a pipeline with its push constants.

`TransientSets` has the descriptor sets. Dispatches rarely bind the same arrays twice, so a set is
written anew for each dispatch and goes to the next one when the device has completed the first.
There are as many sets as dispatches were ever in flight at once, and no dispatch waits for a set.

`DispatchCache` has everything about a dispatch except its arrays, in an LRU cache.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Grid
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.lru import LruCache
from gpu_executor.parameters import NO_VALUES
from gpu_executor.plan.plan import choose_elements_per_invocation, choose_work_groups
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.bound_steps import CallDispatch
from gpu_executor.vulkan.descriptors import DescriptorSet, SetLayout
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.resources import Resources

MAX_CACHED_DISPATCHES = 256
"""A field operation needs one to five, for each number of elements."""


class TransientSets:
    """Descriptor sets that are written for each use. Not safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._pools = resources.descriptors
        self._idle: dict[SetLayout, list[DescriptorSet]] = {}

    def acquire(self, values: Sequence[int], layout: SetLayout) -> DescriptorSet:
        """A set that binds these buffer ranges: VALUES_PER_BINDING integers per binding."""
        idle = self._idle.get(layout)
        if not idle:
            return self._pools.allocate(layout, values)
        acquired = idle.pop()
        self._pools.write(acquired, values)
        return acquired

    def release(self, sets: list[DescriptorSet]) -> None:
        """Take back sets that the device no longer uses, and empty the list."""
        while sets:
            each = sets.pop()  # before it is idle, so that an interrupt never releases it twice
            self._idle.setdefault(each.layout, []).append(each)

    def close(self) -> None:
        """Free all sets; every set must have been released."""
        for idle in self._idle.values():
            for each in idle:
                self._pools.release(each)
        self._idle.clear()


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


class DispatchCache:
    """Prepared dispatches, least recently used first; one in use is never evicted.

    Not safe from several threads.
    """

    def __init__(self, resources: Resources) -> None:
        self._pipelines, self._info = resources.pipelines, resources.device.info
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
        # A packed kernel loads several elements per invocation, and single elements at the end.
        needed = sum(divmod(dispatch.count, kernel.packed))
        if dispatch.work_group is None:
            size, per_invocation = choose_work_groups(kernel, needed, self._info, [])
        else:
            size = dispatch.work_group
            per_invocation = choose_elements_per_invocation(kernel, needed, self._info)
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
