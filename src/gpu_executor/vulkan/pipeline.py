"""Compute pipelines: the code that a driver compiles for a kernel, and its compilation.

Where the device has no 64-bit integers, the code is lowered to pairs of words first. Where the
driver compiles slowly, loops over many limbs stay loops. Other drivers get such code first where
the usual code takes them seconds: the quick form of a pipeline (`pipeline_cache.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import get_profile
from gpu_executor.errors import DeviceLacksError, SpirvError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.modules import SpecId, get_digests
from gpu_executor.settings import SpirvVal
from gpu_executor.spirv import (
    INT64,
    lower_ballot_find_lsb,
    move_to_uniform_buffer,
    remove_unroll_hints,
)
from gpu_executor.spirv.validation import validate_module
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.device_checks import (
    check_device_runs,
    describe_alternatives,
)
from gpu_executor.vulkan.disk_cache import PipelineFiles

RADV = "radv"
"""The name of Mesa's driver for AMD GPUs."""


def _make_module(device: Device, spirv: bytes) -> Handle:
    arena = Arena()
    code = arena.array("uint32_t", len(spirv) // 4)
    vk.ffi.memmove(code, spirv, len(spirv))
    info = arena.new("VkShaderModuleCreateInfo", codeSize=len(spirv), pCode=code)
    module = allocate_out("VkShaderModule")
    vk.vkCreateShaderModule(device.handle, info, vk.ffi.NULL, module)
    return module[0]


Constants = tuple[tuple[int, bytes], ...]
"""Specialization constants as (id, encoded value), sorted by id."""
Key = tuple[str, Constants, bool]


@dataclass(frozen=True, slots=True)
class PipelineCode:
    """What the driver compiles for a kernel with specialization constants."""

    kernel: Kernel
    key: Key
    spirv: bytes
    constants: Constants
    """Those that the driver gets; none where they are part of the code already."""
    push_bytes: int
    uniforms: tuple[int, ...]
    params_binding: int | None
    requires_subgroup_size: bool
    is_lowered: bool
    is_quick: bool

    @property
    def name(self) -> str:
        """A hash of all that the driver compiles: the name of the file on disk."""
        options = self.key[2], self.requires_subgroup_size
        parts = [self.spirv, repr((self.constants, options)).encode()]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


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
    is_lowered: bool = False
    """Whether 64-bit integers were lowered to pairs of words in its code."""
    is_quick: bool = False
    """Whether it has the quick form: loops over limbs stayed loops."""
    is_replaced: bool = False
    """Whether the cache has the usual form by now."""


def prepare_code(
    info: DeviceInfo,
    kernel: Kernel,
    constants: Constants,
    *,
    params_in_buffer: bool = False,
    spirv_val: SpirvVal = "auto",
) -> PipelineCode:
    """Return the code of a kernel with encoded specialization constants, for a device.

    With `params_in_buffer`, push constants with parameters move into a uniform buffer where the
    device allows it.
    """
    check_device_runs(kernel, info)
    _validate(kernel, kernel.spirv, kernel.digest, info, spirv_val)
    interface, code, push_bytes = kernel.interface, kernel.spirv, kernel.push_bytes
    if info.driver == RADV and "GroupNonUniformBallot" in interface.capability_names():
        code = lower_ballot_find_lsb(code)  # Mesa 22.3.6 compiles that search to wrong code
    uniforms = [] if interface.uniform is None else [interface.uniform.binding]
    moves_params = params_in_buffer and kernel.pushes_params
    params_binding = None
    if moves_params and "uniformBufferStandardLayout" in info.features:
        params_binding = max([*interface.bindings, *uniforms]) + 1
        uniforms.append(params_binding)
        code, push_bytes = move_to_uniform_buffer(code, params_binding), 0
    frozen, lowers = constants, INT64 in interface.capabilities
    lowers = lowers and "shaderInt64" not in info.features
    if lowers:
        code, frozen = _lower(kernel, code, constants, info, spirv_val), ()
    if _keeps_loops(kernel, info):
        code = remove_unroll_hints(code)
    return PipelineCode(
        kernel,
        make_key(kernel, constants, params_in_buffer=params_in_buffer),
        code,
        frozen,
        push_bytes,
        tuple(uniforms),
        params_binding,
        _requires_subgroup_size(info, kernel, constants),
        is_lowered=lowers,
        is_quick=False,
    )


def make_key(kernel: Kernel, constants: Constants, *, params_in_buffer: bool) -> Key:
    """What tells pipelines apart; both forms of one have the same key."""
    return kernel.digest, constants, params_in_buffer and kernel.pushes_params


def to_quick_form(code: PipelineCode) -> PipelineCode:
    """The code whose loops over limbs stay loops: the driver compiles it faster."""
    return replace(code, spirv=remove_unroll_hints(code.spirv), is_quick=True)


def make_pipeline(
    device: Device, code: PipelineCode, files: PipelineFiles | None = None
) -> Pipeline:
    """Compile the code; the caller destroys the pipeline."""
    null = vk.ffi.NULL
    set_layout = make_set_layout(device, code.kernel.interface.bindings, code.uniforms)
    layout = module = None
    try:
        layout = _make_layout(device, set_layout, code.push_bytes)
        module = _make_module(device, code.spirv)
        with contextlib.nullcontext(null) if files is None else files.open(code.name) as cache:
            handle = _compile(device, cache, layout, module, code)
    except BaseException:
        if layout is not None:
            vk.vkDestroyPipelineLayout(device.handle, layout, null)
        vk.vkDestroyDescriptorSetLayout(device.handle, set_layout, null)
        raise
    finally:
        if module is not None:
            vk.vkDestroyShaderModule(device.handle, module, null)
    return Pipeline(
        code.key,
        set_layout,
        layout,
        handle,
        code.params_binding,
        is_lowered=code.is_lowered,
        is_quick=code.is_quick,
    )


def destroy_pipeline(device: Device, pipeline: Pipeline) -> None:
    """Destroy a pipeline and its layouts."""
    vk.vkDestroyPipeline(device.handle, pipeline.handle, vk.ffi.NULL)
    vk.vkDestroyPipelineLayout(device.handle, pipeline.layout, vk.ffi.NULL)
    vk.vkDestroyDescriptorSetLayout(device.handle, pipeline.set_layout, vk.ffi.NULL)


def _validate(
    kernel: Kernel, code: bytes, digest: str, info: DeviceInfo, spirv_val: SpirvVal
) -> None:
    """Raise SpirvError if the code of a user's kernel is invalid."""
    if kernel.digest not in get_digests():  # a test validates the package's own modules
        validate_module(
            code, digest, vulkan=info.api_version[:2], features=info.features, mode=spirv_val
        )


def _lower(
    kernel: Kernel, code: bytes, constants: Constants, info: DeviceInfo, spirv_val: SpirvVal
) -> bytes:
    """Return the code with these constants and with pairs of words for 64-bit integers."""
    # Imported late: most devices have 64-bit integers.
    from gpu_executor.spirv.int64_lowering import lower_int64
    from gpu_executor.spirv.specialization import specialize

    try:
        specialized = specialize(code, kernel.interface.decode_constants(constants))
        lowered = lower_int64(specialized)
    except SpirvError as error:
        raise DeviceLacksError(
            f"kernel {kernel.name!r} needs Int64; {info.name} lacks shaderInt64 "
            f"({describe_alternatives(kernel, 'shaderInt64')}), and {error}"
        ) from error
    _validate(kernel, lowered, hashlib.sha256(lowered).hexdigest(), info, spirv_val)
    return lowered


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


def _compile(
    device: Device, driver_cache: Handle, layout: Handle, module: Handle, code: PipelineCode
) -> Handle:
    kernel = code.kernel
    arena = Arena()
    info = arena.new("VkComputePipelineCreateInfo", layout=layout)
    if "pipelineRobustness" in device.info.features and _gains_without_checks(kernel):
        unchecked = vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT
        info.pNext = arena.new(
            "VkPipelineRobustnessCreateInfoEXT", storageBuffers=unchecked, uniformBuffers=unchecked
        )
    if "pipelineExecutableInfo" in device.info.features:
        info.flags = vk.VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
    info.stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
    info.stage.stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
    info.stage.module = module
    info.stage.pName = arena.text(kernel.interface.entry_point)
    info.stage.pSpecializationInfo = _make_specialization_info(arena, code.constants)
    if code.requires_subgroup_size:
        info.stage.pNext = arena.new(
            "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo",
            requiredSubgroupSize=device.info.limits.subgroup_size,
        )
    pipelines = allocate_out("VkPipeline")
    vk.vkCreateComputePipelines(device.handle, driver_cache, 1, info, vk.ffi.NULL, pipelines)
    return pipelines[0]


def _requires_subgroup_size(info: DeviceInfo, kernel: Kernel, constants: Constants) -> bool:
    """Whether the subgroups of a pipeline must have the device's usual size: the kernel shuffles,
    and smaller ones would not hold its groups (`DeviceInfo.shuffle_lanes`)."""
    interface = kernel.interface
    if not info.requires_subgroup_size:
        return False
    if "GroupNonUniformShuffle" not in interface.capability_names():
        return False
    values, local = interface.decode_constants(constants), interface.local_size
    extents = (
        size if spec_id is None else int(values.get(spec_id, size))
        for size, spec_id in zip(local.size, local.spec_ids, strict=True)
    )
    return math.prod(extents) <= info.limits.max_required_invocations


def _gains_without_checks(kernel: Kernel) -> bool:
    """Whether a kernel stays within its arrays, and is faster if the device does not check that:
    one with products of limbs. The results are the same, and the difference is small on any device.

    On an NVIDIA H200, in G/s without and with checks: 255-bit products 38.6 and 37.5, 381-bit
    products 19.2 and 19.0, but 381-bit additions 28.4 and 29.3.
    """
    return kernel.interface.constant(SpecId.LIMBS) is not None and kernel.digest in get_digests()


def _keeps_loops(kernel: Kernel, info: DeviceInfo) -> bool:
    """Whether a kernel of the package has more limbs than the driver unrolls fast. Where their
    number is no constant (glsl/block_pass.glsl), it is that of the limbs of the modulus."""
    constants = dict(kernel.constants)
    modulus = [each for each in constants if SpecId.MODULUS <= each < SpecId.STORED_LIMBS]
    limbs = constants.get(SpecId.LIMBS, len(modulus))
    return limbs > get_profile(info).max_unrolled_limbs and kernel.digest in get_digests()


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
