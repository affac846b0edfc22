"""NumPy views of mapped device memory."""

from __future__ import annotations

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernel import ElementType
from gpu_executor.vulkan.binding import WHOLE_SIZE, Arena, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import Allocation, Block


def mapped_view(allocation: Allocation, offset: int, count: int, type_: ElementType) -> Array:
    """`count` elements of mapped memory as an array. Valid only as long as the allocation is."""
    address = vk.ffi.cast("char *", allocation.address + offset)
    buffer = vk.ffi.buffer(address, count * type_.nbytes)
    return np.frombuffer(buffer, type_.dtype).reshape(count, *type_.shape)


def make_visible(device: Device, block: Block) -> None:
    """Cached memory that is not coherent has to be invalidated before the host reads it."""
    info = Arena().new("VkMappedMemoryRange", memory=block.memory, size=WHOLE_SIZE)
    vk.vkInvalidateMappedMemoryRanges(device.handle, 1, info)
