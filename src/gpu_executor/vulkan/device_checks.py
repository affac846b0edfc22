"""Checks that a device can run a kernel.

A driver may crash on code that its device does not support, so every kernel is checked against the
device before its shader module is created.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpu_executor import device_info
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernel import Kernel
from gpu_executor.spirv import CAPABILITY_NAMES
from gpu_executor.vulkan.instance import find_devices

NO_FEATURE_NEEDED = {"Shader", "Matrix"}
FEATURE_OF_CAPABILITY = {
    "GroupNonUniform": "subgroup basic",
    "GroupNonUniformVote": "subgroup vote",
    "GroupNonUniformArithmetic": "subgroup arithmetic",
    "GroupNonUniformBallot": "subgroup ballot",
    "GroupNonUniformShuffle": "subgroup shuffle",
    "GroupNonUniformShuffleRelative": "subgroup shuffle relative",
    "GroupNonUniformClustered": "subgroup clustered",
    "GroupNonUniformQuad": "subgroup quad",
    "SubgroupBallotKHR": "subgroup ballot",
    "SubgroupVoteKHR": "subgroup vote",
    "AtomicFloat32AddEXT": "shaderBufferFloat32AtomicAdd",
    "AtomicFloat64AddEXT": "shaderBufferFloat64AtomicAdd",
    "AtomicFloat32MinMaxEXT": "shaderBufferFloat32AtomicMinMax",
    "AtomicFloat64MinMaxEXT": "shaderBufferFloat64AtomicMinMax",
    "StoragePushConstant16": "storagePushConstant16",
    "StoragePushConstant8": "storagePushConstant8",
    "Int64": "shaderInt64",
    "Int64Atomics": "shaderBufferInt64Atomics",
    "Int16": "shaderInt16",
    "Int8": "shaderInt8",
    "Float64": "shaderFloat64",
    "Float16": "shaderFloat16",
    "StorageBuffer16BitAccess": "storageBuffer16BitAccess",
    "UniformAndStorageBuffer16BitAccess": "uniformAndStorageBuffer16BitAccess",
    "StorageBuffer8BitAccess": "storageBuffer8BitAccess",
    "UniformAndStorageBuffer8BitAccess": "uniformAndStorageBuffer8BitAccess",
    "VariablePointersStorageBuffer": "variablePointersStorageBuffer",
    "VariablePointers": "variablePointers",
    "VulkanMemoryModel": "vulkanMemoryModel",
    "VulkanMemoryModelDeviceScope": "vulkanMemoryModelDeviceScope",
    "PhysicalStorageBufferAddresses": "bufferDeviceAddress",
    # This package's kernels require it for f64. Which width a user's kernel means is not read.
    "RoundingModeRTZ": "shaderRoundingModeRTZFloat64",
}
LOWERED = frozenset({"shaderInt64"})
"""Features that a device may lack: pipelines are made from code without them."""
SPIRV_OF_VULKAN = {(1, 2): (1, 5), (1, 3): (1, 6)}
"""The newest SPIR-V version that each Vulkan version supports (Vulkan 1.3, appendix A)."""


def check_device_runs(kernel: Kernel, info: DeviceInfo) -> None:
    """Raise `DeviceLacksError` if the device lacks a feature or limit that the kernel needs."""
    where, interface, limits = f"kernel {kernel.name!r}", kernel.interface, info.limits
    newest = SPIRV_OF_VULKAN.get(info.api_version[:2], (1, 6))
    if interface.version > newest:
        raise DeviceLacksError(
            f"{where} is SPIR-V {_format_version(interface.version)}; {info.name} takes up to "
            f"{_format_version(newest)} (compile for an older target: glslc --target-env=vulkan1.2)"
        )
    if interface.local_size.by_id and "maintenance4" not in info.features:
        raise DeviceLacksError(
            f"{where} has a work-group size by LocalSizeId; {info.name} lacks maintenance4 "
            "(compile for an older target: glslc --target-env=vulkan1.2)"
        )
    for capability in sorted(interface.capabilities):
        name = CAPABILITY_NAMES.get(capability, f"capability {capability}")
        if name in NO_FEATURE_NEEDED:
            continue
        feature = FEATURE_OF_CAPABILITY.get(name)
        if feature is None:
            raise DeviceLacksError(
                f"{where} needs the SPIR-V capability {name}, which gpu_executor does not enable"
            )
        if feature not in info.features and feature not in LOWERED:
            raise DeviceLacksError(
                f"{where} needs {name}; {info.name} lacks {feature}{_explain_lack(info, feature)} "
                f"({describe_alternatives(kernel, feature)})"
            )
    if kernel.push_bytes > limits.max_push_constants:
        raise DeviceLacksError(
            f"{where} has {kernel.push_bytes} bytes of push constants; {info.name} takes "
            f"{limits.max_push_constants}"
        )
    uniform = interface.uniform
    if uniform is not None and uniform.nbytes > limits.max_uniform_buffer_range:
        raise DeviceLacksError(
            f"{where} has a uniform buffer of {uniform.nbytes:,} bytes; {info.name} takes "
            f"{limits.max_uniform_buffer_range:,}; pass the values as an array"
        )
    if kernel.bindings > limits.max_bound_buffers:
        raise DeviceLacksError(
            f"{where} binds {kernel.bindings} buffers; {info.name} takes {limits.max_bound_buffers}"
        )


def _explain_lack(info: DeviceInfo, feature: str) -> str:
    if not feature.startswith("subgroup") or not info.has_unreliable_subgroups:
        return ""
    return f" that works in its subgroups of {info.limits.subgroup_size}; update MoltenVK to 1.4.2"


def check_work_group(kernel: Kernel, work_group: int, info: DeviceInfo) -> None:
    """Raise `DeviceLacksError` if the work-group is larger than the device allows."""
    limits = info.limits
    size = (work_group, *kernel.local_size()[1:])
    invocations = size[0] * size[1] * size[2]
    fits = all(s <= most for s, most in zip(size, limits.max_work_group_size, strict=True))
    if not fits or invocations > limits.max_work_group_invocations:
        raise DeviceLacksError(
            f"kernel {kernel.name!r} has work-groups of {size}; {info.name} takes up to "
            f"{limits.max_work_group_size}, {limits.max_work_group_invocations} invocations in all"
        )


def check_shared_memory(kernel: Kernel, constants: Mapping[int, int], info: DeviceInfo) -> None:
    """Raise `DeviceLacksError` if a work-group needs more shared memory than the device has.

    `constants` are the values of specialization constants that the plan chose, by id.
    """
    needed = kernel.interface.shared_memory.measure({**dict(kernel.constants), **constants})
    if needed > info.limits.max_shared_memory:
        raise DeviceLacksError(
            f"kernel {kernel.name!r} needs {needed} bytes of shared memory in a work-group; "
            f"{info.name} has {info.limits.max_shared_memory}"
        )


def describe_alternatives(kernel: Kernel, feature: str) -> str:
    """Say which devices of this machine have a feature, and whether the CPU runs the kernel."""
    able = [info.name for info in find_devices() if feature in info.features]
    return device_info.describe_alternatives(
        able, "Vulkan device", has_reference=kernel.reference is not None
    )


def _format_version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
