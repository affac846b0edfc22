"""External memory: memory and semaphores of Vulkan that another API of the same GPU imports.

They travel as file descriptors, which belong to the API that imports them, once it has.
"""

from __future__ import annotations

from gpu_executor.errors import DeviceLostError, ExportError
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device

MEMORY_EXTENSION = "VK_KHR_external_memory_fd"
SEMAPHORE_EXTENSION = "VK_KHR_external_semaphore_fd"


def check_exports(device: Device) -> None:
    """Raise `ExportError` unless the device can export memory and timeline semaphores."""
    missing = [
        name
        for name in (MEMORY_EXTENSION, SEMAPHORE_EXTENSION)
        if name not in device.info.extensions
    ]
    if missing:
        raise ExportError(
            f"{device.info.name} cannot share memory with other libraries: it lacks "
            f"{' and '.join(missing)}; array.numpy() copies an array to the host"
        )
    arena = Arena()
    kind = arena.new(
        "VkSemaphoreTypeCreateInfo", semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE, initialValue=0
    )
    asked = arena.new(
        "VkPhysicalDeviceExternalSemaphoreInfo",
        pNext=kind,
        handleType=vk.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    found = arena.new("VkExternalSemaphoreProperties")
    vk.vkGetPhysicalDeviceExternalSemaphoreProperties(device.physical, asked, found)
    if not found.externalSemaphoreFeatures & vk.VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT:
        raise ExportError(
            f"{device.info.name} cannot share memory with other libraries: it cannot export "
            "timeline semaphores; array.numpy() copies an array to the host"
        )


def check_exports_buffers(device: Device, usage: int) -> None:
    """Raise `ExportError` unless the device can export the memory of buffers."""
    arena = Arena()
    asked = arena.new(
        "VkPhysicalDeviceExternalBufferInfo",
        usage=usage,
        handleType=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    found = arena.new("VkExternalBufferProperties")
    vk.vkGetPhysicalDeviceExternalBufferProperties(device.physical, asked, found)
    features = found.externalMemoryProperties.externalMemoryFeatures
    if not features & vk.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT:
        raise ExportError(
            f"{device.info.name} cannot share memory with other libraries: it cannot export that "
            "of buffers; array.numpy() copies an array to the host"
        )


def extend_buffer(arena: Arena, info: Handle) -> None:
    """Say in a VkBufferCreateInfo that the buffer's memory can be exported."""
    info.pNext = arena.new(
        "VkExternalMemoryBufferCreateInfo",
        handleTypes=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    )


def extend_allocation(arena: Arena, info: Handle, device: Device, buffer: Handle) -> bool:
    """Say in a VkMemoryAllocateInfo that the memory can be exported; returns whether it is
    dedicated to the buffer, which some devices require for that."""
    dedicated = arena.new("VkMemoryDedicatedRequirements")
    requirements = arena.new("VkMemoryRequirements2", pNext=dedicated)
    asked = arena.new("VkBufferMemoryRequirementsInfo2", buffer=buffer)
    vk.vkGetBufferMemoryRequirements2(device.handle, asked, requirements)
    chained = vk.ffi.NULL
    if dedicated.requiresDedicatedAllocation:
        chained = arena.new("VkMemoryDedicatedAllocateInfo", buffer=buffer)
    info.pNext = arena.new(
        "VkExportMemoryAllocateInfo",
        pNext=chained,
        handleTypes=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    return bool(dedicated.requiresDedicatedAllocation)


def export_memory(device: Device, memory: Handle) -> int:
    """A file descriptor of memory, which the caller must pass on or close."""
    info = Arena().new(
        "VkMemoryGetFdInfoKHR",
        memory=memory,
        handleType=vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    found = allocate_out("int")
    vk.load_device_extension(device.handle, "vkGetMemoryFdKHR")(device.handle, info, found)
    return int(found[0])


class SharedSemaphore:
    """A timeline semaphore that another API imports; it is destroyed by `close`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.signal_value = vk.ffi.new("uint64_t[]", [0])
        """The latest value that was asked for."""
        self.handle = create_semaphore(device, Arena())

    def export(self) -> int:
        """A file descriptor of it, which the caller must pass on or close."""
        return export_semaphore(self._device, self.handle)

    def advance(self) -> int:
        """The next value."""
        self.signal_value[0] += 1
        return int(self.signal_value[0])

    @property
    def is_reached(self) -> bool:
        """Whether its latest value was signalled; False if the device is lost."""
        counter = allocate_out("uint64_t")
        try:
            vk.vkGetSemaphoreCounterValue(self._device.handle, self.handle, counter)
        except DeviceLostError:
            return False
        return bool(counter[0] >= self.signal_value[0])

    def signal(self) -> None:
        """Signal its latest value from the host."""
        value = self.signal_value[0]
        info = Arena().new("VkSemaphoreSignalInfo", semaphore=self.handle, value=value)
        vk.vkSignalSemaphore(self._device.handle, info)

    def close(self) -> None:
        vk.vkDestroySemaphore(self._device.handle, self.handle, vk.ffi.NULL)


def create_semaphore(device: Device, arena: Arena) -> Handle:
    """A timeline semaphore that can be exported."""
    exported = arena.new(
        "VkExportSemaphoreCreateInfo",
        handleTypes=vk.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    kind = arena.new(
        "VkSemaphoreTypeCreateInfo",
        pNext=exported,
        semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE,
        initialValue=0,
    )
    info = arena.new("VkSemaphoreCreateInfo", pNext=kind)
    semaphore = allocate_out("VkSemaphore")
    vk.vkCreateSemaphore(device.handle, info, vk.ffi.NULL, semaphore)
    return semaphore[0]


def export_semaphore(device: Device, semaphore: Handle) -> int:
    """A file descriptor of a semaphore, which the caller must pass on or close."""
    info = Arena().new(
        "VkSemaphoreGetFdInfoKHR",
        semaphore=semaphore,
        handleType=vk.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT,
    )
    found = allocate_out("int")
    vk.load_device_extension(device.handle, "vkGetSemaphoreFdKHR")(device.handle, info, found)
    return int(found[0])
