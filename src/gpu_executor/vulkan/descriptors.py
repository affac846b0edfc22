"""Descriptor sets from pools of 500; a set is freed on its own, a full pool gets another pool.

An update template (Vulkan 1.3, 14.2.6) writes a set from packed integers in one call.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.steps.bound_steps import SetLayout
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import get_descriptor_type, make_set_layout

SETS_PER_POOL = 500
BUFFERS_PER_POOL = 2_000
VALUES_PER_BINDING = 3
"""A buffer's handle, an offset and a length: the fields of VkDescriptorBufferInfo."""


@dataclass(slots=True, eq=False)
class _Pool:
    handle: Handle
    sets_left: int
    buffers_left: int


@dataclass(frozen=True, slots=True, eq=False)
class _LayoutHandles:
    """What sets of one layout are made and written with."""

    layout: Handle
    template: Handle
    packer: struct.Struct
    bindings: int


@dataclass(frozen=True, slots=True, eq=False)
class DescriptorSet:
    """A descriptor set of one layout."""

    handles: Handle
    """A C array of its handle, as Vulkan's functions take it."""
    layout: SetLayout
    made_with: _LayoutHandles
    pool: _Pool


@dataclass(frozen=True, slots=True)
class DescriptorStats:
    """How many pools exist, and how many sets are allocated from them."""

    pools: int
    sets_used: int


class DescriptorPools:
    """The descriptor pools of one device.

    Free sets and descriptors are counted here, because drivers may allocate more than a pool was
    created for. Thread-safe.
    """

    def __init__(
        self, device: Device, *, sets: int = SETS_PER_POOL, buffers: int = BUFFERS_PER_POOL
    ) -> None:
        self._device = device
        self._sets, self._buffers = sets, buffers
        self._pools: list[_Pool] = []
        self._layouts: dict[SetLayout, _LayoutHandles] = {}
        self._used = 0
        self._lock = threading.Lock()

    def allocate(self, layout: SetLayout, values: Sequence[int]) -> DescriptorSet:
        """Allocate a set and write its bindings: VALUES_PER_BINDING integers each."""
        made = self._take(layout)
        try:
            self.write(made, values)
        except BaseException:
            self.release(made)
            raise
        return made

    def _take(self, layout: SetLayout) -> DescriptorSet:
        """Allocate a set of that layout without writing its bindings."""
        with self._lock:
            made_with = self._layouts.get(layout)
            if made_with is None:
                made_with = self._layouts[layout] = _make_layout(self._device, layout)
            pool = self._find_pool(made_with.bindings)
            handles = self._allocate(pool, made_with.layout)
            pool.sets_left -= 1
            pool.buffers_left -= made_with.bindings
            self._used += 1
        return DescriptorSet(handles, layout, made_with, pool)

    def write(self, descriptor_set: DescriptorSet, values: Sequence[int]) -> None:
        """Write the bindings of a set that no commands in flight use."""
        made_with = descriptor_set.made_with
        data = vk.ffi.from_buffer(made_with.packer.pack(*values))
        vk.vkUpdateDescriptorSetWithTemplate(
            self._device.handle, descriptor_set.handles[0], made_with.template, data
        )

    def release(self, descriptor_set: DescriptorSet) -> None:
        with self._lock:
            pool, device = descriptor_set.pool, self._device.handle
            vk.vkFreeDescriptorSets(device, pool.handle, 1, descriptor_set.handles)
            pool.sets_left += 1
            pool.buffers_left += descriptor_set.made_with.bindings
            self._used -= 1

    def close(self) -> None:
        device, null = self._device.handle, vk.ffi.NULL
        with self._lock:
            for pool in self._pools:
                vk.vkDestroyDescriptorPool(device, pool.handle, null)
            self._pools.clear()
            for each in self._layouts.values():
                vk.vkDestroyDescriptorUpdateTemplate(device, each.template, null)
                vk.vkDestroyDescriptorSetLayout(device, each.layout, null)
            self._layouts.clear()
            self._used = 0

    def stats(self) -> DescriptorStats:
        with self._lock:
            return DescriptorStats(len(self._pools), self._used)

    def _find_pool(self, buffers: int) -> _Pool:
        for pool in self._pools:
            if pool.sets_left and pool.buffers_left >= buffers:
                return pool
        most = max(self._buffers, buffers)
        pool = _Pool(self._make_pool(most), self._sets, most)
        self._pools.append(pool)
        return pool

    def _make_pool(self, buffers: int) -> Handle:
        arena = Arena()
        sizes = arena.array("VkDescriptorPoolSize", 2)
        # A kernel has at most two uniform buffers: its own, and its push constants.
        for size, uniform in zip(sizes, (False, True), strict=True):
            size.type = get_descriptor_type(uniform=uniform)
            size.descriptorCount = 2 * self._sets if uniform else buffers
        info = arena.new(
            "VkDescriptorPoolCreateInfo",
            flags=vk.VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT,
            maxSets=self._sets,
            poolSizeCount=len(sizes),
            pPoolSizes=sizes,
        )
        pool = allocate_out("VkDescriptorPool")
        vk.vkCreateDescriptorPool(self._device.handle, info, vk.ffi.NULL, pool)
        return pool[0]

    def _allocate(self, pool: _Pool, set_layout: Handle) -> Handle:
        arena = Arena()
        info = arena.new(
            "VkDescriptorSetAllocateInfo",
            descriptorPool=pool.handle,
            descriptorSetCount=1,
            pSetLayouts=arena.array("VkDescriptorSetLayout", [set_layout]),
        )
        handles = allocate_out("VkDescriptorSet")
        vk.vkAllocateDescriptorSets(self._device.handle, info, handles)
        return handles


class TransientSets:
    """Descriptor sets that are written for each use. Not safe from several threads.

    Dispatches on device arrays rarely bind the same arrays twice, so a set is written anew for each
    dispatch and goes to the next one when the device has completed the first. There are as many
    sets as dispatches were ever in flight at once, and no dispatch waits for a set.
    """

    def __init__(self, pools: DescriptorPools) -> None:
        self._pools = pools
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


def _make_layout(device: Device, layout: SetLayout) -> _LayoutHandles:
    bindings, uniforms = (range(layout), ()) if isinstance(layout, int) else layout
    set_layout = make_set_layout(device, bindings, uniforms)
    try:
        template = _make_template(device, set_layout, bindings, uniforms)
    except BaseException:
        vk.vkDestroyDescriptorSetLayout(device.handle, set_layout, vk.ffi.NULL)
        raise
    count = len(bindings) + len(uniforms)
    packer = struct.Struct(f"={VALUES_PER_BINDING * count}Q")
    return _LayoutHandles(set_layout, template, packer, count)


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
