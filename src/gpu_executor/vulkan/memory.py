"""Device memory: memory types by purpose, blocks, and a pool that hands out ranges of blocks.

A block is one VkDeviceMemory with one VkBuffer over all of it. Host-visible blocks stay mapped as
long as they exist. An allocation is a range of a block, so allocating and releasing need no Vulkan
call; users bind the block's buffer at the allocation's offset. `mapped_view` makes a NumPy array
over a range of a mapped block.

The caller holds some allocations, such as mapped arrays. The pool counts everything else in its
blocks as kept: slots, recycled results, tables and free ranges. It adds a block only if what it
keeps stays within the budget of idle memory; otherwise idle items are released first, and the
allocation takes their ranges.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Literal, get_args

import numpy as np

from gpu_executor.arrays.idle_memory import IdleItem, IdleMemory
from gpu_executor.calls.call import Array
from gpu_executor.common.fork import register_fork_handler
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.kernel import ElementType
from gpu_executor.plan import round_up_to_class
from gpu_executor.vulkan.binding import WHOLE_SIZE, Arena, Handle, allocate_out, get_integer, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.external_memory import (
    check_exports_buffers,
    extend_allocation,
    extend_buffer,
)

SMALLEST_BLOCK = 4 << 20
LARGEST_BLOCK, LARGEST_MAPPED_BLOCK = 64 << 20, 16 << 20
"""Of a block in device memory, and of a mapped one. A result that the caller holds for long keeps a
mapped block from being freed, so these are smaller."""
GROWTH_DIVISOR, COUNT_DIVISOR = 4, 256
"""A new block for several allocations has this share of the memory that the pool holds for the same
purpose: the first within the limits above, the second at least. Devices limit the number of blocks,
often to 4,096."""
SHARE_DIVISOR = 4
"""An allocation of more than this share of such a block gets a block of its own, which can be freed
as soon as the allocation is released."""
SMALLEST_ALIGNMENT = 256
"""No device requires more between two storage buffers (Vulkan 1.3, required limits)."""


class Purpose(enum.Enum):
    """What memory is used for. The purpose decides the memory type."""

    DEVICE = "device"
    """Read and written by kernels: device-local where possible."""
    UPLOAD = "upload"
    """Staging that the host writes and the device reads."""
    INPUT = "input"
    """Device memory that the host writes and kernels read, where the device has some
    (`find_input_purpose`). The host must not read it, which is slow."""
    READBACK = "readback"
    """Staging that the device writes and the host reads: cached, because uncached reads are
    slow."""
    ARRAY = "array"
    """Mapped arrays, which host and device both read and write."""
    EXPORT = "export"
    """Memory of device arrays that another API of the same GPU can import."""


Owner = Literal["slot", "result", "table", "array", "device array", "staging"]
"""What an allocation is for: a slot, a recycled result, a cached table of a transform, a mapped
array or a result that the caller holds, a device array, or a part of a transfer."""
LENT: frozenset[Owner] = frozenset({"array", "device array", "staging"})
"""Owners whose memory is in use until it is released. The others may be idle."""


DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 1, 2, 4, 8
INPUT_FLAGS = DEVICE_LOCAL | HOST_VISIBLE | HOST_COHERENT
ON_DEVICE = ((DEVICE_LOCAL, HOST_VISIBLE), (DEVICE_LOCAL, 0), (0, 0))
UNMAPPED = (Purpose.DEVICE, Purpose.EXPORT)
"""Purposes whose memory the host does not access, even where it could."""
PREFERENCES: dict[Purpose, tuple[tuple[int, int], ...]] = {
    # (required flags, excluded flags), best first
    Purpose.DEVICE: ON_DEVICE,
    Purpose.EXPORT: ON_DEVICE,
    Purpose.UPLOAD: (
        (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL | HOST_CACHED),
        (HOST_VISIBLE | HOST_COHERENT, DEVICE_LOCAL),
        (HOST_VISIBLE | HOST_COHERENT, 0),
    ),
    Purpose.INPUT: ((INPUT_FLAGS, 0),),
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


def find_input_purpose(device: Device) -> Purpose:
    """The purpose of memory for inputs that the host fills: INPUT if a discrete GPU lets the host
    write all of its memory (a resizable BAR), else UPLOAD.

    Filling inputs in device memory saves their copy there. On an NVIDIA H200, one thread writes 17
    GB/s to device memory, and 10.5 GB/s to host memory beyond its caches. A call with 6 MiB of
    inputs took 0.50 ms instead of 0.75 ms, 16 calls with 24 MiB each took 18 ms instead of 29 ms.
    """
    has_memory = any(
        flags & INPUT_FLAGS == INPUT_FLAGS and device.large_memory_types >> index & 1
        for index, flags in enumerate(device.memory_flags)
    )
    return Purpose.INPUT if has_memory and device.info.kind == "discrete" else Purpose.UPLOAD


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
    lent: int = 0
    """Bytes of allocations with an owner in LENT."""
    last_used: int = 0
    """When its last allocation was released, in nanoseconds of `time.monotonic_ns`."""
    memory_bytes: int = 0
    """The bytes of the VkDeviceMemory, at least `nbytes`."""
    is_dedicated: bool = False
    """Whether the memory is dedicated to the buffer, which an import of it must say."""
    imported: object = None
    """What another API has made of the memory; it ends with the block."""
    bytes_free: int = field(init=False)
    handle: int = field(init=False)
    """The handle of the buffer as an integer."""

    def __post_init__(self) -> None:
        self.bytes_free = sum(size for _, size in self.free)
        self.handle = get_integer(self.buffer)

    def take(self, nbytes: int) -> int | None:
        """Take a range of that size and return its offset; None if no range is large enough."""
        for index, (offset, size) in enumerate(self.free):
            if size >= nbytes:
                if size == nbytes:
                    del self.free[index]
                else:
                    self.free[index] = (offset + nbytes, size - nbytes)
                self.bytes_free -= nbytes
                return offset
        return None

    def give_back(self, offset: int, nbytes: int) -> None:
        """Free a range and merge it with adjacent free ranges."""
        index = bisect.bisect(self.free, (offset, 0))
        self.free.insert(index, (offset, nbytes))
        self.bytes_free += nbytes
        for left in (index, index - 1):
            if 0 <= left < len(self.free) - 1:
                (start, size), (following, more) = self.free[left], self.free[left + 1]
                if start + size == following:
                    self.free[left : left + 2] = [(start, size + more)]

    @property
    def idle(self) -> bool:
        return self.bytes_free == self.nbytes


@dataclass(slots=True, eq=False)
class Allocation:
    """A range of a block."""

    block: Block
    offset: int
    nbytes: int
    owner: Owner | None = "slot"
    """Only the pool changes it; None once it is released."""
    is_secret: bool = False
    """Whether its bytes must be overwritten before the pool gets it back (`mark_secret`)."""

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
    """The part of `bytes_used` that mapped arrays and recycled results hold."""


class _FinalizerLock:
    """A lock that finalizers need too. They may run in the thread that holds it, so they only add
    an item to `waiting` and call `work_off`; if the lock is held, its holder handles the item when
    it leaves.
    """

    def __init__(self, waiting: deque[Allocation], handle: Callable[[Allocation], None]) -> None:
        self._waiting, self._handle = waiting, handle
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()
        if self._waiting:
            self.work_off()

    def work_off(self) -> None:
        """Handle all items, unless another holder of the lock will."""
        while self._waiting and self._lock.acquire(blocking=False):
            try:
                while self._waiting:
                    self._handle(self._waiting.popleft())
            finally:
                self._lock.release()


class MemoryPool:
    """Blocks by purpose; allocations are rounded up to size classes. Thread-safe."""

    def __init__(
        self,
        device: Device,
        *,
        limit: int | None = None,
        idle: IdleMemory | None = None,
        exact_blocks: bool = False,
    ) -> None:
        """`idle` is the budget of idle memory; without one, the pool keeps what it has."""
        self._device = device
        self.input_purpose = find_input_purpose(device)
        """Of inputs that the host fills."""
        self.limit = limit
        self._idle = idle
        self._exact_blocks = exact_blocks
        self._blocks: list[Block] = []
        self._released_later: deque[Allocation] = deque()
        """Allocations that finalizers released; they are returned to their blocks later."""
        self._lock = _FinalizerLock(self._released_later, self._release)
        self._hits = self._misses = self._used = self._in_arrays = self._held = 0
        self._owned: dict[Owner, int] = dict.fromkeys(get_args(Owner), 0)
        self._secrets: set[Allocation] = set()
        """Allocations that are not overwritten yet."""
        self.kept = 0
        """The bytes of the blocks, less those of allocations with an owner in LENT, less the free
        bytes beside these: what is idle or used by running calls."""
        self._closed = False
        self.freed_blocks = 0
        """How many blocks were freed so far."""
        self.reclaim: Callable[[], None] = lambda: None
        """Called when an allocation fails: releases cached memory that nobody uses."""
        limits = device.info.limits
        self.alignment = max(
            SMALLEST_ALIGNMENT, limits.buffer_offset_alignment, limits.non_coherent_atom
        )
        register_fork_handler(self._disown_after_fork)

    def allocate(self, purpose: Purpose, nbytes: int, owner: Owner = "slot") -> Allocation:
        """Allocate at least `nbytes`, aligned for any use. Raises `OutOfMemoryError`.

        Idle items are released for it, if the pool would otherwise keep more than the budget.
        Memory for UPLOAD stands in for INPUT if the device has none left.
        """
        try:
            return self._find_or_allocate(purpose, nbytes, owner)
        except OutOfMemoryError:
            if purpose is not Purpose.INPUT:
                raise
            return self._find_or_allocate(Purpose.UPLOAD, nbytes, owner)

    def _find_or_allocate(self, purpose: Purpose, nbytes: int, owner: Owner) -> Allocation:
        size = self.round_up_to_class(nbytes)
        with self._lock:
            found = self._take(purpose, size, owner)
        if found is not None:
            return found
        try:
            return self._allocate_with_eviction(purpose, size, owner)
        except OutOfMemoryError:
            self.reclaim()
            return self._allocate(purpose, size, owner)

    def round_up_to_class(self, nbytes: int) -> int:
        """Return the size of an allocation of at least `nbytes`."""
        return round_up_to_class(-(-nbytes // self.alignment)) * self.alignment

    def release(self, allocation: Allocation) -> None:
        with self._lock:
            self._release(allocation)

    def release_when_possible(self, allocation: Allocation) -> None:
        """Release from a finalizer, which may run while this thread holds the pool's lock."""
        self._released_later.append(allocation)
        self._lock.work_off()

    def mark_secret(self, allocation: Allocation) -> None:
        """Note that an allocation gets secret bytes: its user overwrites it before it is
        released."""
        allocation.is_secret = True
        self._secrets.add(allocation)

    def note_overwritten(self, allocations: Iterable[Allocation]) -> None:
        """Note that allocations hold no secrets any more."""
        for allocation in allocations:
            allocation.is_secret = False
            self._secrets.discard(allocation)

    def list_secrets(self) -> list[Allocation]:
        """The allocations that hold secrets."""
        return list(self._secrets)

    def lend(self, allocation: Allocation, owner: Owner) -> None:
        """Change the owner of an allocation to one in LENT, unless it was released meanwhile."""
        with self._lock:
            before, block, nbytes = allocation.owner, allocation.block, allocation.nbytes
            if before is None or before in LENT or block not in self._blocks:
                return
            self._owned[before] -= nbytes
            self._owned[owner] += nbytes
            allocation.owner = owner
            self.kept -= nbytes if block.lent else nbytes + block.bytes_free
            block.lent += nbytes

    def trim(self) -> int:
        """Free every unused block; return the number of bytes freed."""
        with self._lock:
            return self._trim()

    def is_within(self, limit: int, busy: Sequence[Allocation] = ()) -> bool:
        """Return whether at most `limit` bytes are idle.

        `busy` are the allocations of slots in use. Free ranges beside them are not idle either,
        because nothing can be released for them.
        """
        with self._lock:
            beside = {each.block for each in busy if not each.block.lent}
            in_use = sum(each.nbytes for each in busy) + sum(block.bytes_free for block in beside)
            return self.kept - in_use <= limit

    def list_idle(self) -> list[IdleItem]:
        """List the unused blocks."""
        with self._lock:
            return [
                IdleItem(block.last_used, functools.partial(self._free_idle, block))
                for block in self._blocks
                if block.idle
            ]

    def _free_idle(self, block: Block) -> None:
        """Free a block, unless it is in use again or was freed already."""
        with self._lock:
            if block.idle and block in self._blocks:
                self._free(block)

    def close(self) -> None:
        """Free every block except those with mapped arrays in use, which the last array frees."""
        with self._lock:
            self._closed = True
            for block in list(self._blocks):
                if block.purpose is Purpose.ARRAY and not block.idle:
                    self._device.retain()
                else:
                    self._free(block)
            self._used = self._in_arrays
            self._owned = dict.fromkeys(self._owned, 0) | {"array": self._in_arrays}
            self.kept = 0

    def stats(self) -> MemoryStats:
        with self._lock:
            return MemoryStats(
                self._hits,
                self._misses,
                self._held,
                self._used,
                len(self._blocks),
                self._in_arrays,
            )

    def count_by_owner(self, busy: Sequence[Allocation]) -> tuple[dict[Owner, int], int, int]:
        """Return the allocated bytes by owner, the bytes of free ranges beside memory in use, and
        the other free bytes.

        `busy` are the allocations of slots in use.
        """
        with self._lock:
            beside = {each.block for each in busy}
            beside.update(block for block in self._blocks if block.lent)
            fragments = sum(block.bytes_free for block in beside)
            return dict(self._owned), fragments, self._held - self._used - fragments

    def count_free(self) -> int:
        """Return the bytes of device memory that are not in use or may be idle, within the limit of
        the pool."""
        total = self._device.info.device_memory
        used = sum(self._owned[owner] for owner in LENT)
        return max((total if self.limit is None else min(total, self.limit)) - used, 0)

    @property
    def bytes_in_arrays(self) -> int:
        """The bytes that mapped arrays and recycled results hold."""
        return self._in_arrays

    def _disown_after_fork(self) -> None:
        """In a forked child: forget every block.

        Releasing the parent's allocations does nothing.
        """
        self._lock = _FinalizerLock(self._released_later, self._release)
        self._closed, self._blocks = True, []

    def _allocate_with_eviction(self, purpose: Purpose, size: int, owner: Owner) -> Allocation:
        """Release idle items until the allocation fits; if nothing is idle, exceed the budget."""
        found: Allocation | None = None

        def try_allocate() -> bool:
            nonlocal found
            with self._lock:
                found = self._take(purpose, size, owner)
                if found is None and self._grow(purpose, size, owner, within_budget=True):
                    found = self._take(purpose, size, owner, new=True)
            return found is not None

        if self._idle is not None and not try_allocate():
            self._idle.evict(try_allocate)
        return found or self._allocate(purpose, size, owner)

    def _allocate(self, purpose: Purpose, size: int, owner: Owner) -> Allocation:
        """Allocate without regard to the budget. Raises `OutOfMemoryError`."""
        with self._lock:
            found = self._take(purpose, size, owner)
            if found is None:
                self._grow(purpose, size, owner, within_budget=False)
                found = self._take(purpose, size, owner, new=True)
            assert found is not None, "a new block has room for the allocation it was made for"
            return found

    def _take(
        self, purpose: Purpose, size: int, owner: Owner, *, new: bool = False
    ) -> Allocation | None:
        """Take a range of a block (`new`: one made for it); None if none has room."""
        if self._closed:
            raise ClosedError(
                "the backend is closed, and the elements of its device arrays are gone with it; "
                "open another one and copy the data to it"
            )
        for block in self._blocks:
            if block.bytes_free >= size and block.purpose is purpose:
                offset = block.take(size)
                if offset is not None:
                    break
        else:
            return None
        if new:
            self._misses += 1
        else:
            self._hits += 1
        self._used += size
        if purpose is Purpose.ARRAY:
            self._in_arrays += size
        self._owned[owner] += size
        if owner in LENT:
            if not block.lent:
                self.kept -= size + block.bytes_free
            block.lent += size
        elif block.lent:
            self.kept += size
        return Allocation(block, offset, size, owner)

    def _release(self, allocation: Allocation) -> None:
        block, owner, nbytes = allocation.block, allocation.owner, allocation.nbytes
        if self._closed and block not in self._blocks:
            return  # it was freed when the pool was closed
        assert owner is not None, "it is released once"
        assert not allocation.is_secret, "it is overwritten before"
        allocation.owner = None
        block.give_back(allocation.offset, nbytes)
        self._owned[owner] -= nbytes
        self._used -= nbytes
        if block.purpose is Purpose.ARRAY:
            self._in_arrays -= nbytes
        if owner in LENT:
            block.lent -= nbytes
            if not block.lent:
                self.kept += block.bytes_free
        elif block.lent:
            self.kept -= nbytes
        if block.idle and self._closed:
            self._free(block)
            self._device.release()
        elif block.idle and self._idle is not None:
            block.last_used = time.monotonic_ns()
            if self._idle.is_evicting and self.kept > self._idle.limit:
                self._free(block)

    def _trim(self) -> int:
        before = self._held
        for block in [block for block in self._blocks if block.idle]:
            self._free(block)
        return before - self._held

    def _free(self, block: Block) -> None:
        self._blocks.remove(block)
        self.freed_blocks += 1
        self._held -= block.nbytes
        self.kept -= block.nbytes
        _free_block(self._device, block)

    def _grow(
        self, purpose: Purpose, size: int, owner: Owner, *, within_budget: bool
    ) -> Block | None:
        """Add a block: a large one, else one of `size`, else free unused blocks and try again.

        Return None if the budget allows no block.
        """
        shared = self._choose_block_size(purpose)
        sizes = [shared, size] if SHARE_DIVISOR * size <= shared else [size]
        if self._exact_blocks or (self._idle is not None and not within_budget):
            sizes = [size]
        if within_budget:
            assert self._idle is not None
            lent = size if owner in LENT else 0
            room = self._idle.limit + lent
            sizes = [each for each in sizes if self.kept + each <= room or each == lent]
            if not sizes:
                return None
        error: OutOfMemoryError | None = None
        for attempt in (*sizes, None):
            if attempt is None and not self._trim():
                break
            wanted = size if attempt is None else attempt
            if self.limit is not None and self._held + wanted > self.limit:
                continue
            try:
                block = _make_block(self._device, purpose, wanted)
            except OutOfMemoryError as failure:
                error = failure
                continue
            self._blocks.append(block)
            self._held += wanted
            self.kept += wanted
            return block
        limit = "no limit" if self.limit is None else f"limit {self.limit:,}"
        raise OutOfMemoryError(
            f"could not allocate {size:,} bytes of {purpose.value} memory on "
            f"{self._device.info.name}: {self._held:,} held, {self._used:,} in use, {limit}"
        ) from error

    def _choose_block_size(self, purpose: Purpose) -> int:
        """Return the size of the next block for several allocations.

        Blocks grow with what is held, so small uses stay small.
        """
        held = sum(block.nbytes for block in self._blocks if block.purpose is purpose)
        most = LARGEST_BLOCK if purpose in UNMAPPED else LARGEST_MAPPED_BLOCK
        return max(SMALLEST_BLOCK, min(held // GROWTH_DIVISOR, most), held // COUNT_DIVISOR)


def _make_block(device: Device, purpose: Purpose, nbytes: int) -> Block:
    exports = purpose is Purpose.EXPORT
    buffer = _make_buffer(device, nbytes, exports=exports)
    memory = None
    try:
        requirements = allocate_out("VkMemoryRequirements")
        vk.vkGetBufferMemoryRequirements(device.handle, buffer, requirements)
        allowed = requirements.memoryTypeBits
        if purpose is Purpose.INPUT:
            allowed &= device.large_memory_types
        kind = choose_memory_type(device.memory_flags, allowed, purpose)
        memory, is_dedicated = _allocate_memory(
            device, requirements.size, kind, buffer if exports else None
        )
        vk.vkBindBufferMemory(device.handle, buffer, memory, 0)
        flags = device.memory_flags[kind]
        address = 0
        if flags & HOST_VISIBLE and purpose not in UNMAPPED:
            mapped = allocate_out("void *")
            vk.vkMapMemory(device.handle, memory, 0, WHOLE_SIZE, 0, mapped)
            address = int(vk.ffi.cast("uintptr_t", mapped[0]))
    except BaseException:
        vk.vkDestroyBuffer(device.handle, buffer, vk.ffi.NULL)
        if memory is not None:
            vk.vkFreeMemory(device.handle, memory, vk.ffi.NULL)
        raise
    coherent = bool(flags & HOST_COHERENT)
    return Block(
        purpose,
        nbytes,
        memory,
        buffer,
        address,
        coherent,
        free=[(0, nbytes)],
        memory_bytes=requirements.size,
        is_dedicated=is_dedicated,
    )


def _make_buffer(device: Device, nbytes: int, *, exports: bool) -> Handle:
    arena = Arena()
    buffer, info = allocate_out("VkBuffer"), make_buffer_info(arena, device, nbytes)
    if exports:
        check_exports_buffers(device, info.usage)
        extend_buffer(arena, info)
    vk.vkCreateBuffer(device.handle, info, vk.ffi.NULL, buffer)
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


def _allocate_memory(
    device: Device, nbytes: int, kind: int, exported_buffer: Handle | None
) -> tuple[Handle, bool]:
    """Allocate memory; return it, and whether it is dedicated to the buffer that is exported."""
    arena, is_dedicated = Arena(), False
    info = arena.new("VkMemoryAllocateInfo", allocationSize=nbytes, memoryTypeIndex=kind)
    if exported_buffer is not None:
        is_dedicated = extend_allocation(arena, info, device, exported_buffer)
    memory = allocate_out("VkDeviceMemory")
    vk.vkAllocateMemory(device.handle, info, vk.ffi.NULL, memory)
    return memory[0], is_dedicated


def _free_block(device: Device, block: Block) -> None:
    block.imported = None
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
