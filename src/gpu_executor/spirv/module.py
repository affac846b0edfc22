"""Parses SPIR-V into a `Module`: declarations by name and by result id, decorations, functions.

Of the declarations only those of `DECLARATIONS` are kept; add a row there to read another one. Of
the functions' code everything is kept that can take a pointer.
"""

from __future__ import annotations

import struct
from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.instructions import (
    DECLARATIONS,
    FUNCTION,
    FUNCTION_PARAMETER,
    HEADER_WORDS,
    read_instructions,
)

_NAME, _MEMBER_NAME, _DECORATE, _MEMBER_DECORATE = 5, 6, 71, 72
# Name and position of the result id by opcode.
_KEPT = {opcode: (name, kinds.find("r")) for opcode, (name, kinds, _) in DECLARATIONS.items()}
_MAGIC = 0x07230203
_LARGEST_ID_BOUND = 0x3FFFFF  # Spec 2.17, Universal Limits
# Spec, "Decoration"
SPEC_ID, BUFFER_BLOCK, ROW_MAJOR, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN = 1, 3, 4, 6, 7, 11
NON_WRITABLE, NON_READABLE, BINDING, DESCRIPTOR_SET, OFFSET = 24, 25, 33, 34, 35
# The number of operands by decoration. Without operands: also Block, ColMajor, Restrict, Aliased,
# Volatile and Coherent.
_OPERANDS = {
    **dict.fromkeys((BUFFER_BLOCK, ROW_MAJOR, NON_WRITABLE, NON_READABLE, 2, 5, 19, 20, 21, 23), 0),
    **dict.fromkeys((SPEC_ID, ARRAY_STRIDE, MATRIX_STRIDE, BUILT_IN), 1),
    **dict.fromkeys((BINDING, DESCRIPTOR_SET, OFFSET), 1),
}
GL_COMPUTE = 5  # Spec, "Execution Model"
WHOLE = -1  # the "member" index of decorations of a whole object


@dataclass(slots=True)
class Function:
    """The parameters of a function and its instructions that can take pointers."""

    parameters: list[int] = field(default_factory=list)
    instructions: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class Module:
    """The `DECLARATIONS` by name and by result id, all decorations, all functions."""

    version: tuple[int, int]
    instructions: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    definitions: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    decorations: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    names: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    used_in_code: frozenset[int] = frozenset()
    """The declared constants, types and variables that the code of functions uses."""

    def add(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Add one of the `DECLARATIONS`."""
        if opcode == _DECORATE:
            self._decorate(operands[0], WHOLE, operands[1:])
        elif opcode == _MEMBER_DECORATE:
            self._decorate(operands[0], operands[1], operands[2:])
        elif opcode == _NAME:
            self.names[operands[0], WHOLE] = operands[1:]
        elif opcode == _MEMBER_NAME:
            self.names[operands[0], operands[1]] = operands[2:]
        else:
            name, result = _KEPT[opcode]
            if result >= 0:
                self.definitions[operands[result]] = (name, operands)
            self.instructions.setdefault(name, []).append(operands)

    def _decorate(self, target: int, member: int, rest: tuple[int, ...]) -> None:
        decoration = rest[0]
        expected = _OPERANDS.get(decoration, len(rest) - 1)
        if len(rest) - 1 != expected:
            raise SpirvError(
                f"decoration {decoration} of %{target} has {len(rest) - 1} operands, it takes "
                f"{expected}: the module is damaged"
            )
        decorations = self.decorations.setdefault((target, member), {})
        operand = rest[1] if len(rest) > 1 else 1
        if decoration in _OPERANDS and decorations.get(decoration, operand) != operand:
            raise SpirvError(
                f"%{target} has decoration {decoration} with {decorations[decoration]} and again "
                f"with {operand}: it may have one; the module is damaged"
            )
        decorations[decoration] = operand

    def all(self, name: str) -> list[tuple[int, ...]]:
        """Return the operands of every instruction with that name, in order."""
        return self.instructions.get(name, [])

    def definition(self, target: int) -> tuple[str, tuple[int, ...]]:
        """Return the name and operands of the instruction that defines an id."""
        return self.definitions.get(target, ("an id that is not defined", ()))

    def decoration(self, target: int, decoration: int, member: int = WHOLE) -> int | None:
        """Return the operand of a decoration, 1 if it has no operand; None if the target lacks
        it.
        """
        return self.decorations.get((target, member), {}).get(decoration)

    def name(self, target: int, member: int = WHOLE) -> str:
        """Return the debug name of an id or of a struct's member; "" if it has none."""
        words = self.names.get((target, member))
        return _decode_name(words) if words else ""

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
    function = Function()
    add = module.add
    offsets, module.used_in_code = read_instructions(code, words, bound)
    for offset in offsets:
        head = words[offset]
        opcode, operands = head & 0xFFFF, words[offset + 1 : offset + (head >> 16)]
        if opcode not in DECLARATIONS:
            function.instructions.append((opcode, operands))
            continue
        add(opcode, operands)
        if opcode == FUNCTION:
            function = module.functions[operands[1]] = Function()
        elif opcode == FUNCTION_PARAMETER:
            function.parameters.append(operands[1])
    if module.all("OpDecorationGroup"):  # deprecated; ignoring them would misread the module
        raise SpirvError("found decoration groups: run spirv-opt --flatten-decorations first")
    return module


def _read_header(code: bytes) -> tuple[tuple[int, int], int, tuple[int, ...]]:
    """Return the version, the id bound and all words (Spec 2.3, Physical Layout)."""
    if _looks_like_text(code):
        raise SpirvError("found source text, not SPIR-V: compile it first (GLSL with glslc)")
    if len(code) < 4 * HEADER_WORDS or len(code) % 4:
        raise SpirvError(
            f"found {len(code)} bytes: SPIR-V is at least 20 bytes and a multiple of 4; "
            "is the file complete?"
        )
    words = struct.unpack(f"<{len(code) // 4}I", code)
    magic, version, _generator, bound, schema = words[:HEADER_WORDS]
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


def _decode_name(words: tuple[int, ...]) -> str:
    """Decode a nul-terminated string of debug information, damaged or not."""
    raw = struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0]
    return raw.decode(errors="replace")
