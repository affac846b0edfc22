"""Foreign memory imported: an ordinary NumPy array that the device reads and writes where it lies.

Importing pins the array's pages and costs about as much as copying it once (12.6 ms for 256 MiB on
an NVIDIA H200's host), so it pays for arrays that are used several times.
"""

from __future__ import annotations

import contextlib
import itertools

from gpu_executor.call import Array
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, DeviceLacksError
from gpu_executor.forking import tell_in_child
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import HOST_COHERENT, buffer_info

EXTENSION = "VK_EXT_external_memory_host"
_serials = itertools.count(-1, -1)
"""Below zero, so that no block of the pool has one of them."""


class ImportedArray:
    """An import, until `close()` or the end of a `with`; do not resize the array meanwhile."""

    def __init__(self, device: Device, mapped: MappedArrays, array: Array) -> None:
        _check(device, array)
        self.array = array
        self._mapped = mapped
        self._address: int = array.__array_interface__["data"][0]
        alignment = device.info.limits.host_import_alignment
        start = self._address // alignment * alignment
        end = -(-(self._address + array.nbytes) // alignment) * alignment
        with contextlib.ExitStack() as undo:
            device.retain()
            undo.callback(device.release)
            buffer = _make_buffer(device, end - start)
            undo.callback(vk.vkDestroyBuffer, device.handle, buffer, vk.ffi.NULL)
            memory = _import(device, buffer, start, end - start)
            undo.callback(vk.vkFreeMemory, device.handle, memory, vk.ffi.NULL)
            vk.vkBindBufferMemory(device.handle, buffer, memory, 0)
            offset, serial = self._address - start, next(_serials)
            mapped.add(self._address, array.nbytes, buffer, offset, serial)
            undo.callback(mapped.remove, self._address)
            self._undo = undo.pop_all()
        tell_in_child(self._leave_to_parent)

    def close(self) -> None:
        """Give the memory back to its owner alone."""
        self._undo.close()

    def _leave_to_parent(self) -> None:
        self._undo.pop_all()  # and does none of it

    def __enter__(self) -> ImportedArray:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _check(device: Device, array: Array) -> None:
    if EXTENSION not in device.info.extensions:
        raise DeviceLacksError(
            f"{device.info.name} has no {EXTENSION}; use gpu.asarray, which copies once"
        )
    if not array.flags.c_contiguous or not array.nbytes:
        raise ArgumentShapeError("only a contiguous array that is not empty can be imported")
    if not array.flags.writeable:
        raise ArgumentTypeError("a read-only array cannot be imported: its pages may be shared")


def _make_buffer(device: Device, nbytes: int) -> Handle:
    arena = Arena()
    external = arena.new(
        "VkExternalMemoryBufferCreateInfo",
        handleTypes=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
    )
    info = buffer_info(arena, device, nbytes)
    info.pNext = external
    buffer = out("VkBuffer")
    vk.vkCreateBuffer(device.handle, info, vk.ffi.NULL, buffer)
    return buffer[0]


def _import(device: Device, buffer: Handle, address: int, nbytes: int) -> Handle:
    handle_type = vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
    arena = Arena()
    pointer = vk.ffi.cast("void *", address)
    found = arena.new("VkMemoryHostPointerPropertiesEXT")
    ask = vk.device_extension(device.handle, "vkGetMemoryHostPointerPropertiesEXT")
    ask(device.handle, handle_type, pointer, found)
    requirements = out("VkMemoryRequirements")
    vk.vkGetBufferMemoryRequirements(device.handle, buffer, requirements)
    allowed = found.memoryTypeBits & requirements.memoryTypeBits
    kinds = [i for i, flags in enumerate(device.memory_flags) if allowed >> i & 1]
    kinds.sort(key=lambda i: not device.memory_flags[i] & HOST_COHERENT)
    if not kinds:
        raise DeviceLacksError(f"{device.info.name} cannot import this memory")
    source = arena.new(
        "VkImportMemoryHostPointerInfoEXT", handleType=handle_type, pHostPointer=pointer
    )
    info = arena.new(
        "VkMemoryAllocateInfo", pNext=source, allocationSize=nbytes, memoryTypeIndex=kinds[0]
    )
    memory = out("VkDeviceMemory")
    vk.vkAllocateMemory(device.handle, info, vk.ffi.NULL, memory)
    return memory[0]
