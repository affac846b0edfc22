"""Devices: the description of a physical device, and the logical device that is opened on it.

`describe_device` reads the properties, limits, features and memory of a physical device into a
`DeviceInfo`. `Device` is a VkDevice with its queues and its memory types.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gpu_executor.common.cpu_cores import count_cores
from gpu_executor.common.fork import DISOWNED, is_forked_child, parent_gpus, register_fork_handler
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import (
    PORTABILITY_SUBSET,
    DeviceInfo,
    Kind,
    Limits,
    MemoryHeap,
    QueueFamily,
)
from gpu_executor.errors import NoDeviceError, VulkanError
from gpu_executor.vulkan.binding import (
    Arena,
    Handle,
    allocate_out,
    enumerate_with,
    loader_lock,
    vk,
)

MAX_PARALLEL_QUEUES = 2
"""Compute queues that run small chunks in parallel: two suffice for one chunk to begin while
another ends, and calibration measures whether that gains anything. More would only make a device
slower to open: with NVIDIA's driver on an H200 every queue of the compute-only family adds 20 to 25
ms to vkCreateDevice, and benchmarks of batches are the same with four of them. Queue families with
graphics are not used for this: four jobs of 16 K take 1.04 ms on four queues of that family,
between which the GPU switches contexts, and 0.46 ms on one queue."""
KINDS: tuple[Kind, ...] = ("other", "integrated", "discrete", "virtual", "cpu")
"""Indexed by VkPhysicalDeviceType."""

VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10005: "Mesa",
}
HEAP_BITS = ("device_local", "host_visible", "host_coherent", "host_cached", "lazily_allocated")
QUEUE_BITS = (
    "graphics",
    "compute",
    "transfer",
    "sparse",
    "protected",
    "video_decode",
    "video_encode",
)

EXTENSIONS = (
    "VK_EXT_external_memory_host",
    "VK_KHR_external_memory_fd",
    "VK_KHR_external_semaphore_fd",
    "VK_EXT_calibrated_timestamps",
    "VK_EXT_robustness2",
    "VK_EXT_pipeline_robustness",
    "VK_EXT_shader_atomic_float",
    "VK_EXT_shader_atomic_float2",
    "VK_EXT_subgroup_size_control",
    "VK_KHR_maintenance4",
    PORTABILITY_SUBSET,
)
"""The extensions that are enabled where a device has them."""
CORE_PROPERTIES = {
    "VK_NV_shader_sm_builtins": "VkPhysicalDeviceShaderSMBuiltinsPropertiesNV",
    "VK_AMD_shader_core_properties": "VkPhysicalDeviceShaderCorePropertiesAMD",
    "VK_AMD_shader_core_properties2": "VkPhysicalDeviceShaderCoreProperties2AMD",
    "VK_ARM_shader_core_builtins": "VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM",
    "VK_ARM_shader_core_properties": "VkPhysicalDeviceShaderCorePropertiesARM",
}
"""The extensions that report how many units a device has, and their structures. They are read where
a device has them, and not enabled: nothing in a shader uses them."""
NVIDIA_SCHEDULERS = 4
"""Schedulers of a multiprocessor, each of which issues one subgroup at a time: of all NVIDIA GPUs
since Maxwell. Vulkan reports multiprocessors, not schedulers."""
ARM_ENGINES = 2
"""Subgroups that a core of an Arm GPU executes at the same time, at least: for devices without
`fmaRate`."""
EXECUTABLE_PROPERTIES = "VK_KHR_pipeline_executable_properties"
"""What a compiler says of its pipelines. Only `describe_device(..., statistics=True)` asks for it:
drivers may compile in another way while they keep that."""
CORE_FEATURES = ("robustBufferAccess", "shaderInt64", "shaderInt16", "shaderFloat64")
VULKAN11_FEATURES = (
    "storageBuffer16BitAccess",
    "uniformAndStorageBuffer16BitAccess",
    "storagePushConstant16",
    "variablePointersStorageBuffer",
    "variablePointers",
)
VULKAN12_FEATURES = (
    "storageBuffer8BitAccess",
    "uniformAndStorageBuffer8BitAccess",
    "storagePushConstant8",
    "shaderSubgroupExtendedTypes",
    "uniformBufferStandardLayout",
    "shaderInt8",
    "shaderFloat16",
    "shaderBufferInt64Atomics",
    "shaderSharedInt64Atomics",
    "scalarBlockLayout",
    "timelineSemaphore",
    "hostQueryReset",
    "bufferDeviceAddress",
    "vulkanMemoryModel",
    "vulkanMemoryModelDeviceScope",
)

EXTENSION_FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "VK_EXT_robustness2": ("VkPhysicalDeviceRobustness2FeaturesEXT", ("robustBufferAccess2",)),
    "VK_EXT_pipeline_robustness": (
        "VkPhysicalDevicePipelineRobustnessFeaturesEXT",
        ("pipelineRobustness",),
    ),
    "VK_EXT_shader_atomic_float": (
        "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT",
        tuple(
            f"shader{where}Float{bits}Atomic{kind}"
            for where in ("Buffer", "Shared")
            for bits in (32, 64)
            for kind in ("s", "Add")
        ),
    ),
    "VK_EXT_shader_atomic_float2": (
        "VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT",
        tuple(
            f"shader{where}Float{bits}AtomicMinMax"
            for where in ("Buffer", "Shared")
            for bits in (32, 64)
        ),
    ),
    "VK_EXT_subgroup_size_control": (
        "VkPhysicalDeviceSubgroupSizeControlFeatures",
        ("subgroupSizeControl",),
    ),
    "VK_KHR_maintenance4": ("VkPhysicalDeviceMaintenance4Features", ("maintenance4",)),
    EXECUTABLE_PROPERTIES: (
        "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
        ("pipelineExecutableInfo",),
    ),
}
"""For each extension, the structure of its features and the features that are enabled."""

FLOAT_CONTROLS = ("shaderRoundingModeRTZFloat64",)
"""Properties that a kernel can require like features. They need not be enabled."""
SUBGROUP_OPERATIONS = (
    "basic",
    "vote",
    "arithmetic",
    "ballot",
    "shuffle",
    "shuffle relative",
    "clustered",
    "quad",
)
"""The bits of VkSubgroupFeatureFlagBits. A device that supports one in compute shaders has the
feature `subgroup <name>`, unless its subgroups are unreliable."""


# --- physical devices ---


def make_feature_chain(
    arena: Arena, extensions: Collection[str]
) -> tuple[Handle, list[tuple[Handle, tuple[str, ...]]]]:
    """Make the chained structures that query or enable features: the first one, and each structure
    with the names of the features that this package uses.
    """
    core = arena.new("VkPhysicalDeviceFeatures2")
    chain: list[tuple[Handle, tuple[str, ...]]] = [(core.features, CORE_FEATURES)]
    wanted = [
        ("VkPhysicalDeviceVulkan11Features", VULKAN11_FEATURES),
        ("VkPhysicalDeviceVulkan12Features", VULKAN12_FEATURES),
        *(features for name, features in EXTENSION_FEATURES.items() if name in extensions),
    ]
    last = core
    for structure, names in wanted:
        made = arena.new(structure)
        last.pNext = made
        last = made
        chain.append((made, names))
    return core, chain


def describe_device(device: Handle, *, statistics: bool = False) -> DeviceInfo:
    """Read everything that `DeviceInfo` holds about a physical device. A device that is opened with
    `statistics` keeps what its compiler says of pipelines."""
    arena = Arena()
    offered = _list_extensions(device)
    used = {*EXTENSIONS, EXECUTABLE_PROPERTIES} if statistics else {*EXTENSIONS}
    extensions = offered & used
    driver = arena.new("VkPhysicalDeviceDriverProperties")
    imports = arena.new("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
    if "VK_EXT_external_memory_host" in extensions:
        driver.pNext = imports
    sizes = arena.new("VkPhysicalDeviceSubgroupSizeControlProperties", pNext=driver)
    # Vulkan 1.3 has the properties also where the driver does not list the extension any more.
    reports_sizes = "VK_EXT_subgroup_size_control" in extensions or _read_version(device) >= (1, 3)
    reported = sizes if reports_sizes else driver
    floats = arena.new("VkPhysicalDeviceFloatControlsProperties", pNext=reported)
    subgroup = arena.new("VkPhysicalDeviceSubgroupProperties", pNext=floats)
    allocation = arena.new("VkPhysicalDeviceMaintenance3Properties", pNext=subgroup)
    identity = arena.new("VkPhysicalDeviceIDProperties", pNext=allocation)
    everything = arena.new("VkPhysicalDeviceProperties2", pNext=identity)
    vk.vkGetPhysicalDeviceProperties2(device, everything)
    properties = everything.properties
    kind: Kind = KINDS[properties.deviceType]
    limits = _read_limits(properties.limits, allocation, subgroup, sizes, imports)
    info = DeviceInfo(
        index=0,
        name=_decode_text(properties.deviceName),
        kind=kind,
        vendor=VENDORS.get(properties.vendorID, f"0x{properties.vendorID:04x}"),
        driver=_decode_text(driver.driverName) or "unknown",
        driver_version=_decode_text(driver.driverInfo) or f"0x{properties.driverVersion:08x}",
        api_version=unpack_version(properties.apiVersion),
        uuid=str(uuid.UUID(bytes=bytes(identity.deviceUUID))),
        heaps=_read_heaps(device),
        queue_families=_read_queue_families(device),
        limits=limits,
        features=_read_features(device, extensions)
        | {name for name in FLOAT_CONTROLS if getattr(floats, name)}
        | _read_subgroup_features(subgroup),
        extensions=extensions,
        pipeline_cache_uuid=bytes(properties.pipelineCacheUUID).hex(),
        execution_lanes=count_cores() * limits.subgroup_size
        if kind == "cpu"
        else count_execution_lanes(_read_core_properties(device, offered), limits),
    )
    return info.without_subgroups() if info.has_unreliable_subgroups else info


def _list_extensions(device: Handle) -> frozenset[str]:
    """All extensions that a device has."""
    found = enumerate_with(
        vk.vkEnumerateDeviceExtensionProperties, "VkExtensionProperties", device, vk.ffi.NULL
    )
    return frozenset(_decode_text(extension.extensionName) for extension in found)


def _read_version(device: Handle) -> tuple[int, int, int]:
    """The version of Vulkan that a device has."""
    properties = allocate_out("VkPhysicalDeviceProperties")
    vk.vkGetPhysicalDeviceProperties(device, properties)
    return unpack_version(properties.apiVersion)


def _read_core_properties(device: Handle, offered: frozenset[str]) -> Mapping[str, Handle]:
    """The structures of `CORE_PROPERTIES` that a device fills, by the extension."""
    arena, chained = Arena(), vk.ffi.NULL
    found: dict[str, Handle] = {}
    for extension in offered.intersection(CORE_PROPERTIES):
        found[extension] = chained = arena.new(CORE_PROPERTIES[extension], pNext=chained)
    if found:
        everything = arena.new("VkPhysicalDeviceProperties2", pNext=chained)
        vk.vkGetPhysicalDeviceProperties2(device, everything)
    return found


def count_execution_lanes(found: Mapping[str, Any], limits: Limits) -> int:
    """`DeviceInfo.execution_lanes` of a GPU by the structures of `CORE_PROPERTIES`, which drivers
    may leave 0; 0 if the GPU does not report it."""
    nvidia = found.get("VK_NV_shader_sm_builtins")
    if nvidia is not None:
        return int(nvidia.shaderSMCount * NVIDIA_SCHEDULERS * limits.subgroup_size)
    amd, active = (found.get(f"VK_AMD_shader_core_properties{suffix}") for suffix in ("", "2"))
    if amd is not None:
        built = amd.shaderEngineCount * amd.shaderArraysPerEngineCount
        units = (active and active.activeComputeUnitCount) or built * amd.computeUnitsPerShaderArray
        return int(units * amd.simdPerComputeUnit * limits.min_subgroup_size)
    arm, rates = (
        found.get(f"VK_ARM_shader_core_{suffix}") for suffix in ("builtins", "properties")
    )
    if arm is not None:
        lanes = (rates and rates.fmaRate) or ARM_ENGINES * limits.subgroup_size
        return int(arm.shaderCoreCount * lanes)
    return 0


def _read_limits(
    limits: Handle, allocation: Handle, subgroup: Handle, sizes: Handle, imports: Handle
) -> Limits:
    return Limits(
        max_storage_buffer_range=limits.maxStorageBufferRange,
        max_uniform_buffer_range=limits.maxUniformBufferRange,
        max_allocation=allocation.maxMemoryAllocationSize,
        max_work_group_invocations=limits.maxComputeWorkGroupInvocations,
        max_work_group_size=tuple(limits.maxComputeWorkGroupSize),
        max_work_group_count=tuple(limits.maxComputeWorkGroupCount),
        max_shared_memory=limits.maxComputeSharedMemorySize,
        max_push_constants=limits.maxPushConstantsSize,
        max_bound_buffers=limits.maxPerStageDescriptorStorageBuffers,
        buffer_offset_alignment=limits.minStorageBufferOffsetAlignment,
        non_coherent_atom=limits.nonCoherentAtomSize,
        subgroup_size=subgroup.subgroupSize,
        min_subgroup_size=sizes.minSubgroupSize or subgroup.subgroupSize,
        timestamp_period_ns=limits.timestampPeriod,
        host_import_alignment=imports.minImportedHostPointerAlignment,
        max_required_invocations=_count_required_invocations(subgroup, sizes),
    )


def _count_required_invocations(subgroup: Handle, sizes: Handle) -> int:
    """`Limits.max_required_invocations`."""
    is_allowed = sizes.requiredSubgroupSizeStages & vk.VK_SHADER_STAGE_COMPUTE_BIT
    in_range = sizes.minSubgroupSize <= subgroup.subgroupSize <= sizes.maxSubgroupSize
    if not (is_allowed and in_range):
        return 0
    return int(sizes.maxComputeWorkgroupSubgroups * subgroup.subgroupSize)


def _read_heaps(device: Handle) -> tuple[MemoryHeap, ...]:
    memory = allocate_out("VkPhysicalDeviceMemoryProperties")
    vk.vkGetPhysicalDeviceMemoryProperties(device, memory)
    types = [memory.memoryTypes[i] for i in range(memory.memoryTypeCount)]
    return tuple(
        MemoryHeap(
            bytes=heap.size,
            device_local=bool(heap.flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT),
            types=tuple(
                _name_bits(HEAP_BITS, kind.propertyFlags)
                for kind in types
                if kind.heapIndex == index
            ),
        )
        for index, heap in enumerate(memory.memoryHeaps[0 : memory.memoryHeapCount])
    )


def _read_queue_families(device: Handle) -> tuple[QueueFamily, ...]:
    found = enumerate_with(
        vk.vkGetPhysicalDeviceQueueFamilyProperties, "VkQueueFamilyProperties", device
    )
    return tuple(
        QueueFamily(f.queueCount, _name_bits(QUEUE_BITS, f.queueFlags), f.timestampValidBits)
        for f in found
    )


def _read_features(device: Handle, extensions: Collection[str]) -> frozenset[str]:
    arena = Arena()
    core, chain = make_feature_chain(arena, extensions)
    vk.vkGetPhysicalDeviceFeatures2(device, core)
    return frozenset(
        name for structure, names in chain for name in names if getattr(structure, name)
    )


def _read_subgroup_features(subgroup: Handle) -> frozenset[str]:
    if not subgroup.supportedStages & vk.VK_SHADER_STAGE_COMPUTE_BIT:
        return frozenset()
    found = _name_bits(SUBGROUP_OPERATIONS, subgroup.supportedOperations)
    return frozenset(f"subgroup {name}" for name in found)


def _name_bits(names: tuple[str, ...], flags: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(names) if flags >> bit & 1)


def _decode_text(characters: Handle) -> str:
    text: str = vk.ffi.string(characters).decode(errors="replace")
    return text


def unpack_version(packed: int) -> tuple[int, int, int]:
    """Split a packed Vulkan version into major, minor and patch."""
    return packed >> 22 & 0x7F, packed >> 12 & 0x3FF, packed & 0xFFF


# --- the open device ---


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
    """At least two compute queues for small chunks; empty without a suitable family."""
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
