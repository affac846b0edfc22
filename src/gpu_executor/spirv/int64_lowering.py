"""Lowering of 64-bit integers: a module that computes with pairs of 32-bit words instead.

A 64-bit integer becomes a vector of two words, the low one first, which has the same layout in
memory. Sums carry by comparison. A product of two integers that were widened from 32 bits, which
the kernels of this package use almost everywhere, is one product of words (`U_MUL_EXTENDED`).

A module must be specialized first: amounts of shifts are constants then.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op

INT64 = 11  # Spec, "Capability"
_FREE = frozenset((
    Op.LOAD, Op.STORE, Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN, Op.VARIABLE, Op.FUNCTION,
    Op.FUNCTION_CALL, Op.COPY_OBJECT, Op.FUNCTION_PARAMETER, Op.COMPOSITE_INSERT, 1, 254,
))  # fmt: skip
"""Instructions that move values of any type: they need no other form."""
_COMPARISONS = {
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


def lower_int64(code: bytes) -> bytes:
    """Return the module without 64-bit integers. It must be specialized. Code that does more with
    them than arithmetic, comparisons and conversions raises `SpirvError`."""
    editor = ModuleEditor(code)
    if (Op.CAPABILITY, (INT64,)) not in editor.preamble:
        return code
    return _Int64Lowering(editor).run()


class _Int64Lowering:
    """Lowers one module."""

    def __init__(self, editor: ModuleEditor) -> None:
        self._editor = editor
        types = editor.map_types()
        self._wide = {
            id_
            for id_, (opcode, operands) in types.items()
            if opcode == Op.TYPE_INT and operands[0] == 64
        }
        self._vectors = {
            id_: operands[1]
            for id_, (opcode, operands) in types.items()
            if opcode == Op.TYPE_VECTOR and operands[0] in self._wide
        }
        """Vectors of 64-bit integers, with their lengths."""
        self._types = types
        self._type_of = editor.map_result_types()
        self._words: dict[int, tuple[int, int]] = {}
        """The low and the high word of each value, where they have ids."""
        self._signed: set[int] = set()
        """Values that were widened from signed words."""
        self._out: list[Instruction] = []
        self._constants: dict[int, int] = {}

    def run(self) -> bytes:
        """Return the lowered module."""
        editor = self._editor
        editor.preamble = [each for each in editor.preamble if each != (Op.CAPABILITY, (INT64,))]
        functions = editor.functions
        self._declare()
        self._zero = self._constant(0)
        for opcode, operands in functions:
            self._lower(opcode, operands)
        editor.functions = self._out
        editor.merge_types()
        return editor.encode()

    # --- declarations ---

    def _declare(self) -> None:
        """Declare pairs of words in place of 64-bit integers."""
        editor = self._editor
        rest = [
            (opcode, operands)
            for opcode, operands in editor.declarations
            if opcode != Op.TYPE_INT or operands[0] not in self._wide
        ]
        first: list[Instruction] = []
        for opcode, literals in (
            (Op.TYPE_BOOL, ()),
            (Op.TYPE_INT, (32, 0)),
            (Op.TYPE_INT, (32, 1)),
        ):
            known = [each for each in rest if each[0] == opcode and each[1][1:] == literals]
            first += known[:1] or [(opcode, (editor.make_id(), *literals))]
        self._bool, self._uint, self._int = (each[1][0] for each in first)
        pair = [e for e in rest if e[0] == Op.TYPE_VECTOR and e[1][1:] == (self._uint, 2)]
        first += pair[:1] or [(Op.TYPE_VECTOR, (editor.make_id(), self._uint, 2))]
        self._pair = first[-1][1][0]
        quads = {}
        for id_, length in self._vectors.items():
            if length != 2:
                raise SpirvError(f"a vector of {length} 64-bit integers has no form in words")
            quads[id_] = (Op.TYPE_VECTOR, (id_, self._uint, 4))
        declarations = list(first)
        for opcode, operands in rest:
            if (opcode, operands) in first:
                continue
            if opcode == Op.TYPE_VECTOR and operands[0] in quads:
                declarations.append(quads[operands[0]])
            elif opcode == Op.CONSTANT and operands[0] in self._wide:
                words = [self._declare_word(declarations, word) for word in operands[2:]]
                self._words[operands[1]] = (words[0], words[1])
                declarations.append((Op.CONSTANT_COMPOSITE, (self._pair, operands[1], *words)))
            else:
                declarations.append((opcode, operands))
        editor.declarations, editor.functions = declarations, []
        editor.replace_types(dict.fromkeys(self._wide, self._pair))
        self._struct = self._find_struct()

    def _declare_word(self, declarations: list[Instruction], word: int) -> int:
        if word not in self._constants:
            made = self._constants[word] = self._editor.make_id()
            declarations.append((Op.CONSTANT, (self._uint, made, word)))
        return self._constants[word]

    def _constant(self, word: int) -> int:
        """A word as a constant."""
        return self._declare_word(self._editor.declarations, word)

    def _find_struct(self) -> int:
        """The type of a product of two words: low and high."""
        for opcode, operands in self._editor.declarations:
            if opcode == Op.TYPE_STRUCT and operands[1:] == (self._uint, self._uint):
                return operands[0]
        made = self._editor.make_id()
        self._editor.declarations.append((Op.TYPE_STRUCT, (made, self._uint, self._uint)))
        return made

    # --- code ---

    def _emit(self, opcode: int, type_id: int, *operands: int) -> int:
        made = self._editor.make_id()
        self._out.append((opcode, (type_id, made, *operands)))
        return made

    def _op(self, opcode: int, *operands: int) -> int:
        """An operation on words."""
        return self._emit(opcode, self._uint, *operands)

    def _split(self, value: int) -> tuple[int, int]:
        """The low and the high word of a value."""
        words = self._words.get(value)
        if words is None:
            low = self._emit(Op.COMPOSITE_EXTRACT, self._uint, value, 0)
            high = self._emit(Op.COMPOSITE_EXTRACT, self._uint, value, 1)
            return low, high
        return words

    def _join(self, result: int, low: int, high: int) -> None:
        """Define a value by its words."""
        self._words[result] = low, high
        self._out.append((Op.COMPOSITE_CONSTRUCT, (self._pair, result, low, high)))

    def _is_wide(self, value: int) -> bool:
        return self._type_of.get(value) in self._wide

    def _lower(self, opcode: int, operands: tuple[int, ...]) -> None:
        if opcode == Op.PHI or opcode == Op.LABEL:
            self._out.append((opcode, self._retype(operands)))
            return
        is_result = len(operands) > 1 and self._type_of.get(operands[1]) == operands[0]
        wide_result = is_result and operands[0] in self._wide
        values = operands[2:] if is_result else operands
        if not wide_result and not any(self._is_wide(each) for each in values):
            if is_result and operands[0] in self._vectors:
                self._lower_vector(opcode, operands)
                return
            if opcode == Op.COMPOSITE_EXTRACT and self._type_of[operands[2]] in self._vectors:
                raise SpirvError("a vector of 64-bit integers is used in an unknown way")
            self._out.append((opcode, self._retype(operands)))
            return
        lower = _LOWERINGS.get(opcode)
        if lower is not None:
            lower(self, opcode, operands)
        elif opcode in _FREE:
            self._out.append((opcode, self._retype(operands)))
        elif opcode == Op.COMPOSITE_CONSTRUCT:
            self._lower_vector(opcode, operands)
        else:
            raise SpirvError(f"instruction {opcode} on 64-bit integers has no form in words")

    def _retype(self, operands: tuple[int, ...]) -> tuple[int, ...]:
        if operands and operands[0] in self._wide:
            return (self._pair, *operands[1:])
        return operands

    def _lower_vector(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower an instruction that makes a vector of 64-bit integers, or any other composite."""
        if opcode == Op.COMPOSITE_CONSTRUCT and operands[0] in self._vectors:
            words = [word for each in operands[2:] for word in self._split(each)]
            self._out.append((opcode, (*operands[:2], *words)))
        elif opcode in _FREE or opcode == Op.COMPOSITE_CONSTRUCT or opcode == Op.COMPOSITE_EXTRACT:
            self._out.append((opcode, operands))
        else:
            raise SpirvError(f"instruction {opcode} on vectors of 64-bit integers has no form")

    def lower_extract(self, opcode: int, operands: tuple[int, ...]) -> None:
        _, result, composite, *indices = operands
        if self._type_of[composite] in self._vectors:
            at = 2 * indices[0]
            shuffled = (self._pair, result, composite, composite, at, at + 1)
            self._out.append((Op.VECTOR_SHUFFLE, shuffled))
        else:
            self._out.append((opcode, self._retype(operands)))

    def lower_widening(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Conversions between widths."""
        type_id, result, value = operands
        if type_id not in self._wide:  # to fewer bits
            low, _ = self._split(value)
            self._narrow(type_id, result, low)
        elif self._is_wide(value):
            self._join(result, *self._split(value))
            if value in self._signed:
                self._signed.add(result)
        else:
            self._widen(result, value, signed=opcode == Op.S_CONVERT)

    def _narrow(self, type_id: int, result: int, low: int) -> None:
        if type_id == self._uint:
            self._out.append((Op.COPY_OBJECT, (type_id, result, low)))
        elif type_id == self._int:
            self._out.append((Op.BITCAST, (type_id, result, low)))
        else:
            self._out.append((Op.U_CONVERT, (type_id, result, low)))

    def _widen(self, result: int, value: int, *, signed: bool) -> None:
        opcode, operands = self._types[self._type_of[value]]
        assert opcode == Op.TYPE_INT
        if operands[0] < 32:
            value = self._emit(Op.S_CONVERT if signed else Op.U_CONVERT, self._uint, value)
        elif operands[1]:
            value = self._op(Op.BITCAST, value)
        if signed:
            self._signed.add(result)
            self._join(
                result, value, self._op(Op.SHIFT_RIGHT_ARITHMETIC, value, self._constant(31))
            )
        else:
            self._join(result, value, self._zero)

    def lower_bitcast(self, opcode: int, operands: tuple[int, ...]) -> None:
        """A bitcast from or to a pair of words, or a change of sign, changes nothing."""
        type_id, result, value = operands
        target = self._pair if type_id in self._wide else type_id
        source = self._type_of[value]
        if target == self._pair and (source in self._wide or source == self._pair):
            self._out.append((Op.COPY_OBJECT, (self._pair, result, value)))
        else:
            self._out.append((opcode, (target, result, value)))

    def _add_words(self, a: int, b: int) -> tuple[int, int | None]:
        """The sum of two words and its carry; None: there is no carry."""
        if self._zero in (a, b):
            return (b if a == self._zero else a), None
        total = self._op(Op.I_ADD, a, b)
        return total, self._carry_if(Op.U_LESS_THAN, total, b)

    def _carry_if(self, comparison: int, a: int, b: int) -> int:
        """1 if a comparison of two words holds, else 0."""
        holds = self._emit(comparison, self._bool, a, b)
        return self._op(Op.SELECT, holds, self._constant(1), self._zero)

    def _add_high(self, *words: int | None) -> int:
        """The sum of words without its carry."""
        total = self._zero
        for word in words:
            if word is None or word == self._zero:
                continue
            total = word if total == self._zero else self._op(Op.I_ADD, total, word)
        return total

    def lower_sum(self, _opcode: int, operands: tuple[int, ...]) -> None:
        _, result, a, b = operands
        (a_low, a_high), (b_low, b_high) = self._split(a), self._split(b)
        low, carry = self._add_words(a_low, b_low)
        self._join(result, low, self._add_high(a_high, b_high, carry))

    def lower_difference(self, _opcode: int, operands: tuple[int, ...]) -> None:
        self._subtract(operands[1], self._split(operands[2]), self._split(operands[3]))

    def lower_negation(self, _opcode: int, operands: tuple[int, ...]) -> None:
        self._subtract(operands[1], (self._zero, self._zero), self._split(operands[2]))

    def _subtract(self, result: int, a: tuple[int, int], b: tuple[int, int]) -> None:
        low = self._op(Op.I_SUB, a[0], b[0])
        borrow = self._carry_if(Op.U_LESS_THAN, a[0], b[0])
        high = a[1] if b[1] == self._zero else self._op(Op.I_SUB, a[1], b[1])
        self._join(result, low, self._op(Op.I_SUB, high, borrow))

    def _multiply_words(self, opcode: int, a: int, b: int) -> tuple[int, int]:
        """The product of two words as two words."""
        product = self._emit(opcode, self._struct, a, b)
        low = self._emit(Op.COMPOSITE_EXTRACT, self._uint, product, 0)
        return low, self._emit(Op.COMPOSITE_EXTRACT, self._uint, product, 1)

    def lower_product(self, _opcode: int, operands: tuple[int, ...]) -> None:
        _, result, a, b = operands
        (a_low, a_high), (b_low, b_high) = self._split(a), self._split(b)
        if a in self._signed and b in self._signed:
            self._join(result, *self._multiply_words(Op.S_MUL_EXTENDED, a_low, b_low))
            return
        low, high = self._multiply_words(Op.U_MUL_EXTENDED, a_low, b_low)
        cross = [
            None if self._zero in (x, y) else self._op(Op.I_MUL, x, y)
            for x, y in ((a_low, b_high), (a_high, b_low))
        ]
        self._join(result, low, self._add_high(high, *cross))

    def lower_extended_product(self, _opcode: int, operands: tuple[int, ...]) -> None:
        """The product of two 64-bit integers as two of them."""
        type_id, result, a, b = operands
        (a_low, a_high), (b_low, b_high) = self._split(a), self._split(b)
        low, carried = self._multiply_words(Op.U_MUL_EXTENDED, a_low, b_low)
        x_low, x_high = self._multiply_words(Op.U_MUL_EXTENDED, a_low, b_high)
        y_low, y_high = self._multiply_words(Op.U_MUL_EXTENDED, a_high, b_low)
        top_low, top_high = self._multiply_words(Op.U_MUL_EXTENDED, a_high, b_high)
        middle, first = self._add_words(carried, x_low)
        middle, second = self._add_words(middle, y_low)
        third, fourth = self._add_words(x_high, y_high)
        # Neither sum overflows twice: the high word of a product is at most 2^32 - 2.
        third, fifth = self._add_words(third, self._add_high(first, second))
        third, sixth = self._add_words(third, top_low)
        top = self._add_high(top_high, fourth, fifth, sixth)
        halves = [
            self._emit(Op.COMPOSITE_CONSTRUCT, self._pair, *words)
            for words in ((low, middle), (third, top))
        ]
        self._out.append((Op.COMPOSITE_CONSTRUCT, (type_id, result, *halves)))

    def lower_bits(self, opcode: int, operands: tuple[int, ...]) -> None:
        words = zip(*(self._split(each) for each in operands[2:]), strict=True)
        low, high = (self._combine_bits(opcode, *each) for each in words)
        self._join(operands[1], low, high)

    def _combine_bits(self, opcode: int, *words: int) -> int:
        if self._zero in words and opcode == Op.BITWISE_AND:
            return self._zero
        if self._zero in words and opcode in (Op.BITWISE_OR, Op.BITWISE_XOR):
            return words[1] if words[0] == self._zero else words[0]
        return self._op(opcode, *words)

    def lower_shift(self, opcode: int, operands: tuple[int, ...]) -> None:
        _, result, value, amount = operands
        if self._is_wide(amount):
            amount = self._split(amount)[0]
        elif self._type_of[amount] != self._uint and self._types[self._type_of[amount]][1][0] == 32:
            amount = self._op(Op.BITCAST, amount)
        low, high = self._split(value)
        known = self._find_literal(amount)
        if known is None:
            self._join(result, *self._shift_by_variable(opcode, low, high, amount))
        else:
            self._join(result, *self._shift_by_constant(opcode, low, high, known))

    def _find_literal(self, value: int) -> int | None:
        """The value of a constant of one word."""
        for word, id_ in self._constants.items():
            if id_ == value:
                return word
        for opcode, operands in self._editor.declarations:
            if opcode == Op.CONSTANT and operands[1] == value and len(operands) == 3:
                return operands[2]
        for opcode, operands in reversed(self._out):
            if len(operands) == 3 and operands[1] == value and opcode == Op.BITCAST:
                return self._find_literal(operands[2])
            if opcode == Op.LABEL:
                break
        return None

    def _shift(self, opcode: int, word: int, bits: int) -> int:
        if bits == 0 or word == self._zero:
            return word
        return self._op(opcode, word, self._constant(bits))

    def _or(self, a: int, b: int) -> int:
        return self._combine_bits(Op.BITWISE_OR, a, b)

    def _shift_by_constant(self, opcode: int, low: int, high: int, bits: int) -> tuple[int, int]:
        right = Op.SHIFT_RIGHT_LOGICAL
        if opcode == Op.SHIFT_LEFT_LOGICAL:
            if bits >= 32:
                return self._zero, self._shift(opcode, low, bits - 32)
            if bits == 0:
                return low, high
            moved = self._shift(right, low, 32 - bits)
            return self._shift(opcode, low, bits), self._or(self._shift(opcode, high, bits), moved)
        if bits == 0:
            return low, high
        if bits >= 32:
            is_signed = opcode == Op.SHIFT_RIGHT_ARITHMETIC
            above = self._shift(opcode, high, 31) if is_signed else self._zero
            return self._shift(opcode, high, bits - 32), above
        moved = self._shift(Op.SHIFT_LEFT_LOGICAL, high, 32 - bits)
        return self._or(self._shift(right, low, bits), moved), self._shift(opcode, high, bits)

    def _shift_by_variable(self, opcode: int, low: int, high: int, amount: int) -> tuple[int, int]:
        """A shift by less than 64 bits. No shift of a word is by 32 bits, which is undefined."""
        within = self._op(Op.BITWISE_AND, amount, self._constant(31))
        rest = self._op(Op.BITWISE_XOR, within, self._constant(31))  # 31 - within
        is_long = self._emit(Op.U_GREATER_THAN, self._bool, amount, self._constant(31))
        one = self._constant(1)
        left = opcode == Op.SHIFT_LEFT_LOGICAL
        near, far = (low, high) if left else (high, low)
        back = Op.SHIFT_RIGHT_LOGICAL if left else Op.SHIFT_LEFT_LOGICAL
        forth = opcode if left else Op.SHIFT_RIGHT_LOGICAL
        moved = self._op(back, self._op(back, near, one), rest)
        shifted = self._op(opcode, near, within)
        mixed = self._op(Op.BITWISE_OR, self._op(forth, far, within), moved)
        empty = self._zero
        if opcode == Op.SHIFT_RIGHT_ARITHMETIC:
            empty = self._op(opcode, high, self._constant(31))
        outer = self._op(Op.SELECT, is_long, empty, shifted)
        inner = self._op(Op.SELECT, is_long, shifted, mixed)
        return (outer, inner) if left else (inner, outer)

    def lower_equality(self, opcode: int, operands: tuple[int, ...]) -> None:
        type_id, result, a, b = operands
        equal = [self._emit(opcode, self._bool, *each) for each in self._pair_words(a, b)]
        join = Op.LOGICAL_AND if opcode == Op.I_EQUAL else Op.LOGICAL_OR
        self._out.append((join, (type_id, result, *equal)))

    def _pair_words(self, a: int, b: int) -> list[tuple[int, int]]:
        return list(zip(self._split(a), self._split(b), strict=True))

    def lower_comparison(self, opcode: int, operands: tuple[int, ...]) -> None:
        type_id, result, a, b = operands
        if opcode in _NEGATED:
            below = self._compare(_NEGATED[Op(opcode)], a, b)
            self._out.append((168, (type_id, result, below)))  # OpLogicalNot
        else:
            self._compare(opcode, a, b, result)

    def _compare(self, opcode: int, a: int, b: int, result: int | None = None) -> int:
        """Whether a < b or a > b."""
        compare, swaps = _COMPARISONS[Op(opcode)]
        (low, high) = self._pair_words(b, a) if swaps else self._pair_words(a, b)
        less = self._emit(compare, self._bool, *high)
        equal = self._emit(Op.I_EQUAL, self._bool, *high)
        below = self._emit(Op.U_LESS_THAN, self._bool, *low)
        both = self._emit(Op.LOGICAL_AND, self._bool, equal, below)
        result = self._editor.make_id() if result is None else result
        self._out.append((Op.LOGICAL_OR, (self._bool, result, less, both)))
        return result

    def lower_selection(self, opcode: int, operands: tuple[int, ...]) -> None:
        _, result, condition, a, b = operands
        low, high = (self._op(opcode, condition, *each) for each in self._pair_words(a, b))
        self._join(result, low, high)


_LOWERINGS: dict[int, Callable[[_Int64Lowering, int, tuple[int, ...]], None]] = {
    Op.COMPOSITE_EXTRACT: _Int64Lowering.lower_extract,
    Op.U_CONVERT: _Int64Lowering.lower_widening,
    Op.S_CONVERT: _Int64Lowering.lower_widening,
    Op.BITCAST: _Int64Lowering.lower_bitcast,
    Op.I_ADD: _Int64Lowering.lower_sum,
    Op.I_SUB: _Int64Lowering.lower_difference,
    Op.S_NEGATE: _Int64Lowering.lower_negation,
    Op.I_MUL: _Int64Lowering.lower_product,
    Op.U_MUL_EXTENDED: _Int64Lowering.lower_extended_product,
    Op.SELECT: _Int64Lowering.lower_selection,
    Op.I_EQUAL: _Int64Lowering.lower_equality,
    Op.I_NOT_EQUAL: _Int64Lowering.lower_equality,
    **dict.fromkeys((*_COMPARISONS, *_NEGATED), _Int64Lowering.lower_comparison),
    **dict.fromkeys(
        (Op.BITWISE_AND, Op.BITWISE_OR, Op.BITWISE_XOR, Op.NOT), _Int64Lowering.lower_bits
    ),
    **dict.fromkeys(
        (Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL, Op.SHIFT_RIGHT_ARITHMETIC),
        _Int64Lowering.lower_shift,
    ),
}
