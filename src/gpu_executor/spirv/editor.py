"""`ModuleEditor`: a SPIR-V module whose instructions can be replaced.

The passes that prepare a module for a device that lacks something are written with it:
`specialization.py`, `int64_lowering.py`, `product_lowering.py` and others. They expect modules that
`read_module` accepts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum

from gpu_executor.spirv.instructions import HEADER_WORDS, has_typed_result

Instruction = tuple[int, tuple[int, ...]]
"""An opcode and its operands."""
Expansion = list[Instruction] | None
"""What replaces an instruction; None leaves it as it is."""


class Op(IntEnum):
    """The opcodes that passes read or write (SPIR-V, section 3.42)."""

    UNDEF = 1
    NAME = 5
    MEMBER_NAME = 6
    EXTENSION = 10
    EXTENDED_IMPORT = 11
    EXTENDED = 12
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_VOID = 19
    TYPE_BOOL = 20
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_ARRAY = 28
    TYPE_RUNTIME_ARRAY = 29
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    TYPE_FUNCTION = 33
    CONSTANT_TRUE = 41
    CONSTANT_FALSE = 42
    CONSTANT = 43
    CONSTANT_COMPOSITE = 44
    CONSTANT_NULL = 46
    SPEC_CONSTANT_TRUE = 48
    SPEC_CONSTANT_FALSE = 49
    SPEC_CONSTANT = 50
    SPEC_CONSTANT_COMPOSITE = 51
    SPEC_CONSTANT_OP = 52
    FUNCTION = 54
    FUNCTION_PARAMETER = 55
    FUNCTION_END = 56
    FUNCTION_CALL = 57
    VARIABLE = 59
    LOAD = 61
    STORE = 62
    ACCESS_CHAIN = 65
    IN_BOUNDS_ACCESS_CHAIN = 66
    DECORATE = 71
    MEMBER_DECORATE = 72
    VECTOR_SHUFFLE = 79
    COMPOSITE_CONSTRUCT = 80
    COMPOSITE_EXTRACT = 81
    COMPOSITE_INSERT = 82
    COPY_OBJECT = 83
    U_CONVERT = 113
    S_CONVERT = 114
    BITCAST = 124
    S_NEGATE = 126
    I_ADD = 128
    I_SUB = 130
    I_MUL = 132
    I_ADD_CARRY = 149
    I_SUB_BORROW = 150
    U_MUL_EXTENDED = 151
    S_MUL_EXTENDED = 152
    LOGICAL_NOT_EQUAL = 165
    LOGICAL_OR = 166
    LOGICAL_AND = 167
    LOGICAL_NOT = 168
    SELECT = 169
    I_EQUAL = 170
    I_NOT_EQUAL = 171
    U_GREATER_THAN = 172
    S_GREATER_THAN = 173
    U_GREATER_THAN_EQUAL = 174
    S_GREATER_THAN_EQUAL = 175
    U_LESS_THAN = 176
    S_LESS_THAN = 177
    U_LESS_THAN_EQUAL = 178
    S_LESS_THAN_EQUAL = 179
    SHIFT_RIGHT_LOGICAL = 194
    SHIFT_RIGHT_ARITHMETIC = 195
    SHIFT_LEFT_LOGICAL = 196
    BITWISE_OR = 197
    BITWISE_XOR = 198
    BITWISE_AND = 199
    NOT = 200
    BIT_COUNT = 205
    PHI = 245
    LOOP_MERGE = 246
    SELECTION_MERGE = 247
    LABEL = 248
    BRANCH = 249
    BRANCH_CONDITIONAL = 250
    SWITCH = 251
    RETURN_VALUE = 254
    EXECUTION_MODE_ID = 331
    ELECT = 333
    BALLOT = 339
    BALLOT_BIT_COUNT = 342
    BALLOT_FIND_LSB = 343


_TYPES = frozenset(range(Op.TYPE_VOID, Op.TYPE_FUNCTION + 1))
_DECLARATIONS = _TYPES | frozenset(range(Op.CONSTANT_TRUE, Op.SPEC_CONSTANT_OP + 1)) | {Op.VARIABLE}
_LINES = (8, 317)  # OpLine, OpNoLine
_NAMES = (Op.NAME, Op.MEMBER_NAME, Op.DECORATE, Op.MEMBER_DECORATE)
_STRUCTURAL = (Op.TYPE_STRUCT, Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY)
"""Types that a module may declare several times: their decorations may differ."""


class ModuleEditor:
    """A module in three lists of instructions. Write new ones into them, then `encode` it."""

    def __init__(self, code: bytes) -> None:
        words: tuple[int, ...] = struct.unpack(f"<{len(code) // 4}I", code)
        self._header = list(words[:HEADER_WORDS])
        self.preamble: list[Instruction] = []
        """Capabilities, entry points, names, decorations."""
        self.declarations: list[Instruction] = []
        """Types, constants and variables outside of functions."""
        self.functions: list[Instruction] = []
        self._constants: dict[tuple[int, ...], int] = {}
        self._literals: dict[int, int] = {}
        section = self.preamble
        for opcode, operands in _iter_instructions(words):
            if opcode == Op.FUNCTION:
                section = self.functions
            elif section is self.preamble and opcode in _DECLARATIONS:
                section = self.declarations
            if opcode not in _LINES:
                section.append((opcode, operands))

    def make_id(self) -> int:
        """A new id."""
        self._header[3] += 1
        return self._header[3] - 1

    def encode(self) -> bytes:
        """The module as bytes."""
        words = list(self._header)
        for section in (self.preamble, self.declarations, self.functions):
            for opcode, operands in section:
                words.append((len(operands) + 1) << 16 | opcode)
                words += operands
        return struct.pack(f"<{len(words)}I", *words)

    # --- declarations ---

    def map_types(self) -> dict[int, Instruction]:
        """The declarations of types, by id."""
        return {
            operands[0]: (opcode, operands[1:])
            for opcode, operands in self.declarations
            if opcode in _TYPES
        }

    def find_type(self, opcode: int, *operands: int) -> int:
        """The id of a type that is no struct and no array; declared now if it is new."""
        for each, found in self.declarations:
            if each == opcode and found[1:] == operands:
                return found[0]
        self.declarations.append((opcode, (made := self.make_id(), *operands)))
        return made

    def declare_struct(self, *members: int) -> int:
        """The id of a new struct type."""
        self.declarations.append((Op.TYPE_STRUCT, (made := self.make_id(), *members)))
        return made

    def find_constant(self, type_id: int, *words: int) -> int:
        """The id of a constant of one or several words; declared now if it is new."""
        key = type_id, *words
        if key not in self._constants:
            # A pass asks for the same few of hundreds of constants, thousands of times.
            for opcode, found in self.declarations:
                if opcode == Op.CONSTANT and found[0] == type_id and found[2:] == words:
                    self._constants[key] = found[1]
                    break
            else:
                self._constants[key] = made = self.make_id()
                self.declarations.append((Op.CONSTANT, (type_id, made, *words)))
            if len(words) == 1:
                self._literals[self._constants[key]] = words[0]
        return self._constants[key]

    def find_literal(self, constant: int) -> int | None:
        """The word of a constant that `find_constant` returned; None for other ids."""
        return self._literals.get(constant)

    def find_true(self, type_id: int) -> int:
        """The id of the constant true; declared now if it is new."""
        for opcode, found in self.declarations:
            if opcode == Op.CONSTANT_TRUE:
                return found[1]
        self.declarations.append((Op.CONSTANT_TRUE, (type_id, made := self.make_id())))
        return made

    def find_library(self, name: str) -> int:
        """The id of an imported instruction set; imported now if it is new."""
        raw = name.encode() + b"\0"
        raw += bytes(-len(raw) % 4)
        words = struct.unpack(f"<{len(raw) // 4}I", raw)
        for opcode, found in self.preamble:
            if opcode == Op.EXTENDED_IMPORT and found[1:] == words:
                return found[0]
        # Behind the capabilities and extensions, before the memory model.
        at = sum(opcode in (Op.CAPABILITY, Op.EXTENSION) for opcode, _ in self.preamble)
        self.preamble.insert(at, (Op.EXTENDED_IMPORT, (made := self.make_id(), *words)))
        return made

    def replace_types(self, replaced: dict[int, int]) -> None:
        """Replace the ids of types wherever they occur."""
        get = replaced.get
        for at, (opcode, operands) in enumerate(self.declarations):
            types = _list_type_positions(opcode, len(operands))
            self.declarations[at] = (
                opcode,
                tuple([get(each, each) if n in types else each for n, each in enumerate(operands)]),
            )
        for at, (opcode, operands) in enumerate(self.functions):
            if has_typed_result(opcode):
                changed = (get(operands[0], operands[0]), *operands[1:])
                if opcode == Op.FUNCTION:
                    changed = (*changed[:3], get(changed[3], changed[3]))
                self.functions[at] = (opcode, changed)

    def merge_types(self) -> None:
        """Declare each type once: types that differed may have become equal."""
        merged: dict[int, int] = {0: 0}
        while merged:
            known: dict[tuple[int, tuple[int, ...]], int] = {}
            merged, kept = {}, []
            for opcode, operands in self.declarations:
                if opcode in _TYPES and opcode not in _STRUCTURAL:
                    first = known.setdefault((opcode, operands[1:]), operands[0])
                    if first != operands[0]:
                        merged[operands[0]] = first
                        continue
                kept.append((opcode, operands))
            self.declarations = kept
            self.replace_types(merged)

    # --- functions ---

    def map_result_types(self) -> dict[int, int]:
        """The type id of every result of a function, every constant and every variable."""
        found = {
            operands[1]: operands[0]
            for opcode, operands in self.declarations
            if opcode not in _TYPES
        }
        for opcode, operands in self.functions:
            if has_typed_result(opcode):
                found[operands[1]] = operands[0]
        return found

    def drop_names_of_results(self) -> None:
        """Drop the names and decorations of ids that neither a declaration nor a function defines
        any more. Most modules name no result."""
        named = {operands[0] for opcode, operands in self.preamble if opcode in _NAMES}
        for opcode, operands in self.declarations:
            named.discard(operands[0] if opcode in _TYPES else operands[1])
        if named:
            for opcode, operands in self.functions:
                if opcode == Op.LABEL or has_typed_result(opcode):
                    named.discard(operands[1] if has_typed_result(opcode) else operands[0])
            self.drop_names(named)

    def drop_names(self, gone: set[int]) -> None:
        """Drop the names and decorations of ids that are not defined any more."""
        self.preamble = [
            (opcode, operands)
            for opcode, operands in self.preamble
            if opcode not in _NAMES or operands[0] not in gone
        ]

    def expand(self, expand: Callable[[int, tuple[int, ...]], Expansion]) -> None:
        """Replace instructions of functions by what `expand` returns for them."""
        found: list[Instruction] = []
        for opcode, operands in self.functions:
            expansion = expand(opcode, operands)
            if expansion is None:
                found.append((opcode, operands))
            else:
                found += expansion
        self.functions = found


class InstructionWriter:
    """Appends instructions to `out`, in place of one that a pass expands."""

    def __init__(self, editor: ModuleEditor) -> None:
        self._editor = editor
        self.out: list[Instruction] = []

    def emit(self, opcode: int, type_id: int, *operands: int) -> int:
        """Append an instruction, and return the id of its result."""
        made = self._editor.make_id()
        self.out.append((opcode, (type_id, made, *operands)))
        return made


def _iter_instructions(words: tuple[int, ...]) -> Iterator[Instruction]:
    at = HEADER_WORDS
    while at < len(words):
        count = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1 : at + count]
        at += count


def _list_type_positions(opcode: int, count: int) -> range | tuple[int, ...]:
    """Which operands of a declaration are types."""
    if opcode not in _TYPES:
        return (0,)
    if opcode in (Op.TYPE_VECTOR, Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY):
        return (1,)
    if opcode == Op.TYPE_POINTER:
        return (2,)
    return range(1, count) if opcode in (Op.TYPE_STRUCT, Op.TYPE_FUNCTION) else ()
