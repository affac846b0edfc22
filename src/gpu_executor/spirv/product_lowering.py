"""Lowering of products and carries of 32-bit words, for interfaces that lack their instructions.

`OpUMulExtended` and `OpSMulExtended` give the two words of a product. Without them a product is one
of 64-bit integers, or four of 16-bit halves. `OpIAddCarry` and `OpISubBorrow` become comparisons.
"""

from __future__ import annotations

from typing import Literal

from gpu_executor.spirv.editor import Instruction, InstructionWriter, ModuleEditor, Op
from gpu_executor.spirv.interface import INT64

ProductForm = Literal["int64", "halves"]
"""How the product of two words is computed: as a 64-bit integer, or from products of 16 bits."""
_INSTRUCTIONS = frozenset((Op.U_MUL_EXTENDED, Op.S_MUL_EXTENDED, Op.I_ADD_CARRY, Op.I_SUB_BORROW))


def lower_products(code: bytes, form: ProductForm) -> bytes:
    """Return the module without products of two words and without carries.

    Those of 64-bit integers stay: `lower_int64` first if they are not to be had either.
    """
    editor = ModuleEditor(code)
    if not any(opcode in _INSTRUCTIONS for opcode, _ in editor.functions):
        return code
    return _ProductLowering(editor, form).run()


class _ProductLowering(InstructionWriter):
    """Lowers one module."""

    def __init__(self, editor: ModuleEditor, form: ProductForm) -> None:
        super().__init__(editor)
        self._form = form
        self._types = editor.map_types()
        self._uint = editor.find_type(Op.TYPE_INT, 32, 0)
        self._bool = editor.find_type(Op.TYPE_BOOL)
        if form == "int64":
            self._wide = editor.find_type(Op.TYPE_INT, 64, 0)
            self._signed_wide = editor.find_type(Op.TYPE_INT, 64, 1)
            if (Op.CAPABILITY, (INT64,)) not in editor.preamble:
                editor.preamble.insert(0, (Op.CAPABILITY, (INT64,)))

    def run(self) -> bytes:
        """Return the lowered module."""
        self._editor.expand(self._expand)
        return self._editor.encode()

    def _expand(self, opcode: int, operands: tuple[int, ...]) -> list[Instruction] | None:
        if opcode not in _INSTRUCTIONS:
            return None
        struct, result, a, b = operands
        word = self._types[struct][1][0]
        if self._types[word] not in ((Op.TYPE_INT, (32, 0)), (Op.TYPE_INT, (32, 1))):
            return self._expand_wide(opcode, operands)
        self.out = []
        if word != self._uint:
            a, b = (self.emit(Op.BITCAST, self._uint, each) for each in (a, b))
        if opcode in (Op.U_MUL_EXTENDED, Op.S_MUL_EXTENDED):
            pair = self._multiply(a, b, signed=opcode == Op.S_MUL_EXTENDED)
        else:
            pair = self._add(a, b) if opcode == Op.I_ADD_CARRY else self._subtract(a, b)
        if word != self._uint:
            pair = (self.emit(Op.BITCAST, word, pair[0]), self.emit(Op.BITCAST, word, pair[1]))
        self.out.append((Op.COMPOSITE_CONSTRUCT, (struct, result, *pair)))
        return self.out

    def _op(self, opcode: int, *operands: int) -> int:
        return self.emit(opcode, self._uint, *operands)

    def _constant(self, word: int) -> int:
        return self._editor.find_constant(self._uint, word)

    def _flag(self, comparison: int, a: int, b: int) -> int:
        """1 if a comparison holds, else 0."""
        holds = self.emit(comparison, self._bool, a, b)
        return self._op(Op.SELECT, holds, self._constant(1), self._constant(0))

    def _add(self, a: int, b: int) -> tuple[int, int]:
        total = self._op(Op.I_ADD, a, b)
        return total, self._flag(Op.U_LESS_THAN, total, b)

    def _subtract(self, a: int, b: int) -> tuple[int, int]:
        return self._op(Op.I_SUB, a, b), self._flag(Op.U_LESS_THAN, a, b)

    def _multiply(self, a: int, b: int, *, signed: bool) -> tuple[int, int]:
        if self._form == "halves":
            return self._multiply_halves(a, b, signed=signed)
        if signed:
            signed_word = self._editor.find_type(Op.TYPE_INT, 32, 1)
            a, b = (self.emit(Op.BITCAST, signed_word, each) for each in (a, b))
            wide = [self.emit(Op.S_CONVERT, self._signed_wide, each) for each in (a, b)]
            product = self.emit(Op.I_MUL, self._signed_wide, *wide)
            product = self.emit(Op.BITCAST, self._wide, product)
        else:
            wide = [self.emit(Op.U_CONVERT, self._wide, each) for each in (a, b)]
            product = self.emit(Op.I_MUL, self._wide, *wide)
        above = self.emit(Op.SHIFT_RIGHT_LOGICAL, self._wide, product, self._constant(32))
        low, high = (self.emit(Op.U_CONVERT, self._uint, each) for each in (product, above))
        return low, high

    def _multiply_halves(self, a: int, b: int, *, signed: bool) -> tuple[int, int]:
        """The product of two words from four products of 16 bits."""
        mask, sixteen = self._constant(0xFFFF), self._constant(16)
        (a0, a1), (b0, b1) = (
            (self._op(Op.BITWISE_AND, each, mask), self._op(Op.SHIFT_RIGHT_LOGICAL, each, sixteen))
            for each in (a, b)
        )
        low, high = self._op(Op.I_MUL, a0, b0), self._op(Op.I_MUL, a1, b1)
        # Below 2^32: (2^16 - 1)^2 + 2^16 - 1 twice, without and with the low half of the first.
        carried = self._op(Op.SHIFT_RIGHT_LOGICAL, low, sixteen)
        first = self._op(Op.I_ADD, self._op(Op.I_MUL, a1, b0), carried)
        below = self._op(Op.BITWISE_AND, first, mask)
        second = self._op(Op.I_ADD, self._op(Op.I_MUL, a0, b1), below)
        for each in (first, second):
            high = self._op(Op.I_ADD, high, self._op(Op.SHIFT_RIGHT_LOGICAL, each, sixteen))
        product = self._op(Op.I_MUL, a, b)
        if signed:
            # A negative word stands for itself minus 2^32: the other one is taken off above.
            for x, y in ((a, b), (b, a)):
                sign = self._op(Op.SHIFT_RIGHT_ARITHMETIC, x, self._constant(31))
                high = self._op(Op.I_SUB, high, self._op(Op.BITWISE_AND, sign, y))
        return product, high

    def _expand_wide(self, opcode: int, operands: tuple[int, ...]) -> list[Instruction] | None:
        """The product of two 64-bit integers as two of them, from products of 32 bits."""
        struct, result, a, b = operands
        wide = self._types[struct][1][0]
        if opcode != Op.U_MUL_EXTENDED or self._types[wide] != (Op.TYPE_INT, (64, 0)):
            return None
        self.out = []
        mask = self._editor.find_constant(wide, 0xFFFFFFFF, 0)
        word = self._constant(32)
        (a0, a1), (b0, b1) = (
            (
                self.emit(Op.BITWISE_AND, wide, each, mask),
                self.emit(Op.SHIFT_RIGHT_LOGICAL, wide, each, word),
            )
            for each in (a, b)
        )
        low, high = (self.emit(Op.I_MUL, wide, *each) for each in ((a0, b0), (a1, b1)))
        carried = self.emit(Op.SHIFT_RIGHT_LOGICAL, wide, low, word)
        first = self.emit(Op.I_ADD, wide, self.emit(Op.I_MUL, wide, a1, b0), carried)
        below = self.emit(Op.BITWISE_AND, wide, first, mask)
        second = self.emit(Op.I_ADD, wide, self.emit(Op.I_MUL, wide, a0, b1), below)
        for each in (first, second):
            above = self.emit(Op.SHIFT_RIGHT_LOGICAL, wide, each, word)
            high = self.emit(Op.I_ADD, wide, high, above)
        product = self.emit(Op.I_MUL, wide, a, b)
        self.out.append((Op.COMPOSITE_CONSTRUCT, (struct, result, product, high)))
        return self.out
