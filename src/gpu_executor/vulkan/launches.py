"""Launches: what a dispatch needs but for its arrays, found once and kept for the next time."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import LruCache
from gpu_executor.plan.work_groups import choose_work_groups
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.resources import Resources

LAUNCHES_KEPT = 256
"""A field operation needs one to five, for each number of elements."""
Key = tuple[Kernel, int, int, tuple[int, ...], int | None, bool, int | None]


@dataclass(slots=True, eq=False)
class Launch:
    """A pipeline, push constants in C's memory, a number of work-groups."""

    pipeline: Pipeline
    push: Handle
    groups: int
    uses: int = 0
    """Commands that refer to the pipeline and that the device may still run."""


class Launches:
    """The least recently used are given up, but none that is in use. One thread at a time."""

    def __init__(self, resources: Resources) -> None:
        self._pipelines, self._info = resources.pipelines, resources.device.info
        self._known: LruCache[Key, Launch] = LruCache()

    def take(self, dispatch: Dispatch) -> Launch:
        """What runs a dispatch, in use until it is given back."""
        key = (
            dispatch.kernel,
            len(dispatch.arrays),
            dispatch.count,
            dispatch.words,
            dispatch.groups,
            dispatch.strides,
            dispatch.work_group,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._make(dispatch)
            known.uses += 1
            for unused in self._known.evict(LAUNCHES_KEPT, in_use=lambda each: each.uses > 0):
                self._pipelines.release(unused.pipeline)
            return known
        self._known.move_to_end(key)
        known.uses += 1
        return known

    def give_back(self, launches: list[Launch]) -> None:
        """The device is done with the commands that they were taken for: empties the list."""
        while launches:
            launches.pop().uses -= 1

    def close(self) -> None:
        for launch in self._known.values():
            self._pipelines.release(launch.pipeline)
        self._known.clear()

    def _make(self, dispatch: Dispatch) -> Launch:
        kernel, given = dispatch.kernel, len(dispatch.arrays)
        if kernel.status or given != kernel.bindings:
            raise KernelError(
                f"{kernel.name}: {given} arrays for {kernel.bindings} bindings; a status word has "
                "no place in a chain, which nobody waits for"
            )
        # Several elements at once, and one by one those that are left over.
        taken = sum(divmod(dispatch.count, kernel.neighbours))
        size, per_invocation = choose_work_groups(kernel, taken, self._info, [])
        if dispatch.work_group is not None:
            size = dispatch.work_group
        groups = self._groups(dispatch, -(-taken // (size * per_invocation)))
        push = struct.pack("<I", dispatch.count) + kernel.push
        push += struct.pack(f"<{len(dispatch.words)}I", *dispatch.words)
        if len(push) > kernel.interface.push_constant_bytes:
            raise KernelError(
                f"{kernel.name}: {len(push)} bytes of push constants; its code has "
                f"{kernel.interface.push_constant_bytes}"
            )
        pipeline = self._pipelines.acquire(kernel, size, per_invocation)
        return Launch(pipeline, vk.ffi.from_buffer(push), groups)

    def _groups(self, dispatch: Dispatch, needed: int) -> int:
        groups = needed if dispatch.groups is None else dispatch.groups
        most = self._info.limits.max_work_group_count[0]
        if dispatch.strides:
            return min(groups, most)
        if groups > most:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: {groups:,} work-groups; {self._info.name} starts "
                f"{most:,} at most"
            )
        return groups
