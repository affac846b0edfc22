"""Reads the properties, limits, features and memory of a physical device into a `DeviceInfo`."""

from __future__ import annotations

import uuid

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

EXTENSIONS = ("VK_EXT_external_memory_host", "VK_EXT_calibrated_timestamps")
CORE_FEATURES = ("shaderInt64", "shaderInt16", "shaderFloat64")
VULKAN11_FEATURES = (
    "storageBuffer16BitAccess",
    "uniformAndStorageBuffer16BitAccess",
    "variablePointersStorageBuffer",
    "variablePointers",
)
VULKAN12_FEATURES = (
    "storageBuffer8BitAccess",
    "uniformAndStorageBuffer8BitAccess",
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

FLOAT_CONTROLS = ("shaderRoundingModeRTZFloat64",)
"""Properties that a kernel can require like features. They need not be enabled."""


def make_feature_chain(arena: Arena) -> tuple[Handle, Handle, Handle]:
    """Make the chained structures that query or enable the features listed above."""
    vulkan12 = arena.new("VkPhysicalDeviceVulkan12Features")
    vulkan11 = arena.new("VkPhysicalDeviceVulkan11Features", pNext=vulkan12)
    core = arena.new("VkPhysicalDeviceFeatures2", pNext=vulkan11)
    return core, vulkan11, vulkan12


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
        features=_read_features(device)
        | {name for name in FLOAT_CONTROLS if getattr(floats, name)},
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


def _read_features(device: Handle) -> frozenset[str]:
    arena = Arena()
    core, vulkan11, vulkan12 = make_feature_chain(arena)
    vk.vkGetPhysicalDeviceFeatures2(device, core)
    asked = (
        (core.features, CORE_FEATURES),
        (vulkan11, VULKAN11_FEATURES),
        (vulkan12, VULKAN12_FEATURES),
    )
    return frozenset(
        name for structure, names in asked for name in names if getattr(structure, name)
    )


def _name_bits(names: tuple[str, ...], flags: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(names) if flags >> bit & 1)


def _decode_text(characters: Handle) -> str:
    text: str = vk.ffi.string(characters).decode(errors="replace")
    return text


def unpack_version(packed: int) -> tuple[int, int, int]:
    """Split a packed Vulkan version into major, minor and patch."""
    return packed >> 22 & 0x7F, packed >> 12 & 0x3FF, packed & 0xFFF
