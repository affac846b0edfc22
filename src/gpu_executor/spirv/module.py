"""Parses SPIR-V into a `Module`: instructions by name and by result id, and decorations.

Only the instructions of `_LAYOUTS` are kept; add a row there to read another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_executor.errors import SpirvError

# fmt: off
# Opcode: name, required operands, and the kind of all operands that follow ("" if not checked).
# "r" is the result id, "i" any other id, "l" a literal.
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
_MAGIC = 0x07230203
_HEADER_WORDS = 5
_LARGEST_ID_BOUND = 0x3FFFFF  # Spec 2.17, Universal Limits
# Spec, "Decoration"
SPEC_ID, BUFFER_BLOCK, ROW_MAJOR, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN = 1, 3, 4, 6, 7, 11
NON_WRITABLE, BINDING, DESCRIPTOR_SET, OFFSET = 24, 33, 34, 35
_WITH_OPERAND = frozenset(
    (SPEC_ID, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN, BINDING, DESCRIPTOR_SET, OFFSET)
)
_WHOLE = -1  # the "member" index of decorations of a whole object


@dataclass(slots=True)
class Module:
    """The instructions of `_LAYOUTS` by name and by result id, and all decorations."""

    version: tuple[int, int]
    instructions: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    definitions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    decorations: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    # Cache of `blocks.py`: bytes by type id.
    type_sizes: dict[int, int] = field(default_factory=dict)

    def all(self, name: str) -> list[tuple[int, ...]]:
        """Return the operands of every instruction with that name, in order."""
        return self.instructions.get(name, [])

    def definition(self, target: int) -> tuple[str, tuple[int, ...]]:
        """Return the name and operands of the instruction that defines an id."""
        return self.definitions.get(target, ("an id that is not defined", ()))

    def decoration(self, target: int, decoration: int, member: int = _WHOLE) -> int | None:
        """Return the operand of a decoration, 1 if it has no operand; None if the target lacks
        it.
        """
        return self.decorations.get((target, member), {}).get(decoration)

    def pointee(self, variable: tuple[int, ...]) -> int:
        """Return the type id that a variable's pointer type points to."""
        name, operands = self.definition(variable[0])
        if name != "OpTypePointer":
            raise SpirvError(f"variable %{variable[1]} is of {name}: its type must be a pointer")
        return operands[2]


def read_module(code: bytes) -> Module:
    """Parse the module in `code`; raise SpirvError if it is damaged or not SPIR-V."""
    version, bound, words = _read_header(code)
    module = Module(version)
    for offset, opcode, operands in _iterate_instructions(words):
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


def _read_header(code: bytes) -> tuple[tuple[int, int], int, tuple[int, ...]]:
    """Return the version, the id bound and all words (Spec 2.3, Physical Layout)."""
    if _looks_like_text(code):
        raise SpirvError("found source text, not SPIR-V: compile it first (GLSL with glslc)")
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


def _iterate_instructions(words: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the word offset, the opcode and the operands of every instruction."""
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


def _collect_decorations(module: Module) -> None:
    if module.all("OpDecorationGroup"):  # deprecated; ignoring them would misread the module
        raise SpirvError("found decoration groups: run spirv-opt --flatten-decorations first")
    plain = [(target, _WHOLE, rest) for target, *rest in module.all("OpDecorate")]
    of_members = [(target, at, rest) for target, at, *rest in module.all("OpMemberDecorate")]
    for target, member, (decoration, *operands) in plain + of_members:
        if decoration in _WITH_OPERAND and not operands:
            raise SpirvError(f"decoration {decoration} of %{target} lacks its operand")
        decorations = module.decorations.setdefault((target, member), {})
        decorations[decoration] = operands[0] if operands else 1
