"""A physical device opened: the logical device, its queues, its features and memory types."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import NoDeviceError, VulkanError
from gpu_executor.forking import (
    LEFT_TO_PARENT,
    gpus_of_parent,
    is_child,
    skip_drivers_at_exit,
    tell_in_child,
)
from gpu_executor.vulkan.binding import Arena, Handle, opening, out, vk
from gpu_executor.vulkan.describe import (
    CORE_FEATURES,
    VULKAN11_FEATURES,
    VULKAN12_FEATURES,
    feature_chain,
)
from gpu_executor.vulkan.queues import QueueAddress, Queues, choose_queues


class Device:
    """An open VkDevice. Whatever was made with it has to be destroyed before `close()`.

    Memory that outlives the backend `retain`s it: it goes when the last such memory does.
    """

    def __init__(
        self, physical: Handle, info: DeviceInfo, on_closed: Callable[[], None] = lambda: None
    ) -> None:
        """`on_closed` is called when the device is gone: its instance can go then."""
        _check_usable(info)
        self._on_closed = on_closed
        self._retained = 1
        self._lock = threading.Lock()
        self.physical = physical
        self.info = info
        self.queues = choose_queues(info.queue_families)
        with opening:  # no child is forked between, which would not know of it
            self.handle = _create(physical, info, self.queues)
            self._is_open = True
            tell_in_child(self._leave_to_parent)
        self.memory_flags = _memory_flags(physical)

    def queue(self, address: QueueAddress) -> Handle:
        """The queue at an address; the same handle every time."""
        queue = out("VkQueue")
        vk.vkGetDeviceQueue(self.handle, address.family, address.index, queue)
        return queue[0]

    def retain(self) -> None:
        """Keep the device until a `release`."""
        with self._lock:
            self._retained += 1

    def release(self) -> None:
        """Undo a `retain`; the last one destroys the device."""
        with self._lock:
            self._retained -= 1
            if self._retained:
                return
        with opening:
            vk.vkDestroyDevice(self.handle, vk.ffi.NULL)
            self._is_open = False
        self._on_closed()

    def close(self) -> None:
        """Let go of the device; call it once."""
        self.release()

    def _leave_to_parent(self) -> None:
        self.handle = LEFT_TO_PARENT  # which no Vulkan call takes
        if self._is_open and self.info.kind != "cpu":
            if not gpus_of_parent:
                skip_drivers_at_exit()
            gpus_of_parent.add(self.info.name)


def _check_usable(info: DeviceInfo) -> None:
    if info.api_version < (1, 2) or "timelineSemaphore" not in info.features:
        version = ".".join(map(str, info.api_version))
        raise NoDeviceError(
            f"{info.name} has Vulkan {version}; timeline semaphores (Vulkan 1.2) are needed. "
            "Update its driver or choose another device"
        )


def _create(physical: Handle, info: DeviceInfo, queues: Queues) -> Handle:
    arena = Arena()
    families = arena.array("VkDeviceQueueCreateInfo", len(queues.families))
    for asked, family in zip(families, queues.families, strict=True):
        count = queues.in_family(family)
        asked.sType = vk.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO
        asked.queueFamilyIndex, asked.queueCount = family, count
        asked.pQueuePriorities = arena.array("float", [1.0] * count)
    core, vulkan11, vulkan12 = feature_chain(arena)
    for structure, names in (
        (core.features, CORE_FEATURES),
        (vulkan11, VULKAN11_FEATURES),
        (vulkan12, VULKAN12_FEATURES),
    ):
        for name in info.features.intersection(names):
            setattr(structure, name, 1)
    extensions = sorted(info.extensions)
    create = arena.new(
        "VkDeviceCreateInfo",
        pNext=core,
        queueCreateInfoCount=len(queues.families),
        pQueueCreateInfos=families,
        enabledExtensionCount=len(extensions),
        ppEnabledExtensionNames=arena.texts(extensions),
    )
    device = out("VkDevice")
    try:
        with opening:
            vk.vkCreateDevice(physical, create, vk.ffi.NULL, device)
    except VulkanError as error:
        if not is_child():
            raise
        # NVIDIA's driver does so while another library in the parent has the device open.
        raise NoDeviceError(
            f"{info.name} cannot be opened in this child of fork(): {error}. If it is open in the "
            "parent process, close it there first, or start children with multiprocessing's "
            "'spawn'"
        ) from error
    return device[0]


def _memory_flags(physical: Handle) -> tuple[int, ...]:
    memory = out("VkPhysicalDeviceMemoryProperties")
    vk.vkGetPhysicalDeviceMemoryProperties(physical, memory)
    return tuple(memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount))
