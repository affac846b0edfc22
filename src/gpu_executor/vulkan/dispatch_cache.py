"""Descriptor sets that are written again for each use, for arrays that are seldom the same twice.

A set is taken, written and bound, and given back when the device is done with it; then another
dispatch of as many arrays has it. So there are as many sets as dispatches were in flight at once,
and none is waited for. An update template (Vulkan 1.3, 14.2.6) writes one from packed numbers in a
single call.

DispatchCache: what a dispatch needs but for its arrays, found once and kept for the next time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import LruCache
from gpu_executor.plan.plan import choose_work_groups
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline, make_set_layout
from gpu_executor.vulkan.resources import Resources

NUMBERS = 3
"""Of a binding: the buffer's handle, an offset, a length, as VkDescriptorBufferInfo has them."""


@dataclass(slots=True, eq=False)
class TransientSet:
    """A set, and the array of one handle that Vulkan wants it in."""

    own: DescriptorSet
    handles: Handle


@dataclass(slots=True, eq=False)
class _Kind:
    """Sets of one number of bindings."""

    layout: Handle
    template: Handle
    packed: struct.Struct
    idle: list[TransientSet] = field(default_factory=list)


class TransientSets:
    """One thread at a time."""

    def __init__(self, resources: Resources) -> None:
        self._device, self._pools = resources.device, resources.descriptors
        self._kinds: dict[int, _Kind] = {}

    def take(self, numbers: Sequence[int]) -> TransientSet:
        """A set that binds these: NUMBERS for each binding."""
        bindings = len(numbers) // NUMBERS
        kind = self._kinds.get(bindings)
        if kind is None:
            kind = self._kinds[bindings] = _make_kind(self._device, bindings)
        if kind.idle:
            taken = kind.idle.pop()
        else:
            own = self._pools.take(kind.layout, bindings)
            taken = TransientSet(own, vk.ffi.new("VkDescriptorSet[]", [own.handle]))
        data = vk.ffi.from_buffer(kind.packed.pack(*numbers))
        vk.vkUpdateDescriptorSetWithTemplate(
            self._device.handle, taken.own.handle, kind.template, data
        )
        return taken

    def give_back(self, sets: list[TransientSet]) -> None:
        """The device is done with them: empties the list."""
        while sets:
            each = sets.pop()  # first, so that an interrupt never gives one back twice
            self._kinds[each.own.bindings].idle.append(each)

    def close(self) -> None:
        """All of them must have been given back."""
        device, null = self._device.handle, vk.ffi.NULL
        for kind in self._kinds.values():
            for each in kind.idle:
                self._pools.release(each.own)
            vk.vkDestroyDescriptorUpdateTemplate(device, kind.template, null)
            vk.vkDestroyDescriptorSetLayout(device, kind.layout, null)
        self._kinds.clear()


def _make_kind(device: Device, bindings: int) -> _Kind:
    layout = make_set_layout(device, bindings)
    try:
        template = _make_template(device, layout, bindings)
    except BaseException:
        vk.vkDestroyDescriptorSetLayout(device.handle, layout, vk.ffi.NULL)
        raise
    return _Kind(layout, template, struct.Struct(f"={NUMBERS * bindings}Q"))


def _make_template(device: Device, layout: Handle, bindings: int) -> Handle:
    arena, nbytes = Arena(), vk.ffi.sizeof("VkDescriptorBufferInfo")
    entries = arena.array("VkDescriptorUpdateTemplateEntry", bindings)
    for binding, entry in enumerate(entries):
        entry.dstBinding, entry.descriptorCount = binding, 1
        entry.descriptorType = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        entry.offset, entry.stride = binding * nbytes, nbytes
    info = arena.new(
        "VkDescriptorUpdateTemplateCreateInfo",
        descriptorUpdateEntryCount=bindings,
        pDescriptorUpdateEntries=entries,
        templateType=vk.VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_DESCRIPTOR_SET,
        descriptorSetLayout=layout,
    )
    template = out("VkDescriptorUpdateTemplate")
    vk.vkCreateDescriptorUpdateTemplate(device.handle, info, vk.ffi.NULL, template)
    return template[0]


DISPATCHES_CACHED = 256
"""A field operation needs one to five, for each number of elements."""
Key = tuple[Kernel, int, int, tuple[int, ...], int | None, bool, int | None]


@dataclass(slots=True, eq=False)
class PreparedDispatch:
    """A pipeline, push constants in C's memory, a number of work-groups."""

    pipeline: Pipeline
    push: Handle
    groups: int
    uses: int = 0
    """Commands that refer to the pipeline and that the device may still run."""


class DispatchCache:
    """The least recently used are given up, but none that is in use. One thread at a time."""

    def __init__(self, resources: Resources) -> None:
        self._pipelines, self._info = resources.pipelines, resources.device.info
        self._known: LruCache[Key, PreparedDispatch] = LruCache()

    def take(self, dispatch: Dispatch) -> PreparedDispatch:
        """What runs a dispatch, in use until it is given back."""
        key = (
            dispatch.kernel,
            len(dispatch.arrays),
            dispatch.count,
            dispatch.push_words,
            dispatch.groups,
            dispatch.grid_stride,
            dispatch.work_group,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._make(dispatch)
            known.uses += 1
            for unused in self._known.evict(DISPATCHES_CACHED, in_use=lambda each: each.uses > 0):
                self._pipelines.release(unused.pipeline)
            return known
        self._known.move_to_end(key)
        known.uses += 1
        return known

    def give_back(self, dispatches: list[PreparedDispatch]) -> None:
        """The device is done with the commands that they were taken for: empties the list."""
        while dispatches:
            dispatches.pop().uses -= 1

    def close(self) -> None:
        for launch in self._known.values():
            self._pipelines.release(launch.pipeline)
        self._known.clear()

    def _make(self, dispatch: Dispatch) -> PreparedDispatch:
        kernel, given = dispatch.kernel, len(dispatch.arrays)
        if kernel.status or given != kernel.bindings:
            raise KernelError(
                f"{kernel.name}: {given} arrays for {kernel.bindings} bindings; a status word has "
                "no place in a chain, which nobody waits for"
            )
        # Several elements at once, and one by one those that are left over.
        taken = sum(divmod(dispatch.count, kernel.packed))
        size, per_invocation = choose_work_groups(kernel, taken, self._info, [])
        if dispatch.work_group is not None:
            size = dispatch.work_group
        groups = self._groups(dispatch, -(-taken // (size * per_invocation)))
        push = struct.pack("<I", dispatch.count) + kernel.push
        push += struct.pack(f"<{len(dispatch.push_words)}I", *dispatch.push_words)
        if len(push) > kernel.interface.push_constant_bytes:
            raise KernelError(
                f"{kernel.name}: {len(push)} bytes of push constants; its code has "
                f"{kernel.interface.push_constant_bytes}"
            )
        pipeline = self._pipelines.acquire(kernel, size, per_invocation)
        return PreparedDispatch(pipeline, vk.ffi.from_buffer(push), groups)

    def _groups(self, dispatch: Dispatch, needed: int) -> int:
        groups = needed if dispatch.groups is None else dispatch.groups
        most = self._info.limits.max_work_group_count[0]
        if dispatch.grid_stride:
            return min(groups, most)
        if groups > most:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: {groups:,} work-groups; {self._info.name} starts "
                f"{most:,} at most"
            )
        return groups
