"""The logical device: which queues to open, the VkDevice, its features and its memory types."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from gpu_executor.device_info import DeviceInfo, QueueFamily
from gpu_executor.errors import NoDeviceError, VulkanError
from gpu_executor.fork import DISOWNED, is_forked_child, parent_gpus, register_fork_handler
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, loader_lock, vk
from gpu_executor.vulkan.physical_device import make_feature_chain

MAX_PARALLEL_QUEUES = 2
"""Compute queues that run small pieces in parallel. On an NVIDIA H200 every queue of the
compute-only family adds 20 to 25 ms to vkCreateDevice: a device with two of them and two transfer
queues takes 101 ms, one with four 144 ms, and benchmarks of batches are the same. Queue families
with graphics are not used for this: four jobs of 16 K take 1.04 ms on four queues of that family,
between which the GPU switches contexts, and 0.46 ms on one queue."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A queue, given by its family and its index in the family."""

    family: int
    index: int


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues that a device is opened with."""

    compute: QueueAddress
    parallel_compute: tuple[QueueAddress, ...]
    """At least two compute queues for small pieces; empty without a suitable family."""
    upload: QueueAddress | None
    """A queue of a transfer-only family, for copies to the device; None without such a family."""
    download: QueueAddress | None
    """Another queue of that family, for copies to the host; the same if the family has only one."""

    @property
    def families(self) -> list[int]:
        """The queue families in use, sorted."""
        return sorted({queue.family for queue in self._list_all()})

    def count_in_family(self, family: int) -> int:
        """Return how many queues of a family to create."""
        return 1 + max(queue.index for queue in self._list_all() if queue.family == family)

    def _list_all(self) -> list[QueueAddress]:
        copying = [queue for queue in (self.upload, self.download) if queue is not None]
        return [self.compute, *self.parallel_compute, *copying]


def choose_queues(families: Sequence[QueueFamily]) -> Queues:
    """Choose the first compute family (it copies too: Vulkan 1.3, 6.1), and a transfer family.

    A family that computes and does not draw comes first: on an NVIDIA H200, transforms of 2^20 and
    2^22 elements of BabyBear take 14 % less time there than on a queue with graphics.
    """
    computing = [index for index, family in enumerate(families) if "compute" in family.work]
    if not computing:
        raise NoDeviceError(
            "the device has no queue family that supports compute; choose another device"
        )
    chosen = min(computing, key=lambda index: not families[index].only_computes)
    compute, parallel_compute = QueueAddress(chosen, 0), _choose_parallel_queues(families)
    copying = [index for index, family in enumerate(families) if family.only_copies]
    if not copying:
        return Queues(compute, parallel_compute, None, None)
    # Choose the family with most queues: two queues copy in both directions at once.
    best = max(copying, key=lambda index: families[index].count)
    second = min(families[best].count, 2) - 1
    return Queues(compute, parallel_compute, QueueAddress(best, 0), QueueAddress(best, second))


def _choose_parallel_queues(families: Sequence[QueueFamily]) -> tuple[QueueAddress, ...]:
    for index, family in enumerate(families):
        if family.only_computes and family.count > 1:
            return tuple(
                QueueAddress(index, at) for at in range(min(family.count, MAX_PARALLEL_QUEUES))
            )
    return ()


class Device:
    """An open VkDevice.

    Destroy everything that was created with it before `close()`. Mapped arrays that outlive the
    backend `retain` the device; the last `release` destroys it.
    """

    def __init__(
        self, physical: Handle, info: DeviceInfo, on_closed: Callable[[], None] = lambda: None
    ) -> None:
        """`on_closed` is called after the VkDevice is destroyed; it closes the instance."""
        _check_usable(info)
        self._on_closed = on_closed
        self._retained = 1
        self._lock = threading.Lock()
        self.physical = physical
        self.info = info
        self.queues = choose_queues(info.queue_families)
        with loader_lock:  # no fork between creating and registering the device
            self.handle = _create(physical, info, self.queues)
            self._is_open = True
            register_fork_handler(self._disown_after_fork)
        memory = allocate_out("VkPhysicalDeviceMemoryProperties")
        vk.vkGetPhysicalDeviceMemoryProperties(physical, memory)
        kinds = memory.memoryTypes[0 : memory.memoryTypeCount]
        self.memory_flags = tuple(kind.propertyFlags for kind in kinds)
        """The property flags of each memory type."""
        heaps = memory.memoryHeaps[0 : memory.memoryHeapCount]
        self.large_memory_types = find_large_types(
            [(kind.propertyFlags, heaps[kind.heapIndex].size) for kind in kinds]
        )
        """The bits of the memory types that are not in a small window to the device's memory."""

    def queue(self, address: QueueAddress) -> Handle:
        """Return the VkQueue at an address; the handle is the same every time."""
        queue = allocate_out("VkQueue")
        vk.vkGetDeviceQueue(self.handle, address.family, address.index, queue)
        return queue[0]

    def retain(self) -> None:
        """Keep the device open until `release` is called."""
        with self._lock:
            self._retained += 1

    def release(self) -> None:
        """Undo one `retain`; the last release destroys the device."""
        with self._lock:
            self._retained -= 1
            if self._retained:
                return
        with loader_lock:
            vk.vkDestroyDevice(self.handle, vk.ffi.NULL)
            self._is_open = False
        self._on_closed()

    def close(self) -> None:
        """Release the reference that opening the device took. Call it once."""
        self.release()

    def _disown_after_fork(self) -> None:
        self.handle = DISOWNED  # cffi refuses it as an argument of any Vulkan call
        if self._is_open and self.info.kind != "cpu":
            parent_gpus.add(self.info.name)


def _check_usable(info: DeviceInfo) -> None:
    if info.api_version < (1, 2) or "timelineSemaphore" not in info.features:
        version = ".".join(map(str, info.api_version))
        raise NoDeviceError(
            f"{info.name} has Vulkan {version}; timeline semaphores (Vulkan 1.2) are required. "
            "Update its driver or choose another device"
        )


def _create(physical: Handle, info: DeviceInfo, queues: Queues) -> Handle:
    arena = Arena()
    families = arena.array("VkDeviceQueueCreateInfo", len(queues.families))
    for asked, family in zip(families, queues.families, strict=True):
        count = queues.count_in_family(family)
        asked.sType = vk.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO
        asked.queueFamilyIndex, asked.queueCount = family, count
        asked.pQueuePriorities = arena.array("float", [1.0] * count)
    core, chain = make_feature_chain(arena, info.extensions)
    for structure, names in chain:
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
    device = allocate_out("VkDevice")
    try:
        with loader_lock:
            vk.vkCreateDevice(physical, create, vk.ffi.NULL, device)
    except VulkanError as error:
        if not is_forked_child():
            raise
        # NVIDIA's driver does this while another library has the device open in the parent.
        raise NoDeviceError(
            f"{info.name} cannot be opened in this child of fork(): {error}. If the parent "
            "process has it open, close it there first, or start children with multiprocessing's "
            "'spawn'"
        ) from error
    return device[0]


def find_large_types(kinds: Sequence[tuple[int, int]]) -> int:
    """The bits of the memory types, given their property flags and the bytes of their heaps, that
    are not in a small window: without a resizable BAR the host sees 256 MiB of a device's memory.
    """
    local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    largest = max((nbytes for flags, nbytes in kinds if flags & local), default=0)
    return sum(
        1 << index
        for index, (flags, nbytes) in enumerate(kinds)
        if not flags & local or nbytes >= largest // 2
    )
