"""Arrays that the device reads and writes where they are, without a copy by the host.

Three kinds of host arrays lie in a Vulkan buffer. Mapped arrays are NumPy arrays over memory of the
pool. Imported arrays are a user's own NumPy arrays, whose pages the device was given. Recycled
results are mapped arrays whose memory is used again when the caller has dropped the result. A
`BufferRange` says where in a buffer such an array lies.

Mapped arrays are ordinary NumPy arrays; views and slices of them are recognized by their address.
The memory returns to the pool with the last view, even after the backend was closed, so a view
never refers to freed memory.

Importing pins the array's pages and costs about as much as copying the array once (12.6 ms for 256
MiB on an NVIDIA H200's host), so it pays for arrays that are used several times.

The device writes a recycled result itself: the host copies nothing, and no page is touched for the
first time. Allocating and releasing pool memory costs 20 us per result on the H200's host; finding
an unused result and making an array over it costs 2 us.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.idle_memory import IdleItem
from gpu_executor.arrays.overlaps import OWNER_MARK
from gpu_executor.arrays.result_memory import MIN_RECYCLED_BYTES, ResultMemory, ResultMemoryPool
from gpu_executor.calls.arguments import as_numbers, describe, parse_dtype, parse_shape
from gpu_executor.calls.call import Array, Call, Signature
from gpu_executor.common.fork import register_fork_handler
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    DeviceLacksError,
    OutOfMemoryError,
)
from gpu_executor.kernel import Shape
from gpu_executor.plan import ElementRange, round_up_to_class
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import (
    HOST_COHERENT,
    Allocation,
    MemoryPool,
    Owner,
    Purpose,
    make_buffer_info,
)


class BufferRange(NamedTuple):
    """The buffer and offset of an operand's first element."""

    buffer: Handle
    offset: int
    on_device: bool
    serial: int
    """Distinguishes buffers that had the same handle one after the other. Recorded commands that
    refer to a destroyed buffer must not be used for its successor."""


BufferRanges = tuple[BufferRange | None, ...]
"""The ranges of the arrays that a caller passes, then of those that it gets back; None for an array
that the host copies."""


def offset_to_chunk(
    buffer_ranges: BufferRanges, signature: Signature, chunk: ElementRange
) -> BufferRanges:
    """Return the ranges of one chunk of a call."""
    if chunk.start == 0:
        return buffer_ranges
    return tuple(
        None
        if buffer_range is None
        else buffer_range._replace(offset=buffer_range.offset + chunk.start * operand.type.nbytes)
        for buffer_range, operand in zip(
            buffer_ranges, (*signature.inputs, *signature.outputs), strict=True
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Region:
    start: int
    end: int
    first: BufferRange
    """That of an array at the start."""


class MappedArrays:
    """Makes mapped arrays and finds the ranges of arrays by their address. Thread-safe."""

    def __init__(self, memory: MemoryPool) -> None:
        self._memory = memory
        self._ffi, self._address_type = vk.ffi, vk.ffi.typeof("uintptr_t")
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._regions: list[_Region] = []
        self._freed: deque[_Region] = deque()
        """Regions that finalizers released."""
        self._imports: weakref.WeakValueDictionary[int, Import] = weakref.WeakValueDictionary()
        """Imports by the serials of their buffers."""
        self.any = False
        """Whether there are any mapped or imported arrays; calls check this first."""

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array:
        """Make an array of that shape with undefined contents."""
        return self.make(shape, dtype)[0]

    def make(
        self, shape: int | Shape, dtype: npt.DTypeLike, owner: Owner = "array"
    ) -> tuple[Array, BufferRange, Allocation]:
        """Make an array of that shape; return it, its buffer range and its memory."""
        kind = parse_dtype(dtype)
        extents = parse_shape(shape, kind.itemsize)
        nbytes = math.prod(extents) * kind.itemsize
        allocation = self._memory.allocate(Purpose.ARRAY, max(nbytes, 1), owner)
        memory: Any = (ctypes.c_char * max(nbytes, 1)).from_address(allocation.address)
        setattr(memory, OWNER_MARK, True)
        block = allocation.block
        region = self.add(allocation.address, nbytes, block.buffer, allocation.offset, block.serial)
        # Not at exit: a view may still be in use then.
        weakref.finalize(memory, self._release, allocation, region).atexit = False
        array: Array = np.ndarray(extents, kind, memory)
        buffer_range = BufferRange(block.buffer, allocation.offset, False, block.serial)
        return array, buffer_range, allocation

    def find(self, array: Any) -> BufferRange | None:
        """Return the range of an array's data; None if the device cannot use it where it is."""
        return self.find_all([array])[0]

    def find_all(self, arrays: Iterable[Any]) -> list[BufferRange | None]:
        """Return the ranges of several arrays, as `find` does."""
        ffi, found = self._ffi, list[BufferRange | None]()
        with self._lock:
            if self._freed:
                self._remove_freed()
            starts, regions = self._starts, self._regions
            for array in arrays:  # on the path of every call with mapped arrays
                if not array.flags.c_contiguous or not array.dtype.isnative:
                    found.append(None)
                    continue
                address = int(ffi.cast(self._address_type, ffi.from_buffer(array)))
                index = bisect.bisect(starts, address) - 1
                region = regions[index] if index >= 0 else None
                if region is None or address + array.nbytes > region.end:
                    found.append(None)
                    continue
                at, beyond = region.first, address - region.start
                found.append(at._replace(offset=at.offset + beyond) if beyond else at)
        return found

    def add(self, address: int, nbytes: int, buffer: Handle, offset: int, serial: int) -> _Region:
        """Register host addresses: data at `address` lies at `offset` of `buffer`."""
        first = BufferRange(buffer, offset, False, serial)
        region = _Region(address, address + nbytes, first)
        with self._lock:
            self._remove_freed()
            index = bisect.bisect(self._starts, address)
            self._starts.insert(index, address)
            self._regions.insert(index, region)
            self.any = True
        return region

    def add_import(self, serial: int, made: Import) -> None:
        """Register an import, for calls that use its buffer."""
        self._imports[serial] = made

    def get_import(self, serial: int) -> Import | None:
        """Return the import of a buffer; None if it has ended. A call refers to the import as long
        as it uses the buffer.
        """
        return self._imports.get(serial)

    def remove(self, region: _Region) -> None:
        """Remove what `add` has registered."""
        # A finalizer may run while this thread holds the lock; the next user does the rest.
        self._freed.append(region)

    def _release(self, allocation: Allocation, region: _Region) -> None:
        self.remove(region)
        self._memory.release_when_possible(allocation)

    def _remove_freed(self) -> None:
        while self._freed:
            region = self._freed.popleft()
            index = bisect.bisect_left(self._starts, region.start)
            while self._regions[index] is not region:  # several begin here if one was imported
                index += 1
            del self._starts[index], self._regions[index]
        self.any = bool(self._starts)


EXTENSION = "VK_EXT_external_memory_host"
_serials = itertools.count(-1, -1)
"""Negative, so that they differ from the serials of the pool's blocks."""


def is_imported(buffer_range: BufferRange) -> bool:
    """Whether a range lies in the buffer of an import."""
    return buffer_range.serial < 0


class ImportedArray:
    """An imported array, valid until `close()` or the end of a `with`. Pass its `array` to calls.

    Do not resize the array meanwhile. The import ends with the array if it is not closed. Calls
    that are running at that moment use it to their end.
    """

    def __init__(self, device: Device, mapped: MappedArrays, array: Array) -> None:
        _check_importable(device, array)
        self.array = array
        address: int = array.__array_interface__["data"][0]
        # Not with this object, which the caller of `import_array` need not keep.
        self._end = weakref.finalize(array, Import(device, mapped, address, array.nbytes).end)
        self._end.atexit = False

    def close(self) -> None:
        """End the import: the device no longer accesses the array's memory."""
        self._end()

    def __enter__(self) -> ImportedArray:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class Import:
    """Host memory that the device was given, until nobody refers to this object."""

    def __init__(self, device: Device, mapped: MappedArrays, address: int, nbytes: int) -> None:
        alignment = device.info.limits.host_import_alignment
        start = address // alignment * alignment
        end = -(-(address + nbytes) // alignment) * alignment
        with contextlib.ExitStack() as undo:
            device.retain()
            undo.callback(device.release)
            buffer = _make_buffer(device, end - start)
            undo.callback(vk.vkDestroyBuffer, device.handle, buffer, vk.ffi.NULL)
            memory = _import_memory(device, buffer, start, end - start)
            undo.callback(vk.vkFreeMemory, device.handle, memory, vk.ffi.NULL)
            vk.vkBindBufferMemory(device.handle, buffer, memory, 0)
            serial = next(_serials)
            mapped.add_import(serial, self)
            region = mapped.add(address, nbytes, buffer, address - start, serial)
            self._undo = undo.pop_all()
        self._remove = functools.partial(mapped.remove, region)
        weakref.finalize(self, self._undo.close).atexit = False
        register_fork_handler(self._disown_after_fork)

    def end(self) -> None:
        """Let no further call use the memory."""
        self._remove()

    def _disown_after_fork(self) -> None:
        self._undo.pop_all()  # the parent still owns these handles


def _check_importable(device: Device, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"import_array: the argument is {describe(array)}; it takes a NumPy array"
        )
    as_numbers("import_array", array)
    if EXTENSION not in device.info.extensions:
        raise DeviceLacksError(
            f"{device.info.name} does not support {EXTENSION}; use gpu.asarray, which copies once"
        )
    if not array.flags.c_contiguous or not array.nbytes:
        raise ArgumentShapeError("only a C-contiguous array that is not empty can be imported")
    if not array.flags.writeable:
        raise ArgumentTypeError(
            "a read-only array cannot be imported, because its pages may be shared"
        )


def _make_buffer(device: Device, nbytes: int) -> Handle:
    arena = Arena()
    external = arena.new(
        "VkExternalMemoryBufferCreateInfo",
        handleTypes=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
    )
    info = make_buffer_info(arena, device, nbytes)
    info.pNext = external
    buffer = allocate_out("VkBuffer")
    vk.vkCreateBuffer(device.handle, info, vk.ffi.NULL, buffer)
    return buffer[0]


def _import_memory(device: Device, buffer: Handle, address: int, nbytes: int) -> Handle:
    handle_type = vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
    arena = Arena()
    pointer = vk.ffi.cast("void *", address)
    found = arena.new("VkMemoryHostPointerPropertiesEXT")
    ask = vk.load_device_extension(device.handle, "vkGetMemoryHostPointerPropertiesEXT")
    ask(device.handle, handle_type, pointer, found)
    requirements = allocate_out("VkMemoryRequirements")
    vk.vkGetBufferMemoryRequirements(device.handle, buffer, requirements)
    allowed = found.memoryTypeBits & requirements.memoryTypeBits
    kinds = [i for i, flags in enumerate(device.memory_flags) if allowed >> i & 1]
    kinds.sort(key=lambda i: not device.memory_flags[i] & HOST_COHERENT)
    if not kinds:
        raise DeviceLacksError(
            f"{device.info.name} has no memory type for importing this array; use gpu.asarray"
        )
    source = arena.new(
        "VkImportMemoryHostPointerInfoEXT", handleType=handle_type, pHostPointer=pointer
    )
    info = arena.new(
        "VkMemoryAllocateInfo", pNext=source, allocationSize=nbytes, memoryTypeIndex=kinds[0]
    )
    memory = allocate_out("VkDeviceMemory")
    vk.vkAllocateMemory(device.handle, info, vk.ffi.NULL, memory)
    return memory[0]


LARGE_RESULT = 64 << 20
"""Large mapped memory takes long to allocate. A result of more bytes than this is recycled only
when its size comes a second time."""
MAX_ARRAY_BYTES, HOST_MEMORY_DIVISOR = 512 << 20, 16
"""Limit of mapped arrays and recycled results, which pin the host's memory: MAX_ARRAY_BYTES, or the
host's memory divided by HOST_MEMORY_DIVISOR if that is more."""
LARGE_SIZES_SEEN = 64


def can_recycle_results(signature: Signature) -> bool:
    """Whether all results of a call are large enough to be recycled."""
    for output in signature.outputs:  # on the path of every call
        if output.nbytes < MIN_RECYCLED_BYTES or output.type.dtype.names is not None:
            return False
    return True


def count_recycled_bytes(signature: Signature) -> int:
    """Return the bytes of a call's results if they are recycled, else 0."""
    if not can_recycle_results(signature):
        return 0
    outputs = signature.operands[signature.kernel.inputs :]
    return sum(round_up_to_class(output.nbytes) for output in outputs)


class RecycledResults:
    """Recycled memory for results, by size class. Thread-safe."""

    def __init__(self, memory: MemoryPool, mapped: MappedArrays, info: DeviceInfo) -> None:
        self._memory, self._mapped = memory, mapped
        self._max_bytes = max(MAX_ARRAY_BYTES, info.host_memory // HOST_MEMORY_DIVISOR)
        if memory.limit is not None:
            self._max_bytes = min(self._max_bytes, memory.limit // 2)  # the rest is for slots
        self._large_seen: deque[int] = deque(maxlen=LARGE_SIZES_SEEN)
        self._recycled: ResultMemoryPool[tuple[BufferRange, Allocation]] = ResultMemoryPool()

    def make(self, signature: Signature) -> list[tuple[Array, BufferRange]]:
        """Make arrays for the results of a call, with their ranges; empty if memory is short."""
        outputs = signature.outputs
        made = []
        for (shape, dtype), output in zip(signature.results, outputs, strict=True):
            one = self.make_one(shape, dtype, output.nbytes)
            if one is None:
                return []
            made.append(one)
        return made

    def make_one(
        self, shape: Shape, dtype: np.dtype[Any], nbytes: int
    ) -> tuple[Array, BufferRange] | None:
        """Make one array with its range; None if memory is short."""
        return self._find_free(shape, dtype, nbytes) or self._make_new(shape, dtype, nbytes)

    def clear(self) -> None:
        """Forget all results.

        Memory that is not in use returns to the pool now, the rest when dropped.
        """
        for entry in self._recycled.list_entries():
            self._release(entry)

    def list_idle(self) -> list[IdleItem]:
        """List all results, because no one can tell when a caller drops its result.

        A result in use is released to its caller: its memory is not recycled any more, but returns
        to the pool when it is dropped.
        """
        for _, allocation in self._recycled.remove_held():
            self._memory.lend(allocation, "array")
        return [
            IdleItem(entry.last_used, functools.partial(self._release, entry))
            for entry in self._recycled.list_entries()
        ]

    def count_idle(self) -> int:
        """Return the bytes of memory that nobody uses."""
        return self._recycled.count_unused_bytes()

    def _release(self, entry: ResultMemory[tuple[BufferRange, Allocation]]) -> None:
        if self._recycled.remove(entry):
            _, allocation = entry.belongs
            self._memory.lend(allocation, "array")

    def _find_free(
        self, shape: Shape, dtype: np.dtype[Any], nbytes: int
    ) -> tuple[Array, BufferRange] | None:
        found = self._recycled.find(nbytes)
        if found is None:
            return None
        memory, (buffer_range, _) = found
        return np.ndarray(shape, dtype, memory), buffer_range

    def _make_new(
        self, shape: Shape, dtype: np.dtype[Any], nbytes: int
    ) -> tuple[Array, BufferRange] | None:
        if nbytes > LARGE_RESULT and nbytes not in self._large_seen:
            self._large_seen.append(nbytes)
            return None
        size = round_up_to_class(nbytes)
        if self._memory.bytes_in_arrays + size > self._max_bytes:
            self.clear()
            if self._memory.bytes_in_arrays + size > self._max_bytes:
                return None
        try:
            array, buffer_range, allocation = self._mapped.make(size, np.uint8, "result")
        except OutOfMemoryError:
            return None
        self._recycled.add(nbytes, array.base, (buffer_range, allocation))
        return np.ndarray(shape, dtype, array.base), buffer_range


BLOCK_BYTES, MIN_BLOCK_BYTES = 4 << 20, 1 << 20
"""Recycled memory that small results of a batch share; less for the last ones. A caller that holds
one of these results holds the memory of all."""
MIN_SHARED_BYTES = 16 << 10
"""Smaller results come from the heap, whose pages are mostly in use already."""
RESULT_ALIGNMENT = 64


class BatchResults:
    """Makes the arrays of a batch's small results, in blocks of recycled memory.

    All results of a batch exist at once. New arrays of their own would take new pages: the 196 MB
    of 1,000 results took 106 to 145 ms to be touched for the first time on the H200's host, and
    blocks of this size 48 ms. Later batches use the same memory again.
    """

    def __init__(self, recycled: RecycledResults, calls: Sequence[Call]) -> None:
        self._recycled = recycled
        self._memory: Any = None
        self._offset = self._end = 0
        """The free part of the current block."""
        self._sizes: dict[int, int] = {}
        """The bytes of a call's results, by the id of its signature: most calls have the same."""
        self.bytes_left = sum(map(self._count_bytes, calls))
        """The bytes of the results that have no array yet."""

    def make_outputs(self, call: Call) -> None:
        """Make the arrays of one call's results."""
        nbytes = self._count_bytes(call)
        if not nbytes or not self._find_room(nbytes):
            call.make_outputs()
            return
        made: list[Array] = []
        for (shape, dtype), output in zip(
            call.signature.results, call.signature.outputs, strict=True
        ):
            made.append(np.ndarray(shape, dtype, self._memory, self._offset))
            self._offset += _round_up(output.nbytes)
        call.set_outputs(made)

    def _count_bytes(self, call: Call) -> int:
        if call.results:
            return 0
        signature = call.signature
        found = self._sizes.get(id(signature))
        if found is None:
            found = self._sizes[id(signature)] = _count_shared_bytes(signature)
        return found

    def _find_room(self, nbytes: int) -> bool:
        """Take another block if the current one is too small; False if memory is short."""
        left, self.bytes_left = self.bytes_left, self.bytes_left - nbytes
        if self._end - self._offset >= nbytes:
            return True
        size = min(BLOCK_BYTES, left)
        if size < MIN_BLOCK_BYTES:
            return False
        found = self._recycled.make_one((size,), np.dtype(np.uint8), size)
        if found is None:
            return False
        self._memory, self._offset, self._end = found[0].base, 0, size
        return True


def _count_shared_bytes(signature: Signature) -> int:
    """The bytes of a call's results in blocks; 0 if they are recycled one by one or not at all."""
    nbytes = sum(_round_up(output.nbytes) for output in signature.outputs)
    if (
        not MIN_SHARED_BYTES <= nbytes <= BLOCK_BYTES // 4
        or can_recycle_results(signature)
        or any(output.type.dtype.names is not None for output in signature.outputs)
    ):
        return 0
    return nbytes


def _round_up(nbytes: int) -> int:
    return -(-nbytes // RESULT_ALIGNMENT) * RESULT_ALIGNMENT
