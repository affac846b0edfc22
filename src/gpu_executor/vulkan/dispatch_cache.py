"""What recording a dispatch needs: a descriptor set, and a pipeline with its push constants.

`TransientSets` has the descriptor sets. Dispatches rarely bind the same arrays twice, so a set is
written anew for each dispatch and goes to the next one when the device has completed the first.
There are as many sets as dispatches were ever in flight at once, and no dispatch waits for a set.
An update template (Vulkan 1.3, 14.2.6) writes a set from packed integers in one call.

`DispatchCache` has everything about a dispatch except its arrays, in an LRU cache.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import field

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.lru import LruCache
from gpu_executor.plan.plan import choose_elements_per_invocation, choose_work_groups
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline, get_descriptor_type, make_set_layout
from gpu_executor.vulkan.resources import Resources

VALUES_PER_BINDING = 3
"""A buffer's handle, an offset and a length: the fields of VkDescriptorBufferInfo."""
MAX_CACHED_DISPATCHES = 256
"""A field operation needs one to five, for each number of elements."""
SetLayout = int | tuple[tuple[int, ...], tuple[int, ...]]
"""The storage buffers of a descriptor set: their number if they are bindings 0, 1, ..., else their
bindings and those of uniform buffers behind them."""


@dataclass(slots=True, eq=False)
class TransientSet:
    """A descriptor set, and a C array of its handle, as vkCmdBindDescriptorSets takes it."""

    descriptor_set: DescriptorSet
    handles: Handle
    layout: SetLayout


@dataclass(frozen=True, slots=True, eq=False)
class CallDispatch:
    """One dispatch of a call: everything but its arrays."""

    kernel: Kernel
    work_group: int
    per_invocation: int
    push: bytes
    grid: Grid
    set_layout: SetLayout


@dataclass(slots=True, eq=False)
class _SetGroup:
    """The sets of one layout."""

    layout: Handle
    template: Handle
    packer: struct.Struct
    idle: list[TransientSet] = field(default_factory=list)


class TransientSets:
    """Descriptor sets that are written for each use. Not safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._device, self._pools = resources.device, resources.descriptors
        self._groups: dict[SetLayout, _SetGroup] = {}

    def acquire(self, values: Sequence[int], layout: SetLayout) -> TransientSet:
        """A set that binds these buffer ranges: VALUES_PER_BINDING integers per binding."""
        group = self._groups.get(layout)
        if group is None:
            group = self._groups[layout] = _make_group(self._device, layout)
        if group.idle:
            acquired = group.idle.pop()
        else:
            made = self._pools.take(group.layout, len(values) // VALUES_PER_BINDING)
            handles = vk.ffi.new("VkDescriptorSet[]", [made.handle])
            acquired = TransientSet(made, handles, layout)
        data = vk.ffi.from_buffer(group.packer.pack(*values))
        vk.vkUpdateDescriptorSetWithTemplate(
            self._device.handle, acquired.descriptor_set.handle, group.template, data
        )
        return acquired

    def release(self, sets: list[TransientSet]) -> None:
        """Take back sets that the device no longer uses, and empty the list."""
        while sets:
            each = sets.pop()  # before it is idle, so that an interrupt never releases it twice
            self._groups[each.layout].idle.append(each)

    def close(self) -> None:
        """Free all sets; every set must have been released."""
        device, null = self._device.handle, vk.ffi.NULL
        for group in self._groups.values():
            for each in group.idle:
                self._pools.release(each.descriptor_set)
            vk.vkDestroyDescriptorUpdateTemplate(device, group.template, null)
            vk.vkDestroyDescriptorSetLayout(device, group.layout, null)
        self._groups.clear()


def _make_group(device: Device, layout: SetLayout) -> _SetGroup:
    bindings, uniforms = (range(layout), ()) if isinstance(layout, int) else layout
    set_layout = make_set_layout(device, bindings, uniforms)
    try:
        template = _make_template(device, set_layout, bindings, uniforms)
    except BaseException:
        vk.vkDestroyDescriptorSetLayout(device.handle, set_layout, vk.ffi.NULL)
        raise
    values = VALUES_PER_BINDING * (len(bindings) + len(uniforms))
    return _SetGroup(set_layout, template, struct.Struct(f"={values}Q"))


def _make_template(
    device: Device, layout: Handle, bindings: Sequence[int], uniforms: Sequence[int]
) -> Handle:
    arena, nbytes = Arena(), vk.ffi.sizeof("VkDescriptorBufferInfo")
    numbers = [*bindings, *uniforms]
    entries = arena.array("VkDescriptorUpdateTemplateEntry", len(numbers))
    for index, (binding, entry) in enumerate(zip(numbers, entries, strict=True)):
        entry.dstBinding, entry.descriptorCount = binding, 1
        entry.descriptorType = get_descriptor_type(uniform=index >= len(bindings))
        entry.offset, entry.stride = index * nbytes, nbytes
    info = arena.new(
        "VkDescriptorUpdateTemplateCreateInfo",
        descriptorUpdateEntryCount=len(numbers),
        pDescriptorUpdateEntries=entries,
        templateType=vk.VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_DESCRIPTOR_SET,
        descriptorSetLayout=layout,
    )
    template = allocate_out("VkDescriptorUpdateTemplate")
    vk.vkCreateDescriptorUpdateTemplate(device.handle, info, vk.ffi.NULL, template)
    return template[0]


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
        push = struct.pack("<I", dispatch.count) + kernel.push
        push += struct.pack(f"<{len(dispatch.push_words)}I", *dispatch.push_words)
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
