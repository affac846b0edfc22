"""Device memory: a type for each purpose, large blocks, a pool that hands out parts of them.

A block is one VkDeviceMemory with one VkBuffer over all of it, mapped for good where the host can
see it. An allocation is a range of a block, so taking and giving back costs no Vulkan call; whoever
uses it binds the block's buffer at an offset.

NumPy views of mapped device memory.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu_executor.call import Array
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.fork import register_fork_handler
from gpu_executor.kernel import ElementType
from gpu_executor.plan import round_up_to_class
from gpu_executor.vulkan.binding import WHOLE_SIZE, Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device

SMALLEST_BLOCK = 4 << 20
LARGEST_BLOCK = 64 << 20
SMALLEST_ALIGNMENT = 256
"""No device asks for more between two storage buffers (Vulkan 1.3, table of required limits)."""


class Purpose(enum.Enum):
    """What memory is for decides which type of it is taken."""

    DEVICE = "device"
    """The kernel's own, as near to it as can be."""
    UPLOAD = "upload"
    """Written by the host, read by the device."""
    READBACK = "readback"
    """Written by the device, read by the host: cached, or reading it crawls."""
    ARRAY = "array"
    """Users' arrays: written and read by both."""


DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
PREFERENCES: dict[Purpose, tuple[tuple[int, int], ...]] = {
    # (flags wanted, flags not wanted), best first
    Purpose.DEVICE: ((DEVICE_LOCAL, HOST_VISIBLE), (DEVICE_LOCAL, 0), (0, 0)),
    Purpose.UPLOAD: (
        (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL | HOST_CACHED),
        (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL),
        (HOST_VISIBLE | HOST_COHERENT, 0),
    ),
    Purpose.ARRAY: (
        (HOST_VISIBLE | HOST_COHERENT | HOST_CACHED, DEVICE_LOCAL),
        (HOST_VISIBLE | HOST_COHERENT | HOST_CACHED, 0),
        (HOST_VISIBLE | HOST_COHERENT, 0),
    ),
    Purpose.READBACK: (
        (HOST_VISIBLE | HOST_COHERENT | HOST_CACHED, DEVICE_LOCAL),
        (HOST_VISIBLE | HOST_COHERENT | HOST_CACHED, 0),
        (HOST_VISIBLE | HOST_CACHED, 0),
        (HOST_VISIBLE | HOST_COHERENT, 0),
    ),
}


def choose_memory_type(flags: Sequence[int], allowed: int, purpose: Purpose) -> int:
    """The index of the best memory type; `allowed` is the buffer's bit mask of types."""
    for wanted, unwanted in PREFERENCES[purpose]:
        for index, has in enumerate(flags):
            if allowed >> index & 1 and has & wanted == wanted and not has & unwanted:
                return index
    raise OutOfMemoryError(
        f"the device has no memory type for {purpose.value}; it has {list(flags)}"
    )


@dataclass(slots=True, eq=False)
class Block:
    """One piece of device memory and the buffer over it."""

    purpose: Purpose
    nbytes: int
    memory: Handle
    buffer: Handle
    address: int
    """Where the host sees it, 0 where it does not."""
    coherent: bool
    free: list[tuple[int, int]] = field(default_factory=list)
    """Free ranges as (offset, size), in order, never two that touch."""
    serial: int = field(default_factory=itertools.count().__next__)
    """Unlike any other block's, for ever."""

    def take(self, nbytes: int) -> int | None:
        """The offset of a range of that size, or None."""
        for index, (offset, size) in enumerate(self.free):
            if size >= nbytes:
                if size == nbytes:
                    del self.free[index]
                else:
                    self.free[index] = (offset + nbytes, size - nbytes)
                return offset
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        index = bisect.bisect(self.free, (offset, 0))
        self.free.insert(index, (offset, nbytes))
        for left in (index, index - 1):
            if 0 <= left < len(self.free) - 1:
                (start, size), (following, more) = self.free[left], self.free[left + 1]
                if start + size == following:
                    self.free[left : left + 2] = [(start, size + more)]

    @property
    def idle(self) -> bool:
        return self.free == [(0, self.nbytes)]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A range of a block."""

    block: Block
    offset: int
    nbytes: int

    @property
    def buffer(self) -> Handle:
        return self.block.buffer

    @property
    def address(self) -> int:
        return self.block.address + self.offset


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The pool's counters: a hit was served from a block that was there already."""

    hits: int
    misses: int
    bytes_held: int
    bytes_used: int
    blocks: int
    bytes_in_arrays: int
    """Of those used, what users' arrays in mapped memory hold."""


class MemoryPool:
    """Blocks by purpose, parts of them by size class. Safe from several threads."""

    def __init__(
        self, device: Device, *, limit: int | None = None, exact_blocks: bool = False
    ) -> None:
        self._device = device
        self.limit = limit
        self._exact_blocks = exact_blocks
        self._blocks: list[Block] = []
        self._lock = threading.Lock()
        self._hits = self._misses = self._used = self._in_arrays = 0
        self._closed = False
        self._released_later: deque[Allocation] = deque()
        """Given back by finalizers while the pool was busy."""
        self.reclaim: Callable[[], None] = lambda: None
        """Called when memory is short: whoever keeps some that nobody uses lets it go."""
        limits = device.info.limits
        self.alignment = max(
            SMALLEST_ALIGNMENT, limits.buffer_offset_alignment, limits.non_coherent_atom
        )
        register_fork_handler(self._disown_after_fork)

    def allocate(self, purpose: Purpose, nbytes: int) -> Allocation:
        """At least that many bytes, aligned for any use, or an `OutOfMemoryError`."""
        units = round_up_to_class(-(-nbytes // self.alignment))
        size = units * self.alignment
        with self._lock:
            if self._closed:
                raise ClosedError("the backend is closed; open another one")
            self._release_returned()
            try:
                block, offset = self._take(purpose, size)
            except OutOfMemoryError:
                self.reclaim()
                self._release_returned()
                block, offset = self._take(purpose, size)
            self._used += size
            self._in_arrays += size if purpose is Purpose.ARRAY else 0
            return Allocation(block, offset, size)

    def _take(self, purpose: Purpose, size: int) -> tuple[Block, int]:
        """A range of a block that is there, or of a new one."""
        for block in self._blocks:
            if block.purpose is purpose and (offset := block.take(size)) is not None:
                self._hits += 1
                return block, offset
        block = self._grow(purpose, size)
        offset = block.take(size)
        assert offset is not None, "a new block has room for what it was made for"
        self._misses += 1
        return block, offset

    def release(self, allocation: Allocation) -> None:
        with self._lock:
            self._release(allocation)

    def release_when_possible(self, allocation: Allocation) -> None:
        """From a finalizer, which may run anywhere, in the middle of a method of the pool too."""
        self._released_later.append(allocation)
        if self._lock.acquire(blocking=False):
            try:
                self._release_returned()
            finally:
                self._lock.release()

    def trim(self) -> int:
        """Free every block that nothing uses; returns the bytes freed."""
        with self._lock:
            self._release_returned()
            return self._trim()

    def close(self) -> None:
        """Free every block but those that users' arrays lie in: these go with the last array."""
        with self._lock:
            self._release_returned()
            self._closed = True
            kept = []
            for block in self._blocks:
                if block.purpose is Purpose.ARRAY and not block.idle:
                    self._device.retain()
                    kept.append(block)
                else:
                    _free_block(self._device, block)
            self._blocks = kept
            self._used = self._in_arrays

    def stats(self) -> MemoryStats:
        with self._lock:
            self._release_returned()
            return MemoryStats(
                self._hits,
                self._misses,
                self._held(),
                self._used,
                len(self._blocks),
                self._in_arrays,
            )

    @property
    def bytes_in_arrays(self) -> int:
        """What users' arrays in mapped memory hold."""
        return self._in_arrays

    def _disown_after_fork(self) -> None:
        """Arrays that are collected in the child give back what is not in any block here."""
        self._lock, self._closed, self._blocks = threading.Lock(), True, []

    def _release(self, allocation: Allocation) -> None:
        block = allocation.block
        if block not in self._blocks:
            return  # it went when the pool was closed
        block.give_back(allocation.offset, allocation.nbytes)
        self._used -= allocation.nbytes
        self._in_arrays -= allocation.nbytes if block.purpose is Purpose.ARRAY else 0
        if self._closed and block.idle:
            self._blocks.remove(block)
            _free_block(self._device, block)
            self._device.release()

    def _release_returned(self) -> None:
        while self._released_later:
            self._release(self._released_later.popleft())

    def _held(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def _trim(self) -> int:
        idle = [block for block in self._blocks if block.idle]
        for block in idle:
            self._blocks.remove(block)
            _free_block(self._device, block)
        return sum(block.nbytes for block in idle)

    def _grow(self, purpose: Purpose, size: int) -> Block:
        """A new block: a large one first, then one of just this size, then with idle ones freed."""
        sizes = [size] if self._exact_blocks else [max(size, self._block_size(purpose)), size]
        error: OutOfMemoryError | None = None
        for attempt in (*sizes, None):
            if attempt is None and not self._trim():
                break
            wanted = size if attempt is None else attempt
            if self.limit is not None and self._held() + wanted > self.limit:
                continue
            try:
                block = _make_block(self._device, purpose, wanted)
            except OutOfMemoryError as failure:
                error = failure
                continue
            self._blocks.append(block)
            return block
        limit = "no limit" if self.limit is None else f"limit {self.limit:,}"
        raise OutOfMemoryError(
            f"{size:,} bytes of {purpose.value} memory could not be had on "
            f"{self._device.info.name}: {self._held():,} held, {self._used:,} in use, {limit}"
        ) from error

    def _block_size(self, purpose: Purpose) -> int:
        """Blocks double with what is held already, so that small uses stay small."""
        held = sum(block.nbytes for block in self._blocks if block.purpose is purpose)
        return min(max(held, SMALLEST_BLOCK), LARGEST_BLOCK)


def _make_block(device: Device, purpose: Purpose, nbytes: int) -> Block:
    buffer = _make_buffer(device, nbytes)
    memory = None
    try:
        requirements = out("VkMemoryRequirements")
        vk.vkGetBufferMemoryRequirements(device.handle, buffer, requirements)
        kind = choose_memory_type(device.memory_flags, requirements.memoryTypeBits, purpose)
        memory = _allocate_memory(device, requirements.size, kind)
        vk.vkBindBufferMemory(device.handle, buffer, memory, 0)
        flags = device.memory_flags[kind]
        address = 0
        if flags & HOST_VISIBLE and purpose is not Purpose.DEVICE:
            mapped = out("void *")
            vk.vkMapMemory(device.handle, memory, 0, WHOLE_SIZE, 0, mapped)
            address = int(vk.ffi.cast("uintptr_t", mapped[0]))
    except BaseException:
        vk.vkDestroyBuffer(device.handle, buffer, vk.ffi.NULL)
        if memory is not None:
            vk.vkFreeMemory(device.handle, memory, vk.ffi.NULL)
        raise
    coherent = bool(flags & HOST_COHERENT)
    return Block(purpose, nbytes, memory, buffer, address, coherent, free=[(0, nbytes)])


def _make_buffer(device: Device, nbytes: int) -> Handle:
    arena = Arena()
    buffer = out("VkBuffer")
    vk.vkCreateBuffer(device.handle, make_buffer_info(arena, device, nbytes), vk.ffi.NULL, buffer)
    return buffer[0]


def make_buffer_info(arena: Arena, device: Device, nbytes: int) -> Handle:
    """What every buffer here is made as: for kernels and copies, on all the device's queues."""
    families = device.queues.families
    # Concurrent sharing instead of handing buffers from family to family: it costs buffers nothing
    # on the devices seen (images are another matter), and spares a barrier on each side.
    shared = len(families) > 1
    return arena.new(
        "VkBufferCreateInfo",
        size=nbytes,
        usage=vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        sharingMode=vk.VK_SHARING_MODE_CONCURRENT if shared else vk.VK_SHARING_MODE_EXCLUSIVE,
        queueFamilyIndexCount=len(families) if shared else 0,
        pQueueFamilyIndices=arena.array("uint32_t", families),
    )


def _allocate_memory(device: Device, nbytes: int, kind: int) -> Handle:
    arena = Arena()
    info = arena.new("VkMemoryAllocateInfo", allocationSize=nbytes, memoryTypeIndex=kind)
    memory = out("VkDeviceMemory")
    vk.vkAllocateMemory(device.handle, info, vk.ffi.NULL, memory)
    return memory[0]


def _free_block(device: Device, block: Block) -> None:
    if block.address:
        vk.vkUnmapMemory(device.handle, block.memory)
    vk.vkDestroyBuffer(device.handle, block.buffer, vk.ffi.NULL)
    vk.vkFreeMemory(device.handle, block.memory, vk.ffi.NULL)


def mapped_view(allocation: Allocation, offset: int, count: int, type_: ElementType) -> Array:
    """`count` elements of mapped memory as an array. Valid only as long as the allocation is."""
    address = vk.ffi.cast("char *", allocation.address + offset)
    buffer = vk.ffi.buffer(address, count * type_.nbytes)
    return np.frombuffer(buffer, type_.dtype).reshape(count, *type_.shape)


def invalidate_block(device: Device, block: Block) -> None:
    """Cached memory that is not coherent has to be invalidated before the host reads it."""
    info = Arena().new("VkMappedMemoryRange", memory=block.memory, size=WHOLE_SIZE)
    vk.vkInvalidateMappedMemoryRanges(device.handle, 1, info)
