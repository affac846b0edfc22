"""Device memory: memory types by purpose, blocks, and a pool that hands out ranges of blocks.

A block is one VkDeviceMemory with one VkBuffer over all of it. Host-visible blocks stay mapped as
long as they exist. An allocation is a range of a block, so allocating and releasing need no Vulkan
call; users bind the block's buffer at the allocation's offset. `mapped_view` makes a NumPy array
over a range of a mapped block.
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
from gpu_executor.vulkan.binding import WHOLE_SIZE, Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device

SMALLEST_BLOCK = 4 << 20
LARGEST_BLOCK = 64 << 20
SMALLEST_ALIGNMENT = 256
"""No device requires more between two storage buffers (Vulkan 1.3, required limits)."""


class Purpose(enum.Enum):
    """What memory is used for. The purpose decides the memory type."""

    DEVICE = "device"
    """Read and written by kernels: device-local where possible."""
    UPLOAD = "upload"
    """Staging that the host writes and the device reads."""
    READBACK = "readback"
    """Staging that the device writes and the host reads: cached, because uncached reads are
    slow."""
    ARRAY = "array"
    """Mapped arrays, which host and device both read and write."""


DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
PREFERENCES: dict[Purpose, tuple[tuple[int, int], ...]] = {
    # (required flags, excluded flags), best first
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
    """Return the index of the best memory type. `allowed` is the buffer's memoryTypeBits."""
    for wanted, unwanted in PREFERENCES[purpose]:
        for index, has in enumerate(flags):
            if allowed >> index & 1 and has & wanted == wanted and not has & unwanted:
                return index
    raise OutOfMemoryError(
        f"the device has no memory type for {purpose.value} memory; "
        f"the property flags of its types are {list(flags)}"
    )


@dataclass(slots=True, eq=False)
class Block:
    """One VkDeviceMemory and the VkBuffer over it."""

    purpose: Purpose
    nbytes: int
    memory: Handle
    buffer: Handle
    address: int
    """The host address of the mapped memory; 0 if it is not mapped."""
    coherent: bool
    free: list[tuple[int, int]] = field(default_factory=list)
    """Free ranges as (offset, size), sorted; adjacent ranges are merged."""
    serial: int = field(default_factory=itertools.count().__next__)
    """Unique in this process, also among blocks that were freed."""

    def take(self, nbytes: int) -> int | None:
        """Take a range of that size and return its offset; None if no range is large enough."""
        for index, (offset, size) in enumerate(self.free):
            if size >= nbytes:
                if size == nbytes:
                    del self.free[index]
                else:
                    self.free[index] = (offset + nbytes, size - nbytes)
                return offset
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free a range and merge it with adjacent free ranges."""
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
    """Counters of a memory pool. A hit was served from an existing block."""

    hits: int
    misses: int
    bytes_held: int
    bytes_used: int
    blocks: int
    bytes_in_arrays: int
    """The part of `bytes_used` that mapped arrays hold."""


class MemoryPool:
    """Blocks by purpose; allocations are rounded up to size classes. Thread-safe."""

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
        """Allocations that finalizers released; they are returned to their blocks later."""
        self.reclaim: Callable[[], None] = lambda: None
        """Called when an allocation fails: releases cached memory that nobody uses."""
        limits = device.info.limits
        self.alignment = max(
            SMALLEST_ALIGNMENT, limits.buffer_offset_alignment, limits.non_coherent_atom
        )
        register_fork_handler(self._disown_after_fork)

    def allocate(self, purpose: Purpose, nbytes: int) -> Allocation:
        """Allocate at least `nbytes`, aligned for any use. Raises `OutOfMemoryError`."""
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
        """Take a range of an existing block, or of a new one."""
        for block in self._blocks:
            if block.purpose is purpose and (offset := block.take(size)) is not None:
                self._hits += 1
                return block, offset
        block = self._grow(purpose, size)
        offset = block.take(size)
        assert offset is not None, "a new block has room for the allocation it was made for"
        self._misses += 1
        return block, offset

    def release(self, allocation: Allocation) -> None:
        with self._lock:
            self._release(allocation)

    def release_when_possible(self, allocation: Allocation) -> None:
        """Release from a finalizer, which may run while this thread holds the pool's lock."""
        self._released_later.append(allocation)
        if self._lock.acquire(blocking=False):
            try:
                self._release_returned()
            finally:
                self._lock.release()

    def trim(self) -> int:
        """Free every unused block; return the number of bytes freed."""
        with self._lock:
            self._release_returned()
            return self._trim()

    def close(self) -> None:
        """Free every block except those with mapped arrays in use, which the last array frees."""
        with self._lock:
            self._release_returned()
            self._closed = True
            in_use = []
            for block in self._blocks:
                if block.purpose is Purpose.ARRAY and not block.idle:
                    self._device.retain()
                    in_use.append(block)
                else:
                    _free_block(self._device, block)
            self._blocks = in_use
            self._used = self._in_arrays

    def stats(self) -> MemoryStats:
        with self._lock:
            self._release_returned()
            return MemoryStats(
                self._hits,
                self._misses,
                self._count_held(),
                self._used,
                len(self._blocks),
                self._in_arrays,
            )

    @property
    def bytes_in_arrays(self) -> int:
        """The bytes that mapped arrays hold."""
        return self._in_arrays

    def _disown_after_fork(self) -> None:
        """In a forked child: forget every block.

        Releasing the parent's allocations does nothing.
        """
        self._lock, self._closed, self._blocks = threading.Lock(), True, []

    def _release(self, allocation: Allocation) -> None:
        block = allocation.block
        if block not in self._blocks:
            return  # it was freed when the pool was closed
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

    def _count_held(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def _trim(self) -> int:
        idle = [block for block in self._blocks if block.idle]
        for block in idle:
            self._blocks.remove(block)
            _free_block(self._device, block)
        return sum(block.nbytes for block in idle)

    def _grow(self, purpose: Purpose, size: int) -> Block:
        """Add a block: a large one, else one of `size`, else free unused blocks and try again."""
        sizes = (
            [size] if self._exact_blocks else [max(size, self._choose_block_size(purpose)), size]
        )
        error: OutOfMemoryError | None = None
        for attempt in (*sizes, None):
            if attempt is None and not self._trim():
                break
            wanted = size if attempt is None else attempt
            if self.limit is not None and self._count_held() + wanted > self.limit:
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
            f"could not allocate {size:,} bytes of {purpose.value} memory on "
            f"{self._device.info.name}: {self._count_held():,} held, {self._used:,} in use, {limit}"
        ) from error

    def _choose_block_size(self, purpose: Purpose) -> int:
        """Return the size of the next block.

        Blocks grow with what is held, so small uses stay small.
        """
        held = sum(block.nbytes for block in self._blocks if block.purpose is purpose)
        return min(max(held, SMALLEST_BLOCK), LARGEST_BLOCK)


def _make_block(device: Device, purpose: Purpose, nbytes: int) -> Block:
    buffer = _make_buffer(device, nbytes)
    memory = None
    try:
        requirements = allocate_out("VkMemoryRequirements")
        vk.vkGetBufferMemoryRequirements(device.handle, buffer, requirements)
        kind = choose_memory_type(device.memory_flags, requirements.memoryTypeBits, purpose)
        memory = _allocate_memory(device, requirements.size, kind)
        vk.vkBindBufferMemory(device.handle, buffer, memory, 0)
        flags = device.memory_flags[kind]
        address = 0
        if flags & HOST_VISIBLE and purpose is not Purpose.DEVICE:
            mapped = allocate_out("void *")
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
    buffer = allocate_out("VkBuffer")
    vk.vkCreateBuffer(device.handle, make_buffer_info(arena, device, nbytes), vk.ffi.NULL, buffer)
    return buffer[0]


def make_buffer_info(arena: Arena, device: Device, nbytes: int) -> Handle:
    """Make the VkBufferCreateInfo of every buffer: for kernels and copies on all queues."""
    families = device.queues.families
    # VK_SHARING_MODE_CONCURRENT instead of queue family ownership transfers: for buffers it costs
    # nothing on the devices measured (images differ), and it saves a barrier on each side.
    shared = len(families) > 1
    return arena.new(
        "VkBufferCreateInfo",
        size=nbytes,
        usage=vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        | vk.VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT
        | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
        | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        sharingMode=vk.VK_SHARING_MODE_CONCURRENT if shared else vk.VK_SHARING_MODE_EXCLUSIVE,
        queueFamilyIndexCount=len(families) if shared else 0,
        pQueueFamilyIndices=arena.array("uint32_t", families),
    )


def _allocate_memory(device: Device, nbytes: int, kind: int) -> Handle:
    arena = Arena()
    info = arena.new("VkMemoryAllocateInfo", allocationSize=nbytes, memoryTypeIndex=kind)
    memory = allocate_out("VkDeviceMemory")
    vk.vkAllocateMemory(device.handle, info, vk.ffi.NULL, memory)
    return memory[0]


def _free_block(device: Device, block: Block) -> None:
    if block.address:
        vk.vkUnmapMemory(device.handle, block.memory)
    vk.vkDestroyBuffer(device.handle, block.buffer, vk.ffi.NULL)
    vk.vkFreeMemory(device.handle, block.memory, vk.ffi.NULL)


def mapped_view(allocation: Allocation, offset: int, count: int, type_: ElementType) -> Array:
    """Make an array of `count` elements over mapped memory.

    It is valid as long as the allocation.
    """
    address = vk.ffi.cast("char *", allocation.address + offset)
    buffer = vk.ffi.buffer(address, count * type_.nbytes)
    return np.frombuffer(buffer, type_.copied_dtype).reshape(count, *type_.shape)


def invalidate_block(device: Device, block: Block) -> None:
    """Invalidate mapped memory that is not host-coherent, before the host reads it."""
    info = Arena().new("VkMappedMemoryRange", memory=block.memory, size=WHOLE_SIZE)
    vk.vkInvalidateMappedMemoryRanges(device.handle, 1, info)
