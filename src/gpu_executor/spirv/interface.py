"""The interface of a compute shader: its entry point, work-group size and everything it binds."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import remember
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import CodeUses, read_uses
from gpu_executor.spirv.blocks import StorageBlock, UniformBlock, read_blocks
from gpu_executor.spirv.built_ins import WORKGROUP_SIZE, check_built_ins
from gpu_executor.spirv.constants import (
    SpecConstant,
    Values,
    find_spec_id,
    list_operand_ids,
    read_constant,
    read_spec_constants,
)
from gpu_executor.spirv.members import BlockMember
from gpu_executor.spirv.module import BUILT_IN, GL_COMPUTE, Module, read_module
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
INT64 = 11
"""The capability of 64-bit integers."""
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
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38  # Spec, "Execution Mode"
# NumWorkgroups, WorkgroupId, LocalInvocationId, LocalInvocationIndex, NumSubgroups, SubgroupId
_GROUP_BUILT_INS = frozenset((24, 26, 27, 29, 38, 40))


@dataclass(frozen=True, slots=True)
class LocalSize:
    """Invocations per work-group in x, y and z, and the SpecIds that set them, if any.

    The default of a SpecId is that of the constant that the code names with it (`constant_id`).
    glslang declares a second constant of the same SpecId for the work-group size itself, and gives
    it a default of 1.
    """

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
    depends_on_group: bool = False
    """Whether the code reads the size of a work-group, the number of work-groups, or the number of
    a work-group or of an invocation in it."""
    length_ids: frozenset[int] = frozenset()
    """The SpecIds that the lengths of arrays in buffers and push constants depend on."""

    @property
    def has_shared_memory(self) -> bool:
        """Whether the code uses `shared` variables."""
        return bool(self.shared_memory)

    def decode_constants(
        self, encoded: Iterable[tuple[int, bytes]]
    ) -> dict[int, int | float | bool]:
        """Return the values of specialization constants from their bytes, by SpecId."""
        found = {each.spec_id: each for each in self.constants}
        return {spec_id: found[spec_id].decode(value) for spec_id, value in encoded}

    def constant(self, spec_id: int) -> SpecConstant | None:
        """Return the specialization constant with that SpecId; None if there is none."""
        return next((c for c in self.constants if c.spec_id == spec_id), None)

    def list_push_parameters(self, start: int, count: BlockMember | None) -> list[BlockMember]:
        """Return the push constants from byte `start` on, without `count`."""
        return [each for each in self.push_members if each.offset >= start and each != count]

    def capability_names(self) -> tuple[str, ...]:
        """Return the names of the capabilities, in the order of their numbers."""
        return tuple(CAPABILITY_NAMES.get(c, f"capability {c}") for c in sorted(self.capabilities))


_MAX_KNOWN = 512
_known: dict[bytes, ShaderInterface] = {}
"""The interfaces of modules by their SHA-256, with the default values of their constants. Kernels
of many primes and lengths have the same module: those of every operation of this package are 1,700
kernels of 291 modules, and to read a module takes 2.5 ms."""


def read_interface(code: bytes, constants: Values | None = None) -> ShaderInterface:
    """Return the interface of the only compute shader in `code`; raise SpirvError if it cannot be
    run.

    `constants` are the specialization constants that are set, by SpecId: lengths of arrays may
    depend on them. Ids that the code does not have are ignored.
    """
    if not constants:
        return _read_with_defaults(code)
    with contextlib.suppress(SpirvError):  # what is wrong may be a default, which is not used
        found = _read_with_defaults(code)
        if not found.length_ids:
            for each in found.constants:
                if each.spec_id in constants:
                    each.encode(constants[each.spec_id])  # raises if the value does not fit
            return found
    return _read(code, constants)


def _read_with_defaults(code: bytes) -> ShaderInterface:
    digest = hashlib.sha256(code).digest()
    found = _known.get(digest)
    if found is None:
        found = _read(code, {})
        remember(_known, digest, found, _MAX_KNOWN)
    return found


def _read(code: bytes, constants: Values) -> ShaderInterface:
    module = read_module(code)
    capabilities = frozenset(operands[0] for operands in module.all("OpCapability"))
    for capability, advice in _REFUSED_CAPABILITIES.items():
        if capability in capabilities:
            raise SpirvError(
                f"the module declares capability {CAPABILITY_NAMES[capability]}: {advice}"
            )
    entry, name = _find_entry_point(module)
    uses = read_uses(module, entry)
    check_built_ins(module, entry, uses)
    known = read_spec_constants(module)
    local_size = _read_local_size(module, entry)
    blocks = read_blocks(module, uses, _list_values(known, local_size, constants))
    return ShaderInterface(
        version=module.version,
        entry_point=name,
        local_size=local_size,
        bindings=tuple(buffer.binding for buffer in blocks.buffers),
        read_only=blocks.read_only,
        push_constant_bytes=blocks.push_constant_bytes,
        constants=known,
        capabilities=capabilities,
        buffers=blocks.buffers,
        push_members=blocks.push_members,
        uniform=blocks.uniform,
        unusable_members=blocks.unusable_members,
        has_barriers=uses.has_barriers,
        shared_memory=read_shared_memory(module, uses),
        depends_on_group=_depends_on_group(module, uses, local_size),
        length_ids=blocks.length_ids,
    )


def _list_values(
    known: tuple[SpecConstant, ...], local_size: LocalSize, given: Values
) -> dict[int, int | float | bool]:
    """Return the values of specialization constants: those that are given, and the extents of the
    work-group, whose SpecIds may have two constants with different defaults.
    """
    extents = zip(local_size.spec_ids, local_size.size, strict=True)
    values: dict[int, int | float | bool] = {at: size for at, size in extents if at is not None}
    for constant in known:
        if constant.spec_id in given:
            constant.encode(given[constant.spec_id])  # raises if the value does not fit
            values[constant.spec_id] = given[constant.spec_id]
    return values


# --- entry point ---


def _find_entry_point(module: Module) -> tuple[int, str]:
    """Return the id of the entry point's function, and its name."""
    entries = [(o[0], o[1], _decode_string(o[2:])) for o in module.all("OpEntryPoint")]
    compute = [(function, name) for model, function, name in entries if model == GL_COMPUTE]
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


def _depends_on_group(module: Module, uses: CodeUses, local_size: LocalSize) -> bool:
    reads_built_in = any(
        decorations.get(BUILT_IN) in _GROUP_BUILT_INS and uses.mentions(target)
        for (target, _), decorations in module.decorations.items()
    )
    return reads_built_in or _uses_size(module, local_size.spec_ids[0])


def _uses_size(module: Module, spec_id: int | None) -> bool:
    """Return whether the code uses a constant with the SpecId of the work-group's extent in x, or
    a constant, a type or a variable that is made of such a constant.
    """
    if spec_id is None:
        return False
    made_of: dict[int, list[int]] = {}
    for target, (name, operands) in module.definitions.items():
        for each in list_operand_ids(name, operands) or _list_type_ids(name, operands):
            made_of.setdefault(each, []).append(target)
    waiting = [target for target in module.definitions if find_spec_id(module, target) == spec_id]
    seen = set(waiting)
    while waiting:
        target = waiting.pop()
        if target in module.used_in_code:
            return True
        for made in made_of.get(target, ()):
            if made not in seen:
                seen.add(made)
                waiting.append(made)
    return False


def _list_type_ids(name: str, operands: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ids of types and constants that a type or a variable is made of."""
    if name in ("OpTypeArray", "OpTypeRuntimeArray", "OpTypeStruct"):
        return operands[1:]
    if name == "OpTypePointer":
        return operands[2:]
    return operands[:1] if name == "OpVariable" else ()


def _has_size_by_id(module: Module, entry: int) -> bool:
    modes = module.all("OpExecutionModeId")
    return any(operands[:2] == (entry, _LOCAL_SIZE_ID) for operands in modes)


def _read_local_size(module: Module, entry: int) -> LocalSize:
    """Return the local size; a WorkgroupSize constant overrides both execution modes (Spec,
    BuiltIn).
    """
    for (target, _), decorations in module.decorations.items():
        if decorations.get(BUILT_IN) == WORKGROUP_SIZE:  # `check_built_ins` has checked it
            ids = module.definition(target)[1][2:]
            return _read_local_size_ids(module, ids, by_id=_has_size_by_id(module, entry))
    for operands in module.all("OpExecutionModeId"):
        if operands[:2] == (entry, _LOCAL_SIZE_ID):
            return _read_local_size_ids(module, operands[2:], by_id=True)
    for operands in module.all("OpExecutionMode"):
        if operands[:2] == (entry, _LOCAL_SIZE):
            return LocalSize(_check_extents(operands[2:]), (None, None, None))
    raise SpirvError("the entry point has no local size: declare layout(local_size_x = 64) in;")


def _read_local_size_ids(module: Module, ids: tuple[int, ...], *, by_id: bool) -> LocalSize:
    sizes = []
    for target in ids:
        constant = read_constant(module, target)
        if constant is None or constant.kind not in ("int", "uint"):
            raise SpirvError(
                f"the local size is given by {module.definition(target)[0]}: "
                "it must be an integer constant or a specialization constant"
            )
        sizes.append(int(constant.value))
    _check_extents(tuple(sizes))
    spec_ids = tuple(find_spec_id(module, target) for target in ids)
    named = _read_named_sizes(module, {at for at in spec_ids if at is not None})
    x, y, z = (
        size if spec_id is None else named.get(spec_id, size)
        for size, spec_id in zip(sizes, spec_ids, strict=True)
    )
    return LocalSize((x, y, z), (spec_ids[0], spec_ids[1], spec_ids[2]), by_id)


def _read_named_sizes(module: Module, spec_ids: set[int]) -> dict[int, int]:
    """Return the defaults above 1 of the constants with these SpecIds, by SpecId."""
    named: dict[int, int] = {}
    for target in module.definitions if spec_ids else ():
        spec_id = find_spec_id(module, target)
        if spec_id is None or spec_id not in spec_ids:
            continue
        constant = read_constant(module, target)
        if constant is None or constant.value <= 1:  # 0 says: set it; 1 is glslang's
            continue
        if named.setdefault(spec_id, int(constant.value)) != int(constant.value):
            raise SpirvError(
                f"specialization constant {spec_id} sets the local size and is declared with the "
                f"defaults {named[spec_id]} and {int(constant.value)}: declare one default"
            )
    return named


def _check_extents(size: tuple[int, ...]) -> tuple[int, int, int]:
    if len(size) != 3 or min(size) < 1:
        raise SpirvError(f"the local size is {size}: it must have three dimensions of at least 1")
    x, y, z = size
    return x, y, z
