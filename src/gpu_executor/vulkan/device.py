"""A physical device opened: the logical device, its queue, its features and memory types."""

from __future__ import annotations

from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import NoDeviceError
from gpu_executor.vulkan.binding import Arena, Handle, opening, out, vk
from gpu_executor.vulkan.describe import (
    CORE_FEATURES,
    VULKAN11_FEATURES,
    VULKAN12_FEATURES,
    feature_chain,
)


class Device:
    """An open VkDevice. Whatever was made with it has to be destroyed before `close()`."""

    def __init__(self, physical: Handle, info: DeviceInfo) -> None:
        _check_usable(info)
        self.physical = physical
        self.info = info
        self.queue_family = _compute_family(info)
        self.handle = _create(physical, info, self.queue_family)
        queue = out("VkQueue")
        vk.vkGetDeviceQueue(self.handle, self.queue_family, 0, queue)
        self.queue = queue[0]
        self.memory_flags = _memory_flags(physical)

    def close(self) -> None:
        if self.handle is not None:
            with opening:
                vk.vkDestroyDevice(self.handle, vk.ffi.NULL)
            self.handle = None


def _check_usable(info: DeviceInfo) -> None:
    if info.api_version < (1, 2) or "timelineSemaphore" not in info.features:
        version = ".".join(map(str, info.api_version))
        raise NoDeviceError(
            f"{info.name} has Vulkan {version}; timeline semaphores (Vulkan 1.2) are needed. "
            "Update its driver or choose another device"
        )


def _compute_family(info: DeviceInfo) -> int:
    """The first family that computes; every such family copies too (Vulkan 1.3, 6.1 Queues)."""
    for index, family in enumerate(info.queue_families):
        if "compute" in family.work:
            return index
    raise NoDeviceError(f"{info.name} has no queue that computes")


def _create(physical: Handle, info: DeviceInfo, family: int) -> Handle:
    arena = Arena()
    queue = arena.new(
        "VkDeviceQueueCreateInfo",
        queueFamilyIndex=family,
        queueCount=1,
        pQueuePriorities=arena.array("float", [1.0]),
    )
    core, vulkan11, vulkan12 = feature_chain(arena)
    for structure, names in (
        (core.features, CORE_FEATURES),
        (vulkan11, VULKAN11_FEATURES),
        (vulkan12, VULKAN12_FEATURES),
    ):
        for name in info.features.intersection(names):
            setattr(structure, name, 1)
    create = arena.new(
        "VkDeviceCreateInfo", pNext=core, queueCreateInfoCount=1, pQueueCreateInfos=queue
    )
    device = out("VkDevice")
    with opening:
        vk.vkCreateDevice(physical, create, vk.ffi.NULL, device)
    return device[0]


def _memory_flags(physical: Handle) -> tuple[int, ...]:
    memory = out("VkPhysicalDeviceMemoryProperties")
    vk.vkGetPhysicalDeviceMemoryProperties(physical, memory)
    return tuple(memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount))
