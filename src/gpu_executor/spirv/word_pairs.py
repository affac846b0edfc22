"""Arithmetic on pairs of 32-bit words, as SPIR-V instructions.

A 64-bit integer is a low and a high word. Sums carry by comparison. A product of two integers that
were widened from 32 bits, which the kernels of this package use almost everywhere, is one product
of words (`OpUMulExtended`).
"""

from __future__ import annotations

from gpu_executor.spirv.editor import InstructionWriter, ModuleEditor, Op

Pair = tuple[int, int]
"""The ids of the low and the high word of a 64-bit integer."""
_BELOW = {
    Op.U_LESS_THAN: (Op.U_LESS_THAN, False),
    Op.U_GREATER_THAN: (Op.U_LESS_THAN, True),
    Op.S_LESS_THAN: (Op.S_LESS_THAN, False),
    Op.S_GREATER_THAN: (Op.S_LESS_THAN, True),
}
"""Comparisons of the high words, and whether the operands change places."""
_NEGATED = {
    Op.U_LESS_THAN_EQUAL: Op.U_GREATER_THAN,
    Op.U_GREATER_THAN_EQUAL: Op.U_LESS_THAN,
    Op.S_LESS_THAN_EQUAL: Op.S_GREATER_THAN,
    Op.S_GREATER_THAN_EQUAL: Op.S_LESS_THAN,
}
COMPARISONS = frozenset((*_BELOW, *_NEGATED))
"""The comparisons of integers but those for equality."""


class WordPairs(InstructionWriter):
    """Appends instructions to `out`. Zero words are left out of sums and products."""

    def __init__(self, editor: ModuleEditor) -> None:
        super().__init__(editor)
        self.boolean = editor.find_type(Op.TYPE_BOOL)
        self.word = editor.find_type(Op.TYPE_INT, 32, 0)
        self.zero = self.make_constant(0)
        self._two_words = editor.declare_struct(self.word, self.word)
        self._signed: set[Pair] = set()
        """Pairs that were widened from signed words."""

    def operate(self, opcode: int, *operands: int) -> int:
        """Append an operation on words."""
        return self.emit(opcode, self.word, *operands)

    def make_constant(self, word: int) -> int:
        """A word as a constant."""
        return self._editor.find_constant(self.word, word)

    # --- sums ---

    def widen(self, word: int, *, signed: bool) -> Pair:
        """The 64-bit integer of a word."""
        if not signed:
            return word, self.zero
        sign = self.operate(Op.SHIFT_RIGHT_ARITHMETIC, word, self.make_constant(31))
        self._signed.add((word, sign))
        return word, sign

    def _add_words(self, a: int, b: int) -> tuple[int, int | None]:
        """The sum of two words and its carry; None: there is no carry."""
        if self.zero in (a, b):
            return (b if a == self.zero else a), None
        total = self.operate(Op.I_ADD, a, b)
        return total, self._flag(Op.U_LESS_THAN, total, b)

    def _flag(self, comparison: int, a: int, b: int) -> int:
        """1 if a comparison of two words holds, else 0."""
        holds = self.emit(comparison, self.boolean, a, b)
        return self.operate(Op.SELECT, holds, self.make_constant(1), self.zero)

    def _add_up(self, *words: int | None) -> int:
        """The sum of words without its carry."""
        total = self.zero
        for word in words:
            if word is None or word == self.zero:
                continue
            total = word if total == self.zero else self.operate(Op.I_ADD, total, word)
        return total

    def add(self, a: Pair, b: Pair) -> Pair:
        low, carry = self._add_words(a[0], b[0])
        return low, self._add_up(a[1], b[1], carry)

    def subtract(self, a: Pair, b: Pair) -> Pair:
        low = self.operate(Op.I_SUB, a[0], b[0])
        borrow = self._flag(Op.U_LESS_THAN, a[0], b[0])
        high = a[1] if b[1] == self.zero else self.operate(Op.I_SUB, a[1], b[1])
        return low, self.operate(Op.I_SUB, high, borrow)

    def negate(self, a: Pair) -> Pair:
        return self.subtract((self.zero, self.zero), a)

    # --- products ---

    def _multiply_words(self, opcode: int, a: int, b: int) -> Pair:
        """The product of two words."""
        product = self.emit(opcode, self._two_words, a, b)
        low = self.operate(Op.COMPOSITE_EXTRACT, product, 0)
        return low, self.operate(Op.COMPOSITE_EXTRACT, product, 1)

    def multiply(self, a: Pair, b: Pair) -> Pair:
        if a in self._signed and b in self._signed:
            return self._multiply_words(Op.S_MUL_EXTENDED, a[0], b[0])
        low, high = self._multiply_words(Op.U_MUL_EXTENDED, a[0], b[0])
        cross = [
            None if self.zero in (x, y) else self.operate(Op.I_MUL, x, y)
            for x, y in ((a[0], b[1]), (a[1], b[0]))
        ]
        return low, self._add_up(high, *cross)

    def multiply_extended(self, a: Pair, b: Pair) -> tuple[Pair, Pair]:
        """The 128 bits of a product, the low half first."""
        low, carried = self._multiply_words(Op.U_MUL_EXTENDED, a[0], b[0])
        x_low, x_high = self._multiply_words(Op.U_MUL_EXTENDED, a[0], b[1])
        y_low, y_high = self._multiply_words(Op.U_MUL_EXTENDED, a[1], b[0])
        top_low, top_high = self._multiply_words(Op.U_MUL_EXTENDED, a[1], b[1])
        middle, first = self._add_words(carried, x_low)
        middle, second = self._add_words(middle, y_low)
        third, fourth = self._add_words(x_high, y_high)
        third, fifth = self._add_words(third, self._add_up(first, second))
        third, sixth = self._add_words(third, top_low)
        return (low, middle), (third, self._add_up(top_high, fourth, fifth, sixth))

    # --- bits ---

    def combine_bits(self, opcode: int, *pairs: Pair) -> Pair:
        """And, or, exclusive or, not."""
        low, high = (self._combine_words(opcode, *words) for words in zip(*pairs, strict=True))
        return low, high

    def _combine_words(self, opcode: int, *words: int) -> int:
        if self.zero in words and opcode == Op.BITWISE_AND:
            return self.zero
        if self.zero in words and opcode in (Op.BITWISE_OR, Op.BITWISE_XOR):
            return words[1] if words[0] == self.zero else words[0]
        return self.operate(opcode, *words)

    def _shift_word(self, opcode: int, word: int, bits: int) -> int:
        if bits == 0 or word == self.zero:
            return word
        return self.operate(opcode, word, self.make_constant(bits))

    def shift_by_constant(self, opcode: int, a: Pair, bits: int) -> Pair:
        """A shift by a known number of bits below 64. More are undefined; the rest is taken."""
        bits %= 64
        if bits == 0:
            return a
        low, high = a
        left, right = Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL
        if bits >= 32:
            if opcode == left:
                return self.zero, self._shift_word(left, low, bits - 32)
            is_signed = opcode == Op.SHIFT_RIGHT_ARITHMETIC
            above = self._shift_word(opcode, high, 31) if is_signed else self.zero
            return self._shift_word(opcode, high, bits - 32), above
        if opcode == left:
            moved = self._shift_word(right, low, 32 - bits)
            shifted = self._shift_word(left, high, bits)
            return self._shift_word(left, low, bits), self._or(shifted, moved)
        moved = self._shift_word(left, high, 32 - bits)
        shifted = self._shift_word(right, low, bits)
        return self._or(shifted, moved), self._shift_word(opcode, high, bits)

    def _or(self, a: int, b: int) -> int:
        return self._combine_words(Op.BITWISE_OR, a, b)

    def shift_by_variable(self, opcode: int, a: Pair, amount: int) -> Pair:
        """A shift by less than 64 bits. No shift of a word is by 32 bits, which is undefined."""
        within = self.operate(Op.BITWISE_AND, amount, self.make_constant(31))
        rest = self.operate(Op.BITWISE_XOR, within, self.make_constant(31))  # 31 - within
        is_long = self.emit(Op.U_GREATER_THAN, self.boolean, amount, self.make_constant(31))
        left = opcode == Op.SHIFT_LEFT_LOGICAL
        near, far = a if left else (a[1], a[0])
        back = Op.SHIFT_RIGHT_LOGICAL if left else Op.SHIFT_LEFT_LOGICAL
        forth = opcode if left else Op.SHIFT_RIGHT_LOGICAL
        moved = self.operate(back, self.operate(back, near, self.make_constant(1)), rest)
        shifted = self.operate(opcode, near, within)
        mixed = self.operate(Op.BITWISE_OR, self.operate(forth, far, within), moved)
        empty = self.zero
        if opcode == Op.SHIFT_RIGHT_ARITHMETIC:
            empty = self.operate(opcode, a[1], self.make_constant(31))
        outer = self.operate(Op.SELECT, is_long, empty, shifted)
        inner = self.operate(Op.SELECT, is_long, shifted, mixed)
        return (outer, inner) if left else (inner, outer)

    # --- comparisons ---

    def equal(self, opcode: int, a: Pair, b: Pair) -> int:
        """Whether two integers are equal, or whether they differ."""
        words = [self.emit(opcode, self.boolean, *each) for each in zip(a, b, strict=True)]
        join = Op.LOGICAL_AND if opcode == Op.I_EQUAL else Op.LOGICAL_OR
        return self.emit(join, self.boolean, *words)

    def compare(self, opcode: int, a: Pair, b: Pair) -> int:
        """Whether one of `COMPARISONS` holds."""
        if opcode in _NEGATED:
            below = self.compare(_NEGATED[Op(opcode)], a, b)
            return self.emit(Op.LOGICAL_NOT, self.boolean, below)
        compare, swaps = _BELOW[Op(opcode)]
        low, high = zip(b, a, strict=True) if swaps else zip(a, b, strict=True)
        less = self.emit(compare, self.boolean, *high)
        equal = self.emit(Op.I_EQUAL, self.boolean, *high)
        below = self.emit(Op.U_LESS_THAN, self.boolean, *low)
        both = self.emit(Op.LOGICAL_AND, self.boolean, equal, below)
        return self.emit(Op.LOGICAL_OR, self.boolean, less, both)

    def select(self, condition: int, a: Pair, b: Pair) -> Pair:
        low, high = (
            x if x == y else self.operate(Op.SELECT, condition, x, y)
            for x, y in zip(a, b, strict=True)
        )
        return low, high
