"""Recording: copies, barriers, a dispatch, into one command buffer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.vulkan.binding import Arena, Handle, vk
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import Timestamps


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes to copy from one buffer to another."""

    source: Handle
    source_offset: int
    target: Handle
    target_offset: int
    nbytes: int


class CommandPool:
    """A VkCommandPool whose buffers can be reset one by one. One thread at a time may record."""

    def __init__(self, device: Device, family: int) -> None:
        self._device = device
        arena = Arena()
        info = arena.new(
            "VkCommandPoolCreateInfo",
            flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
            queueFamilyIndex=family,
        )
        pool = vk.ffi.new("VkCommandPool *")
        vk.vkCreateCommandPool(device.handle, info, vk.ffi.NULL, pool)
        self._handle = pool[0]

    def allocate(self) -> Handle:
        arena = Arena()
        info = arena.new(
            "VkCommandBufferAllocateInfo",
            commandPool=self._handle,
            level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        )
        buffers = vk.ffi.new("VkCommandBuffer *")
        vk.vkAllocateCommandBuffers(self._device.handle, info, buffers)
        return buffers[0]

    def free(self, commands: Handle) -> None:
        buffers = vk.ffi.new("VkCommandBuffer[]", [commands])
        vk.vkFreeCommandBuffers(self._device.handle, self._handle, 1, buffers)

    def close(self) -> None:
        """Its command buffers go with it."""
        vk.vkDestroyCommandPool(self._device.handle, self._handle, vk.ffi.NULL)


class Recorder:
    """Commands into one command buffer, which it resets first; use it as a context manager."""

    def __init__(self, command_buffer: Handle, *, again: bool = False) -> None:
        """`again`: they may be submitted while the device still has them."""
        self._commands = command_buffer
        self._flags = vk.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT if again else 0

    def __enter__(self) -> Recorder:
        vk.vkResetCommandBuffer(self._commands, 0)
        vk.vkBeginCommandBuffer(self._commands, _begin_info(self._flags))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            vk.vkEndCommandBuffer(self._commands)

    def copy(self, copies: Sequence[Copy]) -> None:
        """One command for each pair of buffers, with a region for each copy between them."""
        by_buffers: dict[tuple[Handle, Handle], list[Copy]] = {}
        for copy in copies:
            by_buffers.setdefault((copy.source, copy.target), []).append(copy)
        for (source, target), among in by_buffers.items():
            regions = Arena().array("VkBufferCopy", len(among))
            for region, copy in zip(regions, among, strict=True):
                region.srcOffset, region.dstOffset = copy.source_offset, copy.target_offset
                region.size = copy.nbytes
            vk.vkCmdCopyBuffer(self._commands, source, target, len(among), regions)

    def dispatch(
        self, pipeline: Pipeline, descriptors: DescriptorSet, push: bytes, groups: int
    ) -> None:
        sets = vk.ffi.new("VkDescriptorSet[]", [descriptors.handle])
        self.launch(pipeline, sets, vk.ffi.from_buffer(push), groups)

    def launch(self, pipeline: Pipeline, sets: Handle, push: Handle, groups: int) -> None:
        """The same with an array of one set, and with push constants, that are C's already."""
        commands, layout, null = self._commands, pipeline.layout, vk.ffi.NULL
        compute = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        vk.vkCmdBindPipeline(commands, compute, pipeline.handle)
        vk.vkCmdBindDescriptorSets(commands, compute, layout, 0, 1, sets, 0, null)
        stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
        vk.vkCmdPushConstants(commands, layout, stage, 0, len(push), push)
        vk.vkCmdDispatch(commands, groups, 1, 1)

    def write(self, buffer: Handle, offset: int, data: Any) -> None:
        """Bytes that become part of the commands: 65,536 at most, offset and length in fours."""
        held = vk.ffi.from_buffer(data)
        vk.vkCmdUpdateBuffer(self._commands, buffer, offset, len(held), held)

    def reset_timestamps(self, timestamps: Timestamps) -> None:
        vk.vkCmdResetQueryPool(self._commands, timestamps.handle, 0, timestamps.count)

    def write_timestamp(self, timestamps: Timestamps | None, index: int) -> None:
        """The device's clock when all that was recorded before is done; nothing without any."""
        if timestamps is None:
            return
        done = vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        vk.vkCmdWriteTimestamp(self._commands, done, timestamps.handle, index)

    def barrier_all(self) -> None:
        """Everything recorded before is done and seen by everything after."""
        access = vk.VK_ACCESS_MEMORY_READ_BIT | vk.VK_ACCESS_MEMORY_WRITE_BIT
        stage = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        self._barrier(stage, access, stage, access)

    def barrier_kernels(self) -> None:
        """The kernels after it see what those before it wrote."""
        stage = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        access = vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT
        self._barrier(stage, vk.VK_ACCESS_SHADER_WRITE_BIT, stage, access)

    def barrier_copies_to_kernel(self) -> None:
        """The kernel reads what was copied."""
        self._barrier(
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT,
            vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            vk.VK_ACCESS_SHADER_READ_BIT,
        )

    def barrier_kernel_to_copies(self) -> None:
        """Copies read what the kernel wrote."""
        self._barrier(
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            vk.VK_ACCESS_SHADER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT,
            vk.VK_ACCESS_TRANSFER_READ_BIT,
        )

    def barrier_copies_to_host(self) -> None:
        """The host reads what was copied, on a queue that only copies."""
        self._barrier(
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT,
            vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_HOST_BIT,
            vk.VK_ACCESS_HOST_READ_BIT,
        )

    def barrier_all_to_host(self) -> None:
        """The host reads what was written: a semaphore's signal alone does not show it."""
        self._barrier(
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | vk.VK_PIPELINE_STAGE_TRANSFER_BIT,
            vk.VK_ACCESS_SHADER_WRITE_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_HOST_BIT,
            vk.VK_ACCESS_HOST_READ_BIT,
        )

    def _barrier(self, before: int, wrote: int, after: int, reads: int) -> None:
        null, barrier = vk.ffi.NULL, _memory_barrier(wrote, reads)
        vk.vkCmdPipelineBarrier(self._commands, before, after, 0, 1, barrier, 0, null, 0, null)


# Vulkan only reads these while it is called: each is made once, for all who record.


@functools.cache
def _begin_info(flags: int) -> Handle:
    return Arena().new("VkCommandBufferBeginInfo", flags=flags)


@functools.cache
def _memory_barrier(wrote: int, reads: int) -> Handle:
    return Arena().new("VkMemoryBarrier", srcAccessMask=wrote, dstAccessMask=reads)
