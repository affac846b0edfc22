"""Parses SPIR-V into a `Module`: declarations by name and by result id, decorations, functions.

Of the declarations only those of `_LAYOUTS` are kept; add a row there to read another one. Of the
functions' code everything is kept that can take a pointer: all but the `_VALUE_INSTRUCTIONS`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import SpirvError

# fmt: off
# Opcode: name, required operands, and the kind of all operands that follow ("" if not checked).
# "r" is the result id, "i" any other id, "l" a literal.
_LAYOUTS: dict[int, tuple[str, str, str]] = {
    5: ("OpName", "il", ""), 6: ("OpMemberName", "ill", ""), 11: ("OpExtInstImport", "rl", ""),
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
    54: ("OpFunction", "irli", ""), 55: ("OpFunctionParameter", "ir", ""),
    56: ("OpFunctionEnd", "", ""),
    59: ("OpVariable", "irl", "i"), 71: ("OpDecorate", "il", "l"),
    72: ("OpMemberDecorate", "ill", "l"), 73: ("OpDecorationGroup", "r", ""),
    331: ("OpExecutionModeId", "il", "i"), 5341: ("OpTypeAccelerationStructureKHR", "r", ""),
}
# The least number of operands of instructions in functions; 0 for those that are not listed.
_LEAST_OPERANDS: dict[int, int] = {
    12: 4, 57: 3, 61: 3, 62: 2, 63: 2, 64: 3, 65: 3, 66: 3, 67: 4, 70: 4, 83: 3, 124: 3, 169: 5,
    227: 5, 228: 4, 229: 6, 230: 8, 231: 8, 232: 5, 233: 5, **dict.fromkeys(range(234, 243), 6),
    245: 2, 254: 1, 318: 5, 319: 3, 400: 3, 4457: 4, 4458: 3, 5359: 5, 5360: 4, 5398: 7,
    **dict.fromkeys((5614, 5615, 6035), 6),
}
# fmt: on
_FUNCTION, _FUNCTION_PARAMETER, _FUNCTION_END, _VARIABLE = 54, 55, 56, 59
# Instructions that take no pointer: composites, conversions of numbers, arithmetic, bits,
# comparisons, derivatives, subgroup operations, dot products. A pointer is no operand of
# composites (Spec 2.16.1, Universal Validation Rules).
_VALUE_INSTRUCTIONS = np.zeros(1 << 16, dtype=np.bool_)
for _first, _last in (
    (77, 82), (84, 84), (109, 116), (118, 119), (126, 168), (170, 205), (207, 215), (333, 366),
    (4421, 4422), (4428, 4432), (4450, 4455), (4459, 4460), (5361, 5362), (5630, 5631),
):  # fmt: skip
    _VALUE_INSTRUCTIONS[_first : _last + 1] = True
_MAGIC = 0x07230203
_HEADER_WORDS = 5
_LARGEST_ID_BOUND = 0x3FFFFF  # Spec 2.17, Universal Limits
# Spec, "Decoration"
SPEC_ID, BUFFER_BLOCK, ROW_MAJOR, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN = 1, 3, 4, 6, 7, 11
NON_WRITABLE, NON_READABLE, BINDING, DESCRIPTOR_SET, OFFSET = 24, 25, 33, 34, 35
_WITH_OPERAND = frozenset(
    (SPEC_ID, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN, BINDING, DESCRIPTOR_SET, OFFSET)
)
_WHOLE = -1  # the "member" index of decorations of a whole object


@dataclass(slots=True)
class Function:
    """The parameters of a function and its instructions that can take pointers."""

    parameters: list[int] = field(default_factory=list)
    instructions: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class Module:
    """The declarations of `_LAYOUTS` by name and by result id, all decorations, all functions."""

    version: tuple[int, int]
    instructions: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    definitions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    decorations: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    names: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

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

    def name(self, target: int, member: int = _WHOLE) -> str:
        """Return the debug name of an id or of a struct's member; "" if it has none."""
        return _decode_name(self.names.get((target, member), ()))

    def name_of_set(self, target: int) -> str:
        """Return the name of an imported instruction set; "" if the id is anything else."""
        name, operands = self.definition(target)
        return _decode_name(operands[1:]) if name == "OpExtInstImport" else ""

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
    offsets = _find_instructions(words)
    heads = np.frombuffer(code, dtype="<u4")[offsets]
    function: Function | None = None
    for offset in offsets[~_VALUE_INSTRUCTIONS[heads & 0xFFFF]].tolist():
        opcode, operands = (
            words[offset] & 0xFFFF,
            words[offset + 1 : offset + (words[offset] >> 16)],
        )
        if opcode in _LAYOUTS:
            _add_declaration(module, offset, opcode, operands, bound)
            if opcode == _FUNCTION:
                function = module.functions.setdefault(operands[1], Function())
            elif opcode == _FUNCTION_END:
                function = None
            elif opcode == _FUNCTION_PARAMETER and function is not None:
                function.parameters.append(operands[1])
        if function is not None and (opcode not in _LAYOUTS or opcode == _VARIABLE):
            if len(operands) < _LEAST_OPERANDS.get(opcode, 0):
                raise SpirvError(
                    f"the instruction at word {offset} (opcode {opcode}) has {len(operands)} "
                    f"operands, it needs {_LEAST_OPERANDS[opcode]}: the module is damaged"
                )
            function.instructions.append((opcode, operands))
    _collect_decorations(module)
    if len(module.all("OpFunction")) != len(module.all("OpFunctionEnd")):
        raise SpirvError("the module ends inside a function: is the file complete?")
    return module


def _add_declaration(
    module: Module, offset: int, opcode: int, operands: tuple[int, ...], bound: int
) -> None:
    name, required, rest = _LAYOUTS[opcode]
    extra = len(operands) - len(required)
    if extra < 0:
        raise SpirvError(
            f"{name} at word {offset} lacks {-extra} of its operands: the module is damaged"
        )
    for kind, operand in zip(required + rest * extra, operands, strict=False):
        if kind == "l":
            continue
        if not 0 < operand < bound:
            raise SpirvError(
                f"{name} at word {offset} uses id {operand}: ids must be in 1 .. {bound - 1}"
            )
        if kind == "r":
            if operand in module.definitions:
                raise SpirvError(
                    f"{name} at word {offset} defines %{operand}, which is defined already"
                )
            module.definitions[operand] = (name, operands)
    if name == "OpName":
        module.names[operands[0], _WHOLE] = operands[1:]
    elif name == "OpMemberName":
        module.names[operands[0], operands[1]] = operands[2:]
    else:
        module.instructions.setdefault(name, []).append(operands)


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


def _find_instructions(words: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the word offset of every instruction."""
    offset, end, offsets = _HEADER_WORDS, len(words), []
    while offset < end:
        offsets.append(offset)
        count = words[offset] >> 16
        if not 0 < count <= end - offset:
            raise SpirvError(
                f"the instruction at word {offset} (opcode {words[offset] & 0xFFFF}) claims "
                f"{count} words, {end - offset} are left: the module is cut short or damaged"
            )
        offset += count
    return np.array(offsets, dtype=np.int64)


def _decode_name(words: tuple[int, ...]) -> str:
    """Decode a nul-terminated string of debug information, damaged or not."""
    raw = struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0]
    return raw.decode(errors="replace")


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
