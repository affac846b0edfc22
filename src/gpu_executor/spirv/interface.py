"""The interface of a compute shader: its entry point, work-group size and everything it binds."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import CodeUses, read_uses
from gpu_executor.spirv.blocks import StorageBlock, UniformBlock, read_blocks
from gpu_executor.spirv.constants import (
    SpecConstant,
    find_spec_id,
    read_constant,
    read_spec_constants,
)
from gpu_executor.spirv.members import BlockMember
from gpu_executor.spirv.module import BUILT_IN, Module, read_module
from gpu_executor.spirv.shared_memory import SharedMemory, read_shared_memory

# fmt: off
CAPABILITY_NAMES: dict[int, str] = {
    0: "Matrix", 1: "Shader", 2: "Geometry", 3: "Tessellation", 4: "Addresses", 5: "Linkage",
    6: "Kernel", 7: "Vector16", 8: "Float16Buffer", 9: "Float16", 10: "Float64", 11: "Int64",
    12: "Int64Atomics", 18: "Groups", 21: "AtomicStorage", 22: "Int16",
    28: "UniformBufferArrayDynamicIndexing", 30: "StorageBufferArrayDynamicIndexing",
    38: "GenericPointer", 39: "Int8", 50: "ImageQuery", 61: "GroupNonUniform",
    62: "GroupNonUniformVote", 63: "GroupNonUniformArithmetic", 64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle", 66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered", 68: "GroupNonUniformQuad", 4423: "SubgroupBallotKHR",
    4427: "DrawParameters", 4428: "WorkgroupMemoryExplicitLayoutKHR", 4431: "SubgroupVoteKHR",
    4433: "StorageBuffer16BitAccess", 4434: "UniformAndStorageBuffer16BitAccess",
    4435: "StoragePushConstant16", 4437: "DeviceGroup", 4441: "VariablePointersStorageBuffer",
    4442: "VariablePointers", 4448: "StorageBuffer8BitAccess",
    4449: "UniformAndStorageBuffer8BitAccess", 4450: "StoragePushConstant8",
    4464: "DenormPreserve", 4465: "DenormFlushToZero", 4466: "SignedZeroInfNanPreserve",
    4467: "RoundingModeRTE", 4468: "RoundingModeRTZ", 4472: "RayQueryKHR",
    4473: "UntypedPointersKHR", 5055: "ShaderClockKHR", 5297: "GroupNonUniformPartitionedNV",
    5301: "ShaderNonUniform", 5302: "RuntimeDescriptorArray", 5345: "VulkanMemoryModel",
    5346: "VulkanMemoryModelDeviceScope", 5347: "PhysicalStorageBufferAddresses",
    5612: "AtomicFloat32MinMaxEXT", 5613: "AtomicFloat64MinMaxEXT", 5616: "AtomicFloat16MinMaxEXT",
    6016: "DotProductInputAll",
    6017: "DotProductInput4x8Bit", 6018: "DotProductInput4x8BitPacked", 6019: "DotProduct",
    6022: "CooperativeMatrixKHR", 6026: "GroupNonUniformRotateKHR", 6033: "AtomicFloat32AddEXT",
    6034: "AtomicFloat64AddEXT", 6095: "AtomicFloat16AddEXT",
}
# fmt: on
_REFUSED_CAPABILITIES = {
    6: "OpenCL SPIR-V is not Vulkan SPIR-V; compile for Vulkan (glslc, or clspv for OpenCL C)",
    # An untyped variable has no pointee type, so the reader cannot tell what it binds.
    4473: "untyped pointers are not supported; compile without SPV_KHR_untyped_pointers",
}
# fmt: off
_MODEL_NAMES = {
    0: "Vertex", 1: "TessellationControl", 2: "TessellationEvaluation", 3: "Geometry",
    4: "Fragment", 5: "GLCompute", 6: "Kernel", 5313: "RayGenerationKHR", 5364: "TaskEXT",
    5365: "MeshEXT",
}
# fmt: on
_GL_COMPUTE = 5  # Spec, "Execution Model"
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38  # Spec, "Execution Mode"
_WORKGROUP_SIZE = 25  # Spec, "BuiltIn"
_GROUP_IDS = frozenset((26, 27, 29, 40))  # WorkgroupId, LocalInvocationId and -Index, SubgroupId


@dataclass(frozen=True, slots=True)
class LocalSize:
    """Invocations per work-group in x, y and z, and the SpecIds that set them, if any."""

    size: tuple[int, int, int]
    spec_ids: tuple[int | None, int | None, int | None]
    by_id: bool = False
    """Whether the execution mode LocalSizeId gives it; Vulkan has that with `maintenance4`."""


@dataclass(frozen=True, slots=True)
class ShaderInterface:
    """The bindings, constants and sizes that a compute shader requires from the program that runs
    it.
    """

    version: tuple[int, int]
    entry_point: str
    local_size: LocalSize
    bindings: tuple[int, ...]  # the storage buffers of descriptor set 0, sorted
    read_only: frozenset[int]  # the bindings declared `readonly`
    push_constant_bytes: int  # a multiple of 4, as VkPushConstantRange requires
    constants: tuple[SpecConstant, ...]  # sorted by spec_id, each once
    capabilities: frozenset[int]
    buffers: tuple[StorageBlock, ...] = ()  # one for each of `bindings`
    push_members: tuple[BlockMember, ...] = ()  # in the order of their offsets
    uniform: UniformBlock | None = None
    unusable_members: tuple[str, ...] = ()
    """Declarations of the members of the push constants and the uniform buffer that take no values:
    arrays of structs and references to buffers."""
    has_barriers: bool = False  # whether the code waits for other invocations (OpControlBarrier)
    shared_memory: SharedMemory = field(default_factory=SharedMemory)
    uses_group_ids: bool = False
    """Whether the code reads the number of a work-group or of an invocation in its work-group."""

    @property
    def has_shared_memory(self) -> bool:
        """Whether the code uses `shared` variables."""
        return bool(self.shared_memory)

    @property
    def shared_memory_bytes(self) -> int:
        """The size of the `shared` variables with the defaults of the specialization constants."""
        return self.shared_memory.measure({})

    def constant(self, spec_id: int) -> SpecConstant | None:
        """Return the specialization constant with that SpecId; None if there is none."""
        return next((c for c in self.constants if c.spec_id == spec_id), None)

    def capability_names(self) -> tuple[str, ...]:
        """Return the names of the capabilities, in the order of their numbers."""
        return tuple(CAPABILITY_NAMES.get(c, f"capability {c}") for c in sorted(self.capabilities))


def read_interface(code: bytes) -> ShaderInterface:
    """Return the interface of the only compute shader in `code`; raise SpirvError if it cannot be
    run.
    """
    module = read_module(code)
    capabilities = frozenset(operands[0] for operands in module.all("OpCapability"))
    for capability, advice in _REFUSED_CAPABILITIES.items():
        if capability in capabilities:
            raise SpirvError(
                f"the module declares capability {CAPABILITY_NAMES[capability]}: {advice}"
            )
    entry, name = _find_entry_point(module)
    uses = read_uses(module, entry)
    blocks = read_blocks(module, uses)
    return ShaderInterface(
        version=module.version,
        entry_point=name,
        local_size=replace(_read_local_size(module, entry), by_id=_has_size_by_id(module, entry)),
        bindings=tuple(buffer.binding for buffer in blocks.buffers),
        read_only=blocks.read_only,
        push_constant_bytes=blocks.push_constant_bytes,
        constants=read_spec_constants(module),
        capabilities=capabilities,
        buffers=blocks.buffers,
        push_members=blocks.push_members,
        uniform=blocks.uniform,
        unusable_members=blocks.unusable_members,
        has_barriers=uses.has_barriers,
        shared_memory=read_shared_memory(module, uses),
        uses_group_ids=_uses_group_ids(module, uses),
    )


# --- entry point ---


def _find_entry_point(module: Module) -> tuple[int, str]:
    """Return the id of the entry point's function, and its name."""
    entries = [(o[0], o[1], _decode_string(o[2:])) for o in module.all("OpEntryPoint")]
    compute = [(function, name) for model, function, name in entries if model == _GL_COMPUTE]
    if not compute:
        models = ", ".join(_MODEL_NAMES.get(e[0], f"model {e[0]}") for e in entries) or "none"
        raise SpirvError(
            f"found no GLCompute entry point (found: {models}): compile a compute shader"
        )
    if len(compute) > 1:
        names = ", ".join(repr(name) for _, name in compute)
        raise SpirvError(f"found several compute entry points ({names}): compile one per module")
    if module.definition(compute[0][0])[0] != "OpFunction":
        raise SpirvError(
            f"the entry point {compute[0][1]!r} has no function: is the file complete?"
        )
    return compute[0]


def _decode_string(words: tuple[int, ...]) -> str:
    """Decode the nul-terminated UTF-8 string at the start of `words` (Spec 2.2.1, Literal)."""
    raw, nul, _ = struct.pack(f"<{len(words)}I", *words).partition(b"\0")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        nul = b""
    if not nul:
        raise SpirvError("an entry point's name is not nul-terminated UTF-8: recompile the module")
    return text


# --- work-groups ---


def _uses_group_ids(module: Module, uses: CodeUses) -> bool:
    return any(
        decorations.get(BUILT_IN) in _GROUP_IDS and uses.mentions(target)
        for (target, _), decorations in module.decorations.items()
    )


def _has_size_by_id(module: Module, entry: int) -> bool:
    modes = module.all("OpExecutionModeId")
    return any(operands[:2] == (entry, _LOCAL_SIZE_ID) for operands in modes)


def _read_local_size(module: Module, entry: int) -> LocalSize:
    """Return the local size; a WorkgroupSize constant overrides both execution modes (Spec,
    BuiltIn).
    """
    for (target, _), decorations in module.decorations.items():
        if decorations.get(BUILT_IN) == _WORKGROUP_SIZE:
            name, operands = module.definition(target)
            if not name.endswith("Composite"):
                raise SpirvError(
                    f"the WorkgroupSize %{target} is {name}: it must be a vector of three constants"
                )
            return _read_local_size_ids(module, operands[2:])
    for operands in module.all("OpExecutionModeId"):
        if operands[:2] == (entry, _LOCAL_SIZE_ID):
            return _read_local_size_ids(module, operands[2:])
    for operands in module.all("OpExecutionMode"):
        if operands[:2] == (entry, _LOCAL_SIZE):
            return _check_local_size(operands[2:], (None,) * len(operands[2:]))
    raise SpirvError("the entry point has no local size: declare layout(local_size_x = 64) in;")


def _read_local_size_ids(module: Module, ids: tuple[int, ...]) -> LocalSize:
    sizes = []
    for target in ids:
        constant = read_constant(module, target)
        if constant is None or constant.kind not in ("int", "uint"):
            raise SpirvError(
                f"the local size is given by {module.definition(target)[0]}: "
                "it must be an integer constant or a specialization constant"
            )
        sizes.append(int(constant.value))
    return _check_local_size(tuple(sizes), tuple(find_spec_id(module, target) for target in ids))


def _check_local_size(size: tuple[int, ...], spec_ids: tuple[int | None, ...]) -> LocalSize:
    if len(size) != 3 or min(size) < 1:
        raise SpirvError(f"the local size is {size}: it must have three dimensions of at least 1")
    return LocalSize((size[0], size[1], size[2]), (spec_ids[0], spec_ids[1], spec_ids[2]))
