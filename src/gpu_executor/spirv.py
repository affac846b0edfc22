"""Reads a SPIR-V binary far enough to know whether, and how, Vulkan can run it.

`read_interface` answers what a kernel binds, pushes and can be specialized with. It never
touches Vulkan, and whatever bytes it is given, it returns an answer or raises `SpirvError`.
"Spec" below is the Khronos SPIR-V specification, unified edition.
"""

from __future__ import annotations

import numbers
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpu_executor.errors import SpirvError

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["bool", "int", "uint", "float"]

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
    5612: "AtomicFloat32MinMaxEXT", 5613: "AtomicFloat64MinMaxEXT", 6016: "DotProductInputAll",
    6017: "DotProductInput4x8Bit", 6018: "DotProductInput4x8BitPacked", 6019: "DotProduct",
    6022: "CooperativeMatrixKHR", 6026: "GroupNonUniformRotateKHR", 6033: "AtomicFloat32AddEXT",
    6034: "AtomicFloat64AddEXT",
}
_MODEL_NAMES = {
    0: "Vertex", 1: "TessellationControl", 2: "TessellationEvaluation", 3: "Geometry",
    4: "Fragment", 5: "GLCompute", 6: "Kernel", 5313: "RayGenerationKHR", 5364: "TaskEXT",
    5365: "MeshEXT",
}
# The instructions that are read: their operands, then what may follow ("" is not looked at).
# "r" is the id being defined, "i" any other id, "l" a literal.
_LAYOUTS: dict[int, tuple[str, str, str]] = {
    15: ("OpEntryPoint", "lil", "l"), 16: ("OpExecutionMode", "il", "l"),
    17: ("OpCapability", "l", ""), 20: ("OpTypeBool", "r", ""), 21: ("OpTypeInt", "rll", ""),
    22: ("OpTypeFloat", "rl", ""), 23: ("OpTypeVector", "ril", ""),
    24: ("OpTypeMatrix", "ril", ""), 25: ("OpTypeImage", "ri", ""), 26: ("OpTypeSampler", "r", ""),
    27: ("OpTypeSampledImage", "ri", ""), 28: ("OpTypeArray", "rii", ""),
    29: ("OpTypeRuntimeArray", "ri", ""), 30: ("OpTypeStruct", "r", "i"),
    32: ("OpTypePointer", "rli", ""), 41: ("OpConstantTrue", "ir", ""),
    42: ("OpConstantFalse", "ir", ""), 43: ("OpConstant", "irl", "l"),
    44: ("OpConstantComposite", "ir", "i"), 48: ("OpSpecConstantTrue", "ir", ""),
    49: ("OpSpecConstantFalse", "ir", ""), 50: ("OpSpecConstant", "irl", "l"),
    51: ("OpSpecConstantComposite", "ir", "i"), 52: ("OpSpecConstantOp", "irl", ""),
    54: ("OpFunction", "irli", ""), 56: ("OpFunctionEnd", "", ""),
    59: ("OpVariable", "irl", "i"), 71: ("OpDecorate", "il", "l"),
    72: ("OpMemberDecorate", "ill", "l"), 73: ("OpDecorationGroup", "r", ""),
    331: ("OpExecutionModeId", "il", "i"), 5341: ("OpTypeAccelerationStructureKHR", "r", ""),
}
# fmt: on
_RESOURCE_NAMES = {
    "OpTypeImage": "an image",
    "OpTypeSampler": "a sampler",
    "OpTypeSampledImage": "a combined image and sampler",
    "OpTypeAccelerationStructureKHR": "an acceleration structure",
    "OpTypeArray": "an array of resources",
    "OpTypeRuntimeArray": "an array of resources",
    "OpTypeStruct": "a uniform buffer",
}
_REFUSED_CAPABILITIES = {
    6: "OpenCL SPIR-V is not Vulkan SPIR-V; compile for Vulkan (glslc, or clspv for OpenCL C)",
    # Their variables carry no pointee type, so what they bind could not be told.
    4473: "only typed pointers are read; compile without untyped pointers",
}
# One struct format both reads a constant's default and writes its specialization data.
_FORMATS: dict[tuple[Kind, int], str] = {
    ("bool", 32): "<I",
    **{("int", bits): f"<{code}" for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))},
    **{("uint", bits): f"<{code}" for bits, code in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    **{("float", bits): f"<{code}" for bits, code in ((16, "e"), (32, "f"), (64, "d"))},
}
_MAGIC = 0x07230203
_HEADER_WORDS = 5
_LARGEST_ID_BOUND = 0x3FFFFF  # Spec 2.17, Universal Limits
_GL_COMPUTE = 5
_LOCAL_SIZE, _LOCAL_SIZE_ID, _WORKGROUP_SIZE = 17, 38, 25
# Storage classes (Spec, "Storage Class").
_UNIFORM_CONSTANT, _UNIFORM, _PUSH_CONSTANT, _STORAGE_BUFFER, _PHYSICAL = 0, 2, 9, 12, 5349
# Decorations (Spec, "Decoration"); those with an operand are listed, no other operand matters here.
_SPEC_ID, _BUFFER_BLOCK, _ROW_MAJOR, _ARRAY_STRIDE, _MATRIX_STRIDE, _BUILT_IN = 1, 3, 4, 6, 7, 11
_NON_WRITABLE, _BINDING, _DESCRIPTOR_SET, _OFFSET = 24, 33, 34, 35
_WITH_OPERAND = frozenset(
    (_SPEC_ID, _ARRAY_STRIDE, _MATRIX_STRIDE, _BUILT_IN, _BINDING, _DESCRIPTOR_SET, _OFFSET)
)
_DEEPEST_TYPE = 64  # far beyond what compilers emit, and well within Python's recursion limit
_WHOLE = -1  # the "member" under which an object's own decorations are kept


@dataclass(frozen=True, slots=True)
class SpecConstant:
    """A specialization constant: its SpecId, its type, and the value it has when none is given."""

    spec_id: int
    kind: Kind
    bits: int  # 32 for a bool, which Vulkan passes as a VkBool32
    default: int | float | bool

    def encode(self, value: int | float | bool) -> bytes:
        """`value` as the little-endian bytes that Vulkan's specialization data wants."""
        if not self._is_of_kind(value):
            raise self._misfit(value)
        try:
            return struct.pack(_FORMATS[self.kind, self.bits], value)
        except (struct.error, OverflowError):
            raise self._misfit(value) from None

    def _is_of_kind(self, value: object) -> bool:
        if self.kind == "bool" or isinstance(value, bool):
            return self.kind == "bool" and isinstance(value, bool)
        # NumPy registers its scalars with these too.
        return isinstance(value, numbers.Real if self.kind == "float" else numbers.Integral)

    def _misfit(self, value: object) -> SpirvError:
        fits = {
            "bool": "True or False",
            "int": f"an int in {-1 << (self.bits - 1)} .. {(1 << (self.bits - 1)) - 1}",
            "uint": f"an int in 0 .. {(1 << self.bits) - 1}",
            "float": f"a number in the range of a {self.bits}-bit float",
        }[self.kind]
        found = type(value).__name__
        if isinstance(value, int) and value.bit_length() > 128:  # str() refuses very long ints
            found += f" of {value.bit_length()} bits"
        elif isinstance(value, numbers.Real):
            found += f" {value}"
        return SpirvError(
            f"specialization constant {self.spec_id} is a {self.bits}-bit {self.kind}: "
            f"found {found}; give {fits}"
        )


@dataclass(frozen=True, slots=True)
class LocalSize:
    """Invocations per workgroup, and which of the three a specialization constant sets."""

    size: tuple[int, int, int]
    spec_ids: tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class ShaderInterface:
    """What a compute shader expects of whoever runs it."""

    version: tuple[int, int]
    entry_point: str
    local_size: LocalSize
    bindings: tuple[int, ...]  # storage buffers of descriptor set 0, sorted
    read_only: frozenset[int]  # those bindings through which nothing can be written
    push_constant_bytes: int  # rounded up to a multiple of 4, as VkPushConstantRange wants it
    constants: tuple[SpecConstant, ...]  # sorted by spec_id, each once
    capabilities: frozenset[int]

    def constant(self, spec_id: int) -> SpecConstant | None:
        """The specialization constant of that SpecId, if there is one."""
        return next((c for c in self.constants if c.spec_id == spec_id), None)

    def capability_names(self) -> tuple[str, ...]:
        """The capabilities in words, in the order of their numbers."""
        return tuple(CAPABILITY_NAMES.get(c, f"capability {c}") for c in sorted(self.capabilities))


@dataclass(slots=True)
class _Module:
    """The instructions of `_LAYOUTS`, by name and by the id they define."""

    instructions: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    definitions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    decorations: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def all(self, name: str) -> list[tuple[int, ...]]:
        return self.instructions.get(name, [])

    def definition(self, target: int) -> tuple[str, tuple[int, ...]]:
        return self.definitions.get(target, ("an id that is not defined", ()))

    def decoration(self, target: int, decoration: int, member: int = _WHOLE) -> int | None:
        return self.decorations.get((target, member), {}).get(decoration)


def read_interface(code: bytes) -> ShaderInterface:
    """The interface of the one compute shader in `code`; SpirvError where it cannot be run."""
    version, bound, words = _read_header(code)
    module = _read_module(words, bound)
    capabilities = frozenset(operands[0] for operands in module.all("OpCapability"))
    for capability, advice in _REFUSED_CAPABILITIES.items():
        if capability in capabilities:
            raise SpirvError(f"found the capability {CAPABILITY_NAMES[capability]}: {advice}")
    entry, name = _compute_entry_point(module)
    writable = _storage_buffers(module)
    return ShaderInterface(
        version=version,
        entry_point=name,
        local_size=_local_size(module, entry),
        bindings=tuple(sorted(writable)),
        read_only=frozenset(binding for binding in writable if not writable[binding]),
        push_constant_bytes=_push_constant_bytes(module),
        constants=_spec_constants(module),
        capabilities=capabilities,
    )


def _read_header(code: bytes) -> tuple[tuple[int, int], int, tuple[int, ...]]:
    """Version, id bound and all words (Spec 2.3, Physical Layout)."""
    if _looks_like_text(code):
        raise SpirvError("found source text, not SPIR-V: compile it first (GLSL: with glslc)")
    if len(code) < 4 * _HEADER_WORDS or len(code) % 4:
        raise SpirvError(
            f"found {len(code)} bytes: SPIR-V is at least 20 bytes and a multiple of 4; "
            "is the file complete?"
        )
    words = struct.unpack(f"<{len(code) // 4}I", code)
    magic, version, _generator, bound, schema = words[:_HEADER_WORDS]
    if magic == int.from_bytes(_MAGIC.to_bytes(4, "big"), "little"):
        raise SpirvError("found big-endian SPIR-V: swap the bytes of every word, or recompile")
    if magic != _MAGIC:
        raise SpirvError(f"found the magic number {magic:#010x}, SPIR-V starts with {_MAGIC:#010x}")
    major, minor = version >> 16 & 0xFF, version >> 8 & 0xFF
    if version & 0xFF0000FF or major != 1 or minor > 6:
        raise SpirvError(f"found SPIR-V version word {version:#010x}: 1.0 to 1.6 can be read")
    if not 0 < bound <= _LARGEST_ID_BOUND:
        raise SpirvError(f"found an id bound of {bound}: it must be in 1 .. {_LARGEST_ID_BOUND}")
    if schema:
        raise SpirvError(f"found instruction schema {schema}: only 0 is defined")
    return (major, minor), bound, words


def _looks_like_text(code: bytes) -> bool:
    try:
        text = code.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and all(c >= " " or c in "\t\n\v\f\r" for c in text)


def _instructions(words: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Word offset, opcode and operands of every instruction."""
    offset = _HEADER_WORDS
    while offset < len(words):
        count, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        if not 0 < count <= len(words) - offset:
            raise SpirvError(
                f"the instruction at word {offset} (opcode {opcode}) claims {count} words, "
                f"{len(words) - offset} are left: the module is cut short or damaged"
            )
        yield offset, opcode, words[offset + 1 : offset + count]
        offset += count


def _literal_string(words: tuple[int, ...]) -> str:
    """A nul-terminated UTF-8 string at the start of `words` (Spec 2.2.1, Literal)."""
    raw, nul, _ = struct.pack(f"<{len(words)}I", *words).partition(b"\0")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        nul = b""
    if not nul:
        raise SpirvError("an entry point's name is not nul-terminated UTF-8: recompile the module")
    return text


def _read_module(words: tuple[int, ...], bound: int) -> _Module:
    module = _Module()
    for offset, opcode, operands in _instructions(words):
        if opcode not in _LAYOUTS:
            continue
        name, required, rest = _LAYOUTS[opcode]
        where = f"{name} at word {offset}"
        extra = len(operands) - len(required)
        if extra < 0:
            raise SpirvError(f"{where} lacks {-extra} of its operands: the module is damaged")
        for kind, operand in zip(required + rest * extra, operands, strict=False):
            if kind != "l" and not 0 < operand < bound:
                raise SpirvError(f"{where} uses id {operand}: ids must be in 1 .. {bound - 1}")
            if kind == "r":
                if operand in module.definitions:
                    raise SpirvError(f"{where} defines %{operand}, which is defined already")
                module.definitions[operand] = (name, operands)
        module.instructions.setdefault(name, []).append(operands)
    _collect_decorations(module)
    if len(module.all("OpFunction")) != len(module.all("OpFunctionEnd")):
        raise SpirvError("the module ends inside a function: is the file complete?")
    return module


def _collect_decorations(module: _Module) -> None:
    if module.all("OpDecorationGroup"):  # deprecated, and to ignore them would be to misread
        raise SpirvError("found decoration groups: run spirv-opt --flatten-decorations first")
    plain = [(target, _WHOLE, rest) for target, *rest in module.all("OpDecorate")]
    of_members = [(target, at, rest) for target, at, *rest in module.all("OpMemberDecorate")]
    for target, member, (decoration, *operands) in plain + of_members:
        if decoration in _WITH_OPERAND and not operands:
            raise SpirvError(f"decoration {decoration} of %{target} lacks its operand")
        kept = module.decorations.setdefault((target, member), {})
        kept[decoration] = operands[0] if operands else 1


def _compute_entry_point(module: _Module) -> tuple[int, str]:
    """The id of the function to run, and its name."""
    entries = [(o[0], o[1], _literal_string(o[2:])) for o in module.all("OpEntryPoint")]
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


def _local_size(module: _Module, entry: int) -> LocalSize:
    """A WorkgroupSize constant wins over either execution mode (Spec, BuiltIn WorkgroupSize)."""
    for (target, _), decorations in module.decorations.items():
        if decorations.get(_BUILT_IN) == _WORKGROUP_SIZE:
            name, operands = module.definition(target)
            if not name.endswith("Composite"):
                raise SpirvError(f"the WorkgroupSize %{target} is {name}: give three constants")
            return _local_size_of_ids(module, operands[2:])
    for operands in module.all("OpExecutionModeId"):
        if operands[:2] == (entry, _LOCAL_SIZE_ID):
            return _local_size_of_ids(module, operands[2:])
    for operands in module.all("OpExecutionMode"):
        if operands[:2] == (entry, _LOCAL_SIZE):
            return _checked_local_size(operands[2:], (None,) * len(operands[2:]))
    raise SpirvError("found no local size: declare one (layout(local_size_x = 64) in;)")


def _local_size_of_ids(module: _Module, ids: tuple[int, ...]) -> LocalSize:
    sizes = []
    for target in ids:
        constant = _constant(module, target)
        if constant is None or constant.kind not in ("int", "uint"):
            raise SpirvError(
                f"the local size is given by {module.definition(target)[0]}: "
                "it must be a plain integer or a specialization constant"
            )
        sizes.append(int(constant.value))
    return _checked_local_size(tuple(sizes), tuple(_spec_id(module, target) for target in ids))


def _checked_local_size(size: tuple[int, ...], spec_ids: tuple[int | None, ...]) -> LocalSize:
    if len(size) != 3 or min(size) < 1:
        raise SpirvError(f"found the local size {size}: three dimensions of at least 1 are needed")
    return LocalSize((size[0], size[1], size[2]), (spec_ids[0], spec_ids[1], spec_ids[2]))


class _Constant(NamedTuple):
    kind: Kind
    bits: int
    value: int | float | bool


def _constant(module: _Module, target: int) -> _Constant | None:
    """A scalar constant, with its default where it can be specialized; None for anything else."""
    name, operands = module.definition(target)
    if name.endswith(("ConstantTrue", "ConstantFalse")):
        return _Constant("bool", 32, name.endswith("True"))
    scalar = _scalar(module, operands[0]) if name in ("OpConstant", "OpSpecConstant") else None
    if scalar is None:
        return None
    kind, bits = scalar
    words = operands[2:]
    if len(words) != max(bits // 32, 1):
        raise SpirvError(f"constant %{target} is a {bits}-bit {kind}, but has {len(words)} words")
    raw = struct.pack(f"<{len(words)}I", *words)  # a narrow value is in the low bits (Spec 2.2.1)
    return _Constant(kind, bits, struct.unpack_from(_FORMATS[kind, bits], raw)[0])


def _scalar(module: _Module, type_id: int) -> tuple[Kind, int] | None:
    name, operands = module.definition(type_id)
    kind: Kind = "float"
    if name == "OpTypeInt":
        kind = "int" if operands[2] else "uint"
    elif name != "OpTypeFloat" or len(operands) > 2:  # an encoding: bfloat16 and the like
        return None
    return (kind, operands[1]) if (kind, operands[1]) in _FORMATS else None


def _spec_id(module: _Module, target: int) -> int | None:
    is_spec = module.definition(target)[0].startswith("OpSpecConstant")
    return module.decoration(target, _SPEC_ID) if is_spec else None


def _spec_constants(module: _Module) -> tuple[SpecConstant, ...]:
    found: dict[int, SpecConstant] = {}
    for target in module.definitions:
        spec_id = _spec_id(module, target)
        if spec_id is None:
            continue
        constant = _constant(module, target)
        if constant is None:
            raise SpirvError(f"specialization constant {spec_id} is not a bool, int or float")
        # glslang repeats a SpecId that sets both a local size and a constant, each with its own
        # default: one value given reaches them all, so only the types must agree.
        first = found.setdefault(spec_id, SpecConstant(spec_id, *constant))
        if (first.kind, first.bits) != constant[:2]:
            raise SpirvError(
                f"specialization constant {spec_id} is both a {first.bits}-bit {first.kind} "
                f"and a {constant.bits}-bit {constant.kind}: give it one type"
            )
    return tuple(found[spec_id] for spec_id in sorted(found))


def _pointee(module: _Module, variable: tuple[int, ...]) -> int:
    name, operands = module.definition(variable[0])
    if name != "OpTypePointer":
        raise SpirvError(f"variable %{variable[1]} is of {name}: its type must be a pointer")
    return operands[2]


def _storage_buffers(module: _Module) -> dict[int, bool]:
    """The bindings of set 0, each with whether anything can be written through it."""
    writable: dict[int, bool] = {}
    for variable in module.all("OpVariable"):
        if variable[2] in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
            pointee = _pointee(module, variable)
            binding = _checked_binding(module, variable, pointee)
            writes = not _is_read_only(module, variable[1], pointee)
            writable[binding] = writable.get(binding, False) or writes
    return writable


def _checked_binding(module: _Module, variable: tuple[int, ...], pointee: int) -> int:
    _, target, storage = variable[:3]
    binding = module.decoration(target, _BINDING)
    descriptor_set = module.decoration(target, _DESCRIPTOR_SET)
    if binding is None or descriptor_set is None:
        raise SpirvError(
            f"resource %{target} has no binding: give it layout(set = 0, binding = ...)"
        )
    name = module.definition(pointee)[0]
    is_buffer = storage == _STORAGE_BUFFER or module.decoration(pointee, _BUFFER_BLOCK) is not None
    if name != "OpTypeStruct" or not is_buffer:
        what = _RESOURCE_NAMES.get(name, f"a resource of {name}")
        raise SpirvError(f"binding {binding} is {what}: only single storage buffers are bound")
    if descriptor_set != 0:
        raise SpirvError(f"binding {binding} is in descriptor set {descriptor_set}: use set 0")
    return binding


def _is_read_only(module: _Module, variable: int, block: int) -> bool:
    members = range(len(module.definition(block)[1]) - 1)
    return module.decoration(variable, _NON_WRITABLE) is not None or (
        all(module.decoration(block, _NON_WRITABLE, at) is not None for at in members)
        and len(members) > 0
    )


def _push_constant_bytes(module: _Module) -> int:
    variables = [v for v in module.all("OpVariable") if v[2] == _PUSH_CONSTANT]
    size = max((_size(module, _pointee(module, v)) for v in variables), default=0)
    return -(-size // 4) * 4


def _size(module: _Module, type_id: int, depth: int = 0) -> int:
    """Bytes of a type in a push-constant block; kept, as one type can be a member many times."""
    if depth > _DEEPEST_TYPE:
        raise SpirvError(f"type %{type_id} of the push constants is nested too deep, or in itself")
    if type_id not in module.sizes:
        module.sizes[type_id] = _computed_size(module, type_id, depth)
    return module.sizes[type_id]


def _computed_size(module: _Module, type_id: int, depth: int) -> int:
    name, operands = module.definition(type_id)
    scalar = _scalar(module, type_id)
    if scalar is not None:
        return scalar[1] // 8
    if name == "OpTypeVector":
        return operands[2] * _size(module, operands[1], depth + 1)
    if name == "OpTypeArray":
        return _array_size(module, type_id, operands[2])
    if name == "OpTypeStruct":
        members = enumerate(operands[1:])
        return max((_member_end(module, type_id, at, m, depth) for at, m in members), default=0)
    if name == "OpTypePointer" and operands[1] == _PHYSICAL:
        return 8
    raise SpirvError(f"the push constants hold {name} (%{type_id}), which has no known size there")


def _array_size(module: _Module, type_id: int, length_id: int) -> int:
    length, stride = _constant(module, length_id), module.decoration(type_id, _ARRAY_STRIDE)
    if length is None or length.kind not in ("int", "uint") or length.value < 1 or stride is None:
        raise SpirvError(
            f"array %{type_id} of the push constants needs an ArrayStride and a length that is a "
            "plain or specialization constant of at least 1"
        )
    return int(length.value) * stride


def _member_end(module: _Module, block: int, member: int, type_id: int, depth: int) -> int:
    offset = module.decoration(block, _OFFSET, member)
    if offset is None:
        raise SpirvError(f"member {member} of the push constants' struct %{block} has no Offset")
    name, operands = module.definition(type_id)
    stride = module.decoration(block, _MATRIX_STRIDE, member)
    if name != "OpTypeMatrix" or stride is None:
        return offset + _size(module, type_id, depth + 1)
    # One stride per column, or per row where the rows are contiguous.
    column_name, column = module.definition(operands[1])
    if module.decoration(block, _ROW_MAJOR, member) is not None and column_name == "OpTypeVector":
        return offset + stride * column[2]
    return offset + stride * operands[2]
