"""A kernel's SPIR-V held against the device that is to run it, and its shader module.

What the code binds was read when the kernel was made (`gpu_executor.spirv`); here the question is
whether this device can run it. A driver given code it cannot run may crash, so the answer comes
first.
"""

from __future__ import annotations

from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernel import Kernel
from gpu_executor.spirv import CAPABILITY_NAMES
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device

NO_FEATURE_NEEDED = {"Shader", "Matrix", "GroupNonUniform", "GroupNonUniformVote"} | {
    f"GroupNonUniform{kind}"
    for kind in ("Arithmetic", "Ballot", "Shuffle", "ShuffleRelative", "Clustered", "Quad")
}
FEATURE_OF_CAPABILITY = {
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
    # The kernels here ask for it for doubles; of which numbers another one means it is not read.
    "RoundingModeRTZ": "shaderRoundingModeRTZFloat64",
}
SPIRV_OF_VULKAN = {(1, 2): (1, 5), (1, 3): (1, 6)}
"""The newest SPIR-V that a Vulkan version takes (Vulkan 1.3, appendix A)."""


def check_device_runs(kernel: Kernel, info: DeviceInfo) -> None:
    """Raise `DeviceLacksError` where the kernel's code needs what the device has not."""
    where, interface, limits = f"kernel {kernel.name!r}", kernel.interface, info.limits
    newest = SPIRV_OF_VULKAN.get(info.api_version[:2], (1, 6))
    if interface.version > newest:
        raise DeviceLacksError(
            f"{where} is SPIR-V {_dotted(interface.version)}; {info.name} takes up to "
            f"{_dotted(newest)} (compile for an older target: glslc --target-env=vulkan1.2)"
        )
    for capability in sorted(interface.capabilities):
        name = CAPABILITY_NAMES.get(capability, f"capability {capability}")
        if name in NO_FEATURE_NEEDED:
            continue
        feature = FEATURE_OF_CAPABILITY.get(name)
        if feature is None:
            raise DeviceLacksError(f"{where} needs {name}, which is not among what is switched on")
        if feature not in info.features:
            raise DeviceLacksError(f"{where} needs {name}; {info.name} lacks {feature}")
    if kernel.push_bytes > limits.max_push_constants:
        raise DeviceLacksError(
            f"{where} pushes {kernel.push_bytes} bytes; {info.name} takes "
            f"{limits.max_push_constants}"
        )
    if kernel.bindings > limits.max_bound_buffers:
        raise DeviceLacksError(
            f"{where} binds {kernel.bindings} buffers; {info.name} takes {limits.max_bound_buffers}"
        )


def check_work_group(kernel: Kernel, work_group: int, info: DeviceInfo) -> None:
    """Raise `DeviceLacksError` where the work-group is larger than the device's largest."""
    limits = info.limits
    size = (work_group, *kernel.local_size()[1:])
    invocations = size[0] * size[1] * size[2]
    fits = all(s <= most for s, most in zip(size, limits.max_work_group_size, strict=True))
    if not fits or invocations > limits.max_work_group_invocations:
        raise DeviceLacksError(
            f"kernel {kernel.name!r} has work-groups of {size}; {info.name} takes up to "
            f"{limits.max_work_group_size}, {limits.max_work_group_invocations} invocations in all"
        )


def make_module(device: Device, kernel: Kernel) -> Handle:
    arena = Arena()
    code = arena.array("uint32_t", len(kernel.spirv) // 4)
    vk.ffi.memmove(code, kernel.spirv, len(kernel.spirv))
    info = arena.new("VkShaderModuleCreateInfo", codeSize=len(kernel.spirv), pCode=code)
    module = out("VkShaderModule")
    vk.vkCreateShaderModule(device.handle, info, vk.ffi.NULL, module)
    return module[0]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
