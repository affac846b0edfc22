"""Command pools, and a recorder of copies, dispatches, pipeline barriers and timestamps."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

from gpu_executor.errors import GpuError
from gpu_executor.kernel import Grid
from gpu_executor.steps.bound_steps import MAX_UPDATE_BYTES, Copy, Fill
from gpu_executor.vulkan.binding import Arena, Handle, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import Timestamps

COPIES, KERNELS, HOST = 1, 2, 4
"""What `Recorder.barrier` orders: copies, fills and writes; dispatches; accesses of the host."""


class CommandPool:
    """A VkCommandPool whose command buffers can be reset one by one. Not thread-safe."""

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

    def close(self) -> None:
        """Destroy the pool and its command buffers."""
        vk.vkDestroyCommandPool(self._device.handle, self._handle, vk.ffi.NULL)


class Recorder:
    """Records one command buffer, which beginning resets. Use it as a context manager.

    After an error the command buffer is empty.
    """

    def __init__(self, command_buffer: Handle, *, simultaneous_use: bool = False) -> None:
        """`simultaneous_use`: the commands may be submitted again while they still run."""
        self._commands = command_buffer
        self._flags = vk.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT if simultaneous_use else 0

    def __enter__(self) -> Recorder:
        vk.vkBeginCommandBuffer(self._commands, _make_begin_info(self._flags))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            try:
                vk.vkEndCommandBuffer(self._commands)
            except BaseException:
                self._reset()
                raise
        else:
            self._reset()

    def _reset(self) -> None:
        """End the recording state, in which a command buffer must not begin again."""
        with contextlib.suppress(GpuError):
            vk.vkResetCommandBuffer(self._commands, 0)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Record one vkCmdCopyBuffer for each pair of buffers, with one region for each copy."""
        by_buffers: dict[tuple[Handle, Handle], list[Copy]] = {}
        for copy in copies:
            by_buffers.setdefault((copy.source, copy.target), []).append(copy)
        for (source, target), among in by_buffers.items():
            regions = Arena().array("VkBufferCopy", len(among))
            for region, copy in zip(regions, among, strict=True):
                region.srcOffset, region.dstOffset = copy.source_offset, copy.target_offset
                region.size = copy.nbytes
            vk.vkCmdCopyBuffer(self._commands, source, target, len(among), regions)

    def fill(self, fill: Fill) -> None:
        """Fill a range of a buffer with a repeated pattern.

        A pattern of other than 4 bytes is written once, and copied with twice the length each time.
        """
        word = _find_fill_word(fill.pattern)
        commands, buffer = self._commands, fill.buffer
        if word is not None:
            vk.vkCmdFillBuffer(commands, buffer, fill.offset, fill.nbytes, word)
            return
        repeats = max(MAX_UPDATE_BYTES // len(fill.pattern) // 4 * 4, 4)
        written = min(repeats * len(fill.pattern), fill.nbytes)
        for start in range(0, written, MAX_UPDATE_BYTES):
            part = (fill.pattern * repeats)[start : min(start + MAX_UPDATE_BYTES, written)]
            self.write(buffer, fill.offset + start, part)
        while written < fill.nbytes:
            self.barrier(COPIES, COPIES)
            nbytes = min(written, fill.nbytes - written)
            self.copy([Copy(buffer, fill.offset, buffer, fill.offset + written, nbytes)])
            written += nbytes

    def dispatch(self, pipeline: Pipeline, sets: Handle, push: Handle, grid: Grid) -> None:
        """Bind the pipeline, a C array of one descriptor set and push constants in C memory, and
        dispatch the work-groups."""
        commands, layout, null = self._commands, pipeline.layout, vk.ffi.NULL
        compute = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        vk.vkCmdBindPipeline(commands, compute, pipeline.handle)
        vk.vkCmdBindDescriptorSets(commands, compute, layout, 0, 1, sets, 0, null)
        stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
        if len(push):
            vk.vkCmdPushConstants(commands, layout, stage, 0, len(push), push)
        vk.vkCmdDispatch(commands, *grid)

    def write(self, buffer: Handle, offset: int, data: Any) -> None:
        """Record vkCmdUpdateBuffer: at most `MAX_UPDATE_BYTES`, at an offset and of a size that are
        multiples of 4.
        """
        held = vk.ffi.from_buffer(data)
        vk.vkCmdUpdateBuffer(self._commands, buffer, offset, len(held), held)

    def reset_timestamps(self, timestamps: Timestamps) -> None:
        vk.vkCmdResetQueryPool(self._commands, timestamps.handle, 0, timestamps.count)

    def write_timestamp(self, timestamps: Timestamps | None, index: int) -> None:
        """Write the device's clock when all earlier commands are done. None writes nothing."""
        if timestamps is None:
            return
        done = vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        vk.vkCmdWriteTimestamp(self._commands, done, timestamps.handle, index)

    def barrier_all(self) -> None:
        """All later commands wait for all earlier ones and see what they wrote."""
        access = vk.VK_ACCESS_MEMORY_READ_BIT | vk.VK_ACCESS_MEMORY_WRITE_BIT
        stage = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        self._record_barrier(stage, access, stage, access)

    def barrier(self, before: int, after: int) -> None:
        """Later commands of the kinds `after` wait for earlier ones of the kinds `before`, and see
        what they wrote. The queue must support these kinds; a transfer queue has only COPIES.

        Signalling a semaphore does not let the host see what the device wrote; a barrier to HOST
        does.
        """
        stages, _, writes = _find_scope(before)
        after_stages, reads, after_writes = _find_scope(after)
        self._record_barrier(stages, writes, after_stages, reads | after_writes)

    def _record_barrier(self, before: int, wrote: int, after: int, reads: int) -> None:
        null, barrier = vk.ffi.NULL, _make_memory_barrier(wrote, reads)
        vk.vkCmdPipelineBarrier(self._commands, before, after, 0, 1, barrier, 0, null, 0, null)


def _find_fill_word(pattern: bytes) -> int | None:
    """Return the 32-bit word whose repetitions are those of the pattern; None if there is none."""
    unit = pattern[:4] if len(pattern) % 4 == 0 else (pattern * 4)[:4]
    repeats = math.lcm(len(pattern), 4)
    same = pattern * (repeats // len(pattern)) == unit * (repeats // 4)
    return int.from_bytes(unit, sys.byteorder) if same else None


@functools.cache
def _find_scope(kinds: int) -> tuple[int, int, int]:
    """Return the pipeline stages of kinds of commands, and how they read and write memory."""
    scopes = {
        COPIES: (
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT,
            vk.VK_ACCESS_TRANSFER_READ_BIT,
            vk.VK_ACCESS_TRANSFER_WRITE_BIT,
        ),
        KERNELS: (
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            # A uniform buffer may hold the parameters.
            vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_UNIFORM_READ_BIT,
            vk.VK_ACCESS_SHADER_WRITE_BIT,
        ),
        # The host writes only when the device is done, so it waits for nothing.
        HOST: (vk.VK_PIPELINE_STAGE_HOST_BIT, vk.VK_ACCESS_HOST_READ_BIT, 0),
    }
    stages = reads = writes = 0
    for kind, (stage, read, write) in scopes.items():
        if kinds & kind:
            stages, reads, writes = stages | stage, reads | read, writes | write
    return stages, reads, writes


# Vulkan only reads these structures during a call, so each is made once and shared.


@functools.cache
def _make_begin_info(flags: int) -> Handle:
    return Arena().new("VkCommandBufferBeginInfo", flags=flags)


@functools.cache
def _make_memory_barrier(wrote: int, reads: int) -> Handle:
    return Arena().new("VkMemoryBarrier", srcAccessMask=wrote, dstAccessMask=reads)
