"""Descriptor sets from pools of 500; a set is freed on its own, a full pool gets another pool."""

from __future__ import annotations

import threading

from gpu_executor.lean_dataclass import dataclass
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline, get_descriptor_type

SETS_PER_POOL = 500
BUFFERS_PER_POOL = 2_000


@dataclass(slots=True, eq=False)
class _Pool:
    handle: Handle
    sets_left: int
    buffers_left: int


@dataclass(frozen=True, slots=True, eq=False)
class DescriptorSet:
    """A descriptor set that binds buffer ranges for one pipeline layout."""

    handle: Handle
    pool: _Pool
    bindings: int


@dataclass(frozen=True, slots=True)
class DescriptorRange:
    """The buffer range of one binding."""

    binding: int
    buffer: Handle
    offset: int
    nbytes: int
    uniform: bool = False
    """Whether the binding is a uniform buffer; otherwise it is a storage buffer."""


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
        self._used = 0
        self._lock = threading.Lock()

    def allocate(self, pipeline: Pipeline, ranges: list[DescriptorRange]) -> DescriptorSet:
        """Allocate a set for a pipeline and write its bindings."""
        made = self.take(pipeline.set_layout, len(ranges))
        self._write(made.handle, ranges)
        return made

    def take(self, set_layout: Handle, bindings: int) -> DescriptorSet:
        """Allocate a set of that layout without writing its bindings."""
        with self._lock:
            pool = self._find_pool(bindings)
            handle = self._allocate(pool, set_layout)
            pool.sets_left -= 1
            pool.buffers_left -= bindings
            self._used += 1
        return DescriptorSet(handle, pool, bindings)

    def release(self, descriptor_set: DescriptorSet) -> None:
        with self._lock:
            handles = vk.ffi.new("VkDescriptorSet[]", [descriptor_set.handle])
            pool = descriptor_set.pool
            vk.vkFreeDescriptorSets(self._device.handle, pool.handle, 1, handles)
            pool.sets_left += 1
            pool.buffers_left += descriptor_set.bindings
            self._used -= 1

    def close(self) -> None:
        with self._lock:
            for pool in self._pools:
                vk.vkDestroyDescriptorPool(self._device.handle, pool.handle, vk.ffi.NULL)
            self._pools.clear()
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
        return handles[0]

    def _write(self, handle: Handle, ranges: list[DescriptorRange]) -> None:
        arena = Arena()
        writes = arena.array("VkWriteDescriptorSet", len(ranges))
        for write, part in zip(writes, ranges, strict=True):
            buffer = arena.new(
                "VkDescriptorBufferInfo",
                buffer=part.buffer,
                offset=part.offset,
                range=part.nbytes,
            )
            write.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
            write.dstSet, write.dstBinding, write.descriptorCount = handle, part.binding, 1
            write.descriptorType = get_descriptor_type(uniform=part.uniform)
            write.pBufferInfo = buffer
        vk.vkUpdateDescriptorSets(self._device.handle, len(ranges), writes, 0, vk.ffi.NULL)
