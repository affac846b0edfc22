"""Compute pipelines: checks that a device can run a kernel, and an LRU cache of pipelines.

A pipeline is created at its first use and cached under the SHA-256 of its SPIR-V and its
specialization constants. A driver may crash on code that its device does not support, so every
kernel is checked against the device before its shader module is created.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.modules import SpecId, get_digests
from gpu_executor.settings import SpirvVal
from gpu_executor.spirv import CAPABILITY_NAMES, move_to_uniform_buffer
from gpu_executor.spirv.int64_lowering import INT64, lower_int64
from gpu_executor.spirv.specialization import specialize
from gpu_executor.spirv.validation import validate_module
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device

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
"""Features that a device may lack: kernels are lowered to code without them."""
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
            raise DeviceLacksError(f"{where} needs {name}; {info.name} lacks {feature}")
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


def _make_module(device: Device, spirv: bytes) -> Handle:
    arena = Arena()
    code = arena.array("uint32_t", len(spirv) // 4)
    vk.ffi.memmove(code, spirv, len(spirv))
    info = arena.new("VkShaderModuleCreateInfo", codeSize=len(spirv), pCode=code)
    module = allocate_out("VkShaderModule")
    vk.vkCreateShaderModule(device.handle, info, vk.ffi.NULL, module)
    return module[0]


def _format_version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


Constants = tuple[tuple[int, bytes], ...]
"""Specialization constants as (id, encoded value), sorted by id."""
Key = tuple[str, Constants, bool]
MAX_PIPELINES = 512
"""Pipelines that no slot and no cached dispatch uses count too. Programs that use many fields and
sizes need hundreds: with 64, the tests of fields compiled 1,659 pipelines, of which 874 were
different."""


@dataclass(slots=True, eq=False)
class Pipeline:
    """A compute pipeline and its layouts. `users` counts the slots whose commands refer to it."""

    key: Key
    set_layout: Handle
    layout: Handle
    handle: Handle
    params_binding: int | None = None
    """The binding of the uniform buffer that holds the push constants of a kernel with parameters,
    so that new values are not recorded; None if they are pushed."""
    users: int = 0


@dataclass(frozen=True, slots=True)
class PipelineStats:
    """A hit found the pipeline in the cache; a miss created it."""

    hits: int
    misses: int
    evictions: int
    kept: int


class PipelineCache:
    """The pipelines of one device; the least recently used is evicted first. Thread-safe."""

    def __init__(
        self,
        device: Device,
        driver_cache: Handle,
        *,
        capacity: int = MAX_PIPELINES,
        spirv_val: SpirvVal = "auto",
    ) -> None:
        self._device = device
        self._driver_cache = driver_cache
        self._capacity = capacity
        self._spirv_val = spirv_val
        self._pipelines: LruCache[Key, Pipeline] = LruCache()
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0

    def acquire(
        self,
        kernel: Kernel,
        work_group: int,
        per_invocation: int,
        *,
        params_in_buffer: bool = True,
    ) -> Pipeline:
        """Return the pipeline of a kernel and its tuning.

        With `params_in_buffer`, push constants with parameters move into a uniform buffer where the
        device allows it, so that recorded commands serve other values too. `release` the pipeline
        when no recorded commands use it.
        """
        chosen = choose_constants(kernel, work_group, per_invocation)
        constants = encode_specialization(kernel, chosen)
        check_work_group(kernel, work_group, self._device.info)
        key = (kernel.digest, constants, params_in_buffer and kernel.pushes_params)
        with self._lock:
            pipeline = self._pipelines.use(key)
            if pipeline is None:
                self._misses += 1
                check_shared_memory(kernel, chosen, self._device.info)
                pipeline = self._make(key, kernel, constants)
                self._pipelines[key] = pipeline
            else:
                self._hits += 1
            pipeline.users += 1
            self._evict()
            return pipeline

    def release(self, pipeline: Pipeline) -> None:
        with self._lock:
            pipeline.users -= 1
            self._evict()

    def close(self) -> None:
        with self._lock:
            for pipeline in self._pipelines.values():
                _destroy(self._device, pipeline)
            self._pipelines.clear()

    def stats(self) -> PipelineStats:
        with self._lock:
            return PipelineStats(self._hits, self._misses, self._evictions, len(self._pipelines))

    def _evict(self) -> None:
        """Destroy the least recently used pipelines that no recorded commands refer to."""
        for unused in self._pipelines.evict(self._capacity, in_use=lambda each: each.users > 0):
            _destroy(self._device, unused)
            self._evictions += 1

    def _make(self, key: Key, kernel: Kernel, constants: Constants) -> Pipeline:
        info = self._device.info
        check_device_runs(kernel, info)
        if kernel.digest not in get_digests():  # a test validates the package's own modules
            validate_module(
                kernel.spirv,
                kernel.digest,
                vulkan=info.api_version[:2],
                features=info.features,
                mode=self._spirv_val,
            )
        device, null = self._device.handle, vk.ffi.NULL
        interface, code, push_bytes = kernel.interface, kernel.spirv, kernel.push_bytes
        uniforms = [] if interface.uniform is None else [interface.uniform.binding]
        params_binding = None
        if key[2] and "uniformBufferStandardLayout" in self._device.info.features:
            params_binding = max([*interface.bindings, *uniforms]) + 1
            uniforms.append(params_binding)
            code, push_bytes = move_to_uniform_buffer(code, params_binding), 0
        if INT64 in interface.capabilities and "shaderInt64" not in info.features:
            code = lower_int64(specialize(code, interface.decode_constants(constants)))
            constants = ()
        set_layout = make_set_layout(self._device, interface.bindings, uniforms)
        layout = module = None
        try:
            layout = _make_layout(self._device, set_layout, push_bytes)
            module = _make_module(self._device, code)
            handle = _make_pipeline(
                self._device, self._driver_cache, layout, module, kernel, constants
            )
        except BaseException:
            if layout is not None:
                vk.vkDestroyPipelineLayout(device, layout, null)
            vk.vkDestroyDescriptorSetLayout(device, set_layout, null)
            raise
        finally:
            if module is not None:
                vk.vkDestroyShaderModule(device, module, null)
        return Pipeline(key, set_layout, layout, handle, params_binding)


def choose_constants(kernel: Kernel, work_group: int, per_invocation: int) -> dict[int, int]:
    """Return the specialization constants that the plan sets, by id.

    Every extent of the work-group is set: the code may have another constant with the same id and
    another default.
    """
    x, y, z = kernel.interface.local_size.spec_ids
    _, rows, layers = kernel.local_size()
    chosen = {y: rows, z: layers, x: work_group, kernel.per_invocation: per_invocation}
    own = dict(kernel.constants)
    return {at: value for at, value in chosen.items() if at is not None and at not in own}


def encode_specialization(kernel: Kernel, chosen: Mapping[int, int]) -> Constants:
    """Encode the kernel's own specialization constants and those that the plan chose."""
    values = dict(kernel.encode_constants())
    for spec_id, value in chosen.items():
        constant = kernel.interface.constant(spec_id)
        assert constant is not None, "checked when the kernel was made"
        values[spec_id] = constant.encode(value)
    return tuple(sorted(values.items()))


def get_descriptor_type(*, uniform: bool) -> int:
    """Return the VkDescriptorType of a uniform buffer or of a storage buffer."""
    kind: int = (
        vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER if uniform else vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
    )
    return kind


def make_set_layout(
    device: Device, bindings: Sequence[int], uniforms: Sequence[int] = ()
) -> Handle:
    """Make a descriptor set layout of storage buffers and of uniform buffers.

    Identically defined layouts are compatible (14.2.2).
    """
    arena = Arena()
    numbers = [*bindings, *uniforms]
    entries = arena.array("VkDescriptorSetLayoutBinding", len(numbers))
    for entry, binding in zip(entries, numbers, strict=True):
        entry.binding = binding
        entry.descriptorType = get_descriptor_type(uniform=binding in uniforms)
        entry.descriptorCount = 1
        entry.stageFlags = vk.VK_SHADER_STAGE_COMPUTE_BIT
    info = arena.new(
        "VkDescriptorSetLayoutCreateInfo", bindingCount=len(numbers), pBindings=entries
    )
    layout = allocate_out("VkDescriptorSetLayout")
    vk.vkCreateDescriptorSetLayout(device.handle, info, vk.ffi.NULL, layout)
    return layout[0]


def _make_layout(device: Device, set_layout: Handle, push_bytes: int) -> Handle:
    arena = Arena()
    push = arena.new(
        "VkPushConstantRange", stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=push_bytes
    )
    info = arena.new(
        "VkPipelineLayoutCreateInfo",
        setLayoutCount=1,
        pSetLayouts=arena.array("VkDescriptorSetLayout", [set_layout]),
        pushConstantRangeCount=1 if push_bytes else 0,
        pPushConstantRanges=push,
    )
    layout = allocate_out("VkPipelineLayout")
    vk.vkCreatePipelineLayout(device.handle, info, vk.ffi.NULL, layout)
    return layout[0]


def _make_pipeline(
    device: Device,
    driver_cache: Handle,
    layout: Handle,
    module: Handle,
    kernel: Kernel,
    constants: Constants,
) -> Handle:
    arena = Arena()
    info = arena.new("VkComputePipelineCreateInfo", layout=layout)
    if "pipelineRobustness" in device.info.features and _gains_without_checks(kernel):
        unchecked = vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT
        info.pNext = arena.new(
            "VkPipelineRobustnessCreateInfoEXT", storageBuffers=unchecked, uniformBuffers=unchecked
        )
    info.stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
    info.stage.stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
    info.stage.module = module
    info.stage.pName = arena.text(kernel.interface.entry_point)
    info.stage.pSpecializationInfo = _make_specialization_info(arena, constants)
    pipelines = allocate_out("VkPipeline")
    vk.vkCreateComputePipelines(device.handle, driver_cache, 1, info, vk.ffi.NULL, pipelines)
    return pipelines[0]


def _gains_without_checks(kernel: Kernel) -> bool:
    """Whether a kernel stays within its arrays, and is faster if the device does not check that.

    On an NVIDIA H200, in G/s without and with checks: 255-bit products 38.6 and 37.5, 381-bit
    products 19.2 and 19.0, but 381-bit additions 28.4 and 29.3.
    """
    return kernel.interface.constant(SpecId.LIMBS) is not None and kernel.digest in get_digests()


def _make_specialization_info(arena: Arena, constants: Constants) -> Handle:
    entries = arena.array("VkSpecializationMapEntry", max(len(constants), 1))
    data = b""
    for entry, (spec_id, encoded) in zip(entries, constants, strict=False):
        entry.constantID, entry.offset, entry.size = spec_id, len(data), len(encoded)
        data += encoded
    return arena.new(
        "VkSpecializationInfo",
        mapEntryCount=len(constants),
        pMapEntries=entries,
        dataSize=len(data),
        pData=arena.array("char", data or b"\0"),
    )


def _destroy(device: Device, pipeline: Pipeline) -> None:
    vk.vkDestroyPipeline(device.handle, pipeline.handle, vk.ffi.NULL)
    vk.vkDestroyPipelineLayout(device.handle, pipeline.layout, vk.ffi.NULL)
    vk.vkDestroyDescriptorSetLayout(device.handle, pipeline.set_layout, vk.ffi.NULL)
