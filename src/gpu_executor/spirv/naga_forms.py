"""Forms of instructions that naga takes, the reader of SPIR-V in wgpu.

- Operands of arithmetic have the type of the result: signs may differ in SPIR-V. Where the
  instruction says whether numbers have a sign, their types say the same: naga goes by the types of
  shifts, divisions, conversions, minima and others, and ignores which instruction it is.
- Operands of subgroup operations are copied first. Naga 29 ends the process where such an operand
  was computed inside of a loop or branch that has ended.
- The bits of a ballot are counted and searched word by word, and one lane is elected by a ballot.
- Buffers are read and written: a call may bind one buffer as an input and as an output, which
  WebGPU allows for equal accesses only.
- The place of a bit has the type of the word that is searched.
- No branch inside of a switch ends the loop around the switch: naga would end the switch.

What has no such form is refused.
"""

from __future__ import annotations

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.ballots import lower_ballot_find_lsb
from gpu_executor.spirv.control_flow import breaks_loop_in_switch
from gpu_executor.spirv.editor import Instruction, InstructionWriter, ModuleEditor, Op
from gpu_executor.spirv.module import BUILT_IN, NON_READABLE, NON_WRITABLE

_RELAXED_PRECISION, _RESTRICT, _ALIASED = 0, 19, 20  # Spec, "Decoration"
_IGNORED = (NON_WRITABLE, NON_READABLE, _RELAXED_PRECISION, _RESTRICT, _ALIASED)
_SUBGROUP = frozenset(range(333, 367))
_FIND_LSB = 73  # GLSL.std.450, FindILsb
_REDUCE, _INCLUSIVE_SCAN = 0, 1  # Spec, "Group Operation"
_SUBGROUP_INVOCATION = 41  # Spec, "BuiltIn"
_INPUT = 1  # Spec, "Storage Class"
_SAME_TYPE = frozenset((
    Op.I_ADD, Op.I_SUB, Op.I_MUL, Op.BITWISE_OR, Op.BITWISE_XOR, Op.BITWISE_AND, Op.S_NEGATE,
    Op.NOT,
))  # fmt: skip
_COMPARISONS = frozenset(range(Op.I_EQUAL, Op.S_LESS_THAN_EQUAL + 1))
_SIGNED = frozenset(
    (Op.S_GREATER_THAN, Op.S_GREATER_THAN_EQUAL, Op.S_LESS_THAN, Op.S_LESS_THAN_EQUAL)
)
_SIGN_OF: dict[int, tuple[int, int]] = {
    Op.SHIFT_RIGHT_LOGICAL: (0, 1), Op.SHIFT_RIGHT_ARITHMETIC: (1, 1),
    Op.U_CONVERT: (0, 1), Op.S_CONVERT: (1, 1),
    109: (0, 0), 110: (1, 0), 111: (1, 1), 112: (0, 1),  # OpConvertFToU, FToS, SToF, UToF
    134: (0, 2), 135: (1, 2), 137: (0, 2), 138: (1, 2),  # OpUDiv, OpSDiv, OpUMod, OpSRem
    202: (1, 1), 203: (0, 1),  # OpBitFieldSExtract, OpBitFieldUExtract
}  # fmt: skip
"""By instruction: whether its integers have a sign, and how many of its operands are of them."""
_SIGN_OF_EXTENDED: dict[int, tuple[int, int]] = {
    38: (0, 2), 39: (1, 2), 41: (0, 2), 42: (1, 2), 44: (0, 3), 45: (1, 3),
    5: (1, 1), 7: (1, 1), 74: (1, 1), 75: (0, 1),
}  # fmt: skip
"""Of GLSL.std.450: UMin, SMin, UMax, SMax, UClamp, SClamp, SAbs, SSign, FindSMsb, FindUMsb."""
_SIGN_OF_POINTER = {
    236: 1, 237: 0, 238: 1, 239: 0,  # OpAtomicSMin, UMin, SMax, UMax
    353: 1, 354: 0, 356: 1, 357: 0,  # OpGroupNonUniformSMin, UMin, SMax, UMax
}  # fmt: skip
"""Instructions whose operands are not converted: their types must have the sign already."""
_S_MOD = 139
"""Naga computes it with floats."""


def rewrite_for_naga(code: bytes) -> bytes:
    """Return the module in the forms above."""
    if breaks_loop_in_switch(code):
        raise SpirvError("a branch inside of a switch ends a loop, which naga does not read so")
    return lower_ballot_find_lsb(_Rewriter(ModuleEditor(code)).run())


class _Rewriter(InstructionWriter):
    """Rewrites one module."""

    def __init__(self, editor: ModuleEditor) -> None:
        super().__init__(editor)
        self._types = editor.map_types()
        self._type_of = editor.map_result_types()
        self._lane_variable = 0
        self._constants = {
            operands[1]
            for opcode, operands in editor.declarations
            if Op.CONSTANT_TRUE <= opcode <= Op.SPEC_CONSTANT_OP
        }

    def run(self) -> bytes:
        """Return the rewritten module."""
        self._editor.expand(self._expand)
        self._editor.preamble = [each for each in self._editor.preamble if not _is_ignored(each)]
        return self._editor.encode()

    def _expand(self, opcode: int, operands: tuple[int, ...]) -> list[Instruction] | None:
        self.out = []
        if opcode in _SIGN_OF:
            return self._match_signs(opcode, operands, 2, *_SIGN_OF[opcode])
        if opcode == Op.EXTENDED:
            return self._expand_extended(operands)
        self._check_sign(opcode, operands)
        if opcode in _SUBGROUP:
            return self._expand_subgroup(opcode, operands)
        if opcode in _SAME_TYPE:
            return self._match_types(opcode, operands, operands[0])
        if opcode in _COMPARISONS:
            return self._match_types(opcode, operands, self._find_compared_type(opcode, operands))
        return None

    def _expand_extended(self, operands: tuple[int, ...]) -> list[Instruction] | None:
        """Rewrite an instruction of GLSL.std.450."""
        if operands[3] in _SIGN_OF_EXTENDED:
            return self._match_signs(Op.EXTENDED, operands, 4, *_SIGN_OF_EXTENDED[operands[3]])
        return self._find_bit(operands) if operands[3] == _FIND_LSB else None

    def _check_sign(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Refuse an instruction that naga would take for another one."""
        sign = _SIGN_OF_POINTER.get(opcode)
        if opcode == _S_MOD or (
            sign is not None and self._set_sign(operands[0], sign) != operands[0]
        ):
            raise SpirvError(f"instruction {opcode} has no form that naga reads as it is meant")

    def _expand_subgroup(self, opcode: int, operands: tuple[int, ...]) -> list[Instruction]:
        if opcode == Op.BALLOT_BIT_COUNT:
            return self._count_bits(operands)
        if opcode == Op.ELECT:
            return self._elect(operands)
        # The scope and an operation on a group come before the operands.
        values = [self._copy(each) for each in operands[2:]]
        self.out.append((opcode, (*operands[:2], *values)))
        return self.out

    def _copy(self, operand: int) -> int:
        """A copy of a value in this block; constants and literals are left."""
        type_id = self._type_of.get(operand)
        if type_id is None or operand in self._constants:
            return operand
        return self.emit(Op.COPY_OBJECT, type_id, operand)

    def _is_integer(self, type_id: int | None) -> bool:
        return type_id is not None and self._types.get(type_id, (0,))[0] == Op.TYPE_INT

    def _find_compared_type(self, opcode: int, operands: tuple[int, ...]) -> int:
        """The type in which two integers are compared."""
        found = self._type_of.get(operands[2], 0)
        if not self._is_integer(found) or opcode in (Op.I_EQUAL, Op.I_NOT_EQUAL):
            return found
        bits, _ = self._types[found][1]
        return self._editor.find_type(Op.TYPE_INT, bits, int(opcode in _SIGNED))

    def _match_types(
        self, opcode: int, operands: tuple[int, ...], type_id: int
    ) -> list[Instruction] | None:
        """Convert operands of the other sign."""
        values = operands[2:]
        if not self._is_integer(type_id) or all(self._type_of[v] == type_id for v in values):
            return None
        cast = [
            v if self._type_of[v] == type_id else self.emit(Op.BITCAST, type_id, v) for v in values
        ]
        self.out.append((opcode, (*operands[:2], *cast)))
        return self.out

    def _set_sign(self, type_id: int, sign: int) -> int:
        """The type of integers of the same width, or of vectors of them, with or without a sign;
        other types stay."""
        opcode, operands = self._types.get(type_id, (0, ()))
        if opcode == Op.TYPE_VECTOR:
            part = self._set_sign(operands[0], sign)
            return self._find_type(Op.TYPE_VECTOR, part, operands[1])
        if opcode == Op.TYPE_INT:
            return self._find_type(Op.TYPE_INT, operands[0], sign)
        return type_id

    def _find_type(self, opcode: int, *operands: int) -> int:
        made = self._editor.find_type(opcode, *operands)
        self._types.setdefault(made, (opcode, operands))
        return made

    def _match_signs(
        self, opcode: int, operands: tuple[int, ...], first: int, sign: int, count: int
    ) -> list[Instruction] | None:
        """Give operands from `first` on, and the result, the sign that the instruction names."""
        values = list(operands)
        for at in range(first, first + count):
            type_id = self._set_sign(self._type_of[values[at]], sign)
            if type_id != self._type_of[values[at]]:
                values[at] = self.emit(Op.BITCAST, type_id, values[at])
        type_id = self._set_sign(operands[0], sign)
        if type_id == operands[0]:
            if tuple(values) == operands:
                return None
            self.out.append((opcode, tuple(values)))
            return self.out
        made = self.emit(opcode, type_id, *values[2:])
        self.out.append((Op.BITCAST, (operands[0], operands[1], made)))
        return self.out

    def _find_bit(self, operands: tuple[int, ...]) -> list[Instruction] | None:
        type_id, result, library, number, word = operands
        if self._type_of[word] == type_id:
            return None
        found = self.emit(Op.EXTENDED, self._type_of[word], library, number, word)
        self.out.append((Op.BITCAST, (type_id, result, found)))
        return self.out

    # --- ballots ---

    def _elect(self, operands: tuple[int, ...]) -> list[Instruction]:
        """Whether this is the first active lane."""
        boolean, result, scope = operands
        word = self._editor.find_type(Op.TYPE_INT, 32, 0)
        quad = self._editor.find_type(Op.TYPE_VECTOR, word, 4)
        ballot = self.emit(Op.BALLOT, quad, scope, self._editor.find_true(boolean))
        first = self.emit(Op.BALLOT_FIND_LSB, word, scope, ballot)
        self.out.append((Op.I_EQUAL, (boolean, result, self._load_lane(word), first)))
        return self.out

    def _count_bits(self, operands: tuple[int, ...]) -> list[Instruction]:
        type_id, result, _, operation, ballot = operands
        words = [self.emit(Op.COMPOSITE_EXTRACT, type_id, ballot, each) for each in range(4)]
        if operation != _REDUCE:
            lane = self._load_lane(type_id)
            words = [
                self.emit(Op.BITWISE_AND, type_id, word, mask)
                for word, mask in zip(
                    words, self._make_masks(type_id, lane, operation), strict=True
                )
            ]
        total = self.emit(Op.BIT_COUNT, type_id, words[0])
        for word in words[1:-1]:
            total = self.emit(Op.I_ADD, type_id, total, self.emit(Op.BIT_COUNT, type_id, word))
        last = self.emit(Op.BIT_COUNT, type_id, words[-1])
        self.out.append((Op.I_ADD, (type_id, result, total, last)))
        return self.out

    def _make_masks(self, type_id: int, lane: int, operation: int) -> list[int]:
        """For each word of a ballot, the bits of the lanes before this one, or up to it."""
        boolean = self._editor.find_type(Op.TYPE_BOOL)
        constant = self._editor.find_constant
        masks = []
        for number in range(4):
            first, end = constant(type_id, 32 * number), constant(type_id, 32 * number + 32)
            before = self.emit(Op.U_LESS_THAN, boolean, lane, first)
            behind = self.emit(Op.U_GREATER_THAN_EQUAL, boolean, lane, end)
            within = self.emit(Op.BITWISE_AND, type_id, lane, constant(type_id, 31))
            bit = self.emit(Op.SHIFT_LEFT_LOGICAL, type_id, constant(type_id, 1), within)
            below = self.emit(Op.I_SUB, type_id, bit, constant(type_id, 1))
            if operation == _INCLUSIVE_SCAN:
                below = self.emit(Op.BITWISE_OR, type_id, below, bit)
            every = constant(type_id, 0xFFFFFFFF)
            mask = self.emit(Op.SELECT, type_id, behind, every, below)
            masks.append(self.emit(Op.SELECT, type_id, before, constant(type_id, 0), mask))
        return masks

    def _load_lane(self, type_id: int) -> int:
        """The number of this invocation in its subgroup."""
        if not self._lane_variable:
            self._lane_variable = self._find_lane_variable(type_id)
        return self.emit(Op.LOAD, type_id, self._lane_variable)

    def _find_lane_variable(self, type_id: int) -> int:
        for opcode, operands in self._editor.preamble:
            if opcode == Op.DECORATE and operands[1:] == (BUILT_IN, _SUBGROUP_INVOCATION):
                return operands[0]
        pointer = self._editor.find_type(Op.TYPE_POINTER, _INPUT, type_id)
        made = self._editor.make_id()
        self._editor.declarations.append((Op.VARIABLE, (pointer, made, _INPUT)))
        self._editor.preamble.append((Op.DECORATE, (made, BUILT_IN, _SUBGROUP_INVOCATION)))
        self._editor.preamble = [
            (opcode, (*operands, made) if opcode == Op.ENTRY_POINT else operands)
            for opcode, operands in self._editor.preamble
        ]
        return made


def _is_ignored(instruction: Instruction) -> bool:
    """Whether an instruction decorates a buffer, or a member of it, as read-only or write-only, or
    something in a way that naga does not know and writes a warning of."""
    opcode, operands = instruction
    at = {int(Op.DECORATE): 1, int(Op.MEMBER_DECORATE): 2}.get(opcode)
    return at is not None and operands[at] in _IGNORED
