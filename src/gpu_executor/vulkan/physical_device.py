"""Reads the properties, limits, features and memory of a physical device into a `DeviceInfo`."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from gpu_executor.device_info import DeviceInfo, Kind, Limits, MemoryHeap, QueueFamily
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, enumerate_with, vk

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
    "VK_EXT_calibrated_timestamps",
    "VK_EXT_robustness2",
    "VK_EXT_pipeline_robustness",
    "VK_EXT_shader_atomic_float",
    "VK_EXT_shader_atomic_float2",
    "VK_KHR_maintenance4",
)
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
    "VK_KHR_maintenance4": ("VkPhysicalDeviceMaintenance4Features", ("maintenance4",)),
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
feature `subgroup <name>`."""


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


def describe_device(device: Handle) -> DeviceInfo:
    """Read everything that `DeviceInfo` holds about a physical device."""
    arena = Arena()
    extensions = _read_extensions(device)
    driver = arena.new("VkPhysicalDeviceDriverProperties")
    imports = arena.new("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
    if "VK_EXT_external_memory_host" in extensions:
        driver.pNext = imports
    floats = arena.new("VkPhysicalDeviceFloatControlsProperties", pNext=driver)
    subgroup = arena.new("VkPhysicalDeviceSubgroupProperties", pNext=floats)
    allocation = arena.new("VkPhysicalDeviceMaintenance3Properties", pNext=subgroup)
    identity = arena.new("VkPhysicalDeviceIDProperties", pNext=allocation)
    everything = arena.new("VkPhysicalDeviceProperties2", pNext=identity)
    vk.vkGetPhysicalDeviceProperties2(device, everything)
    properties = everything.properties
    return DeviceInfo(
        index=0,
        name=_decode_text(properties.deviceName),
        kind=KINDS[properties.deviceType],
        vendor=VENDORS.get(properties.vendorID, f"0x{properties.vendorID:04x}"),
        driver=_decode_text(driver.driverName) or "unknown",
        driver_version=_decode_text(driver.driverInfo) or f"0x{properties.driverVersion:08x}",
        api_version=unpack_version(properties.apiVersion),
        uuid=str(uuid.UUID(bytes=bytes(identity.deviceUUID))),
        heaps=_read_heaps(device),
        queue_families=_read_queue_families(device),
        limits=_read_limits(properties.limits, allocation, subgroup, imports),
        features=_read_features(device, extensions)
        | {name for name in FLOAT_CONTROLS if getattr(floats, name)}
        | _read_subgroup_features(subgroup),
        extensions=extensions,
        pipeline_cache_uuid=bytes(properties.pipelineCacheUUID).hex(),
    )


def _read_extensions(device: Handle) -> frozenset[str]:
    found = enumerate_with(
        vk.vkEnumerateDeviceExtensionProperties, "VkExtensionProperties", device, vk.ffi.NULL
    )
    return frozenset(EXTENSIONS) & {_decode_text(extension.extensionName) for extension in found}


def _read_limits(limits: Handle, allocation: Handle, subgroup: Handle, imports: Handle) -> Limits:
    return Limits(
        max_storage_buffer_range=limits.maxStorageBufferRange,
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
        timestamp_period_ns=limits.timestampPeriod,
        host_import_alignment=imports.minImportedHostPointerAlignment,
    )


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
