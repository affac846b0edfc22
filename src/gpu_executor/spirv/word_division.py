"""Division of 64-bit integers that are pairs of 32-bit words: one function, which a module calls.

It computes a bit of the quotient in each of 64 iterations. The kernels of this package do not
divide; kernels of users may.
"""

from __future__ import annotations

from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.word_pairs import Pair, WordPairs

_LOOP_MERGE, _BRANCH, _BRANCH_CONDITIONAL = 246, 249, 250
U_DIV, S_DIV, U_MOD, S_REM, S_MOD = 134, 135, 137, 138, 139  # Spec, section 3.42
DIVISIONS = frozenset((U_DIV, S_DIV, U_MOD, S_REM, S_MOD))


class WordDivision:
    """Calls the function; `define` appends it to the module if it was called."""

    def __init__(self, editor: ModuleEditor, pairs: WordPairs, pair_type: int) -> None:
        self._editor, self._pairs, self._pair = editor, pairs, pair_type
        self._function = 0

    def divide(self, opcode: int, a: Pair, b: Pair) -> Pair:
        """The result of one of `DIVISIONS`; any if b is zero."""
        pairs = self._pairs
        if opcode in (U_DIV, U_MOD):
            quotient, remainder = self._call(a, b)
            return quotient if opcode == U_DIV else remainder
        zero = (pairs.zero, pairs.zero)
        a_negative, b_negative = (pairs.compare(Op.S_LESS_THAN, each, zero) for each in (a, b))
        quotient, remainder = self._call(
            pairs.select(a_negative, pairs.negate(a), a),
            pairs.select(b_negative, pairs.negate(b), b),
        )
        differ = pairs.emit(Op.LOGICAL_NOT_EQUAL, pairs.boolean, a_negative, b_negative)
        if opcode == S_DIV:
            return pairs.select(differ, pairs.negate(quotient), quotient)
        signed = pairs.select(a_negative, pairs.negate(remainder), remainder)
        if opcode == S_REM:
            return signed
        # The remainder of OpSMod has the sign of b.
        is_rest = pairs.equal(Op.I_NOT_EQUAL, remainder, zero)
        moves = pairs.emit(Op.LOGICAL_AND, pairs.boolean, differ, is_rest)
        return pairs.select(moves, pairs.add(signed, b), signed)

    def _call(self, a: Pair, b: Pair) -> tuple[Pair, Pair]:
        """The quotient and the remainder of unsigned integers."""
        pairs = self._pairs
        if not self._function:
            self._function = self._editor.make_id()
            self._result = self._editor.find_type(Op.TYPE_VECTOR, pairs.word, 4)
        joined = [pairs.emit(Op.COMPOSITE_CONSTRUCT, self._pair, *each) for each in (a, b)]
        found = pairs.emit(Op.FUNCTION_CALL, self._result, self._function, *joined)
        words = [pairs.operate(Op.COMPOSITE_EXTRACT, found, at) for at in range(4)]
        return (words[0], words[1]), (words[2], words[3])

    def define(self) -> None:
        """Append the function to the module, if it is called."""
        if not self._function:
            return
        pairs, make_id = self._pairs, self._editor.make_id
        out = pairs.out
        kind = self._editor.find_type(Op.TYPE_FUNCTION, self._result, self._pair, self._pair)
        out.append((Op.FUNCTION, (self._result, self._function, 0, kind)))
        dividend, divisor = (pairs.emit(Op.FUNCTION_PARAMETER, self._pair) for _ in range(2))
        entry, head, body, further, end = (make_id() for _ in range(5))
        out.append((Op.LABEL, (entry,)))
        first, b = (self._split(each) for each in (dividend, divisor))
        out += [(_BRANCH, (head,)), (Op.LABEL, (head,))]
        # The dividend and the remainder are shifted left, and bits of the quotient follow the
        # dividend.
        count, *words = (make_id() for _ in range(5))
        a, rest = (words[0], words[1]), (words[2], words[3])
        phis = len(out)
        goes_on = pairs.emit(Op.U_LESS_THAN, pairs.boolean, count, pairs.make_constant(64))
        out += [
            (_LOOP_MERGE, (end, further, 0)),
            (_BRANCH_CONDITIONAL, (goes_on, body, end)),
            (Op.LABEL, (body,)),
        ]
        next_a, next_rest = self._add_bit(a, rest, b)
        out += [(_BRANCH, (further,)), (Op.LABEL, (further,))]
        next_count = pairs.operate(Op.I_ADD, count, pairs.make_constant(1))
        out += [(_BRANCH, (head,)), (Op.LABEL, (end,))]
        result = pairs.emit(Op.COMPOSITE_CONSTRUCT, self._result, *a, *rest)
        out += [(Op.RETURN_VALUE, (result,)), (Op.FUNCTION_END, ())]
        begun = (pairs.zero, *first, pairs.zero, pairs.zero)
        ended = (next_count, *next_a, *next_rest)
        out[phis:phis] = [
            (Op.PHI, (pairs.word, each, before, entry, after, further))
            for each, before, after in zip((count, *words), begun, ended, strict=True)
        ]

    def _split(self, value: int) -> Pair:
        low = self._pairs.operate(Op.COMPOSITE_EXTRACT, value, 0)
        return low, self._pairs.operate(Op.COMPOSITE_EXTRACT, value, 1)

    def _add_bit(self, a: Pair, rest: Pair, b: Pair) -> tuple[Pair, Pair]:
        """Shift by a bit; the remainder and the next bit of the quotient follow."""
        pairs, left, right = self._pairs, Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL
        top = pairs.operate(right, a[1], pairs.make_constant(31))
        # A remainder of 65 bits is larger than b; the difference has 64.
        is_longer = pairs.emit(Op.S_LESS_THAN, pairs.boolean, rest[1], pairs.zero)
        low, high = pairs.shift_by_constant(left, rest, 1)
        rest = pairs.operate(Op.BITWISE_OR, low, top), high
        not_below = pairs.compare(Op.U_GREATER_THAN_EQUAL, rest, b)
        takes = pairs.emit(Op.LOGICAL_OR, pairs.boolean, is_longer, not_below)
        rest = pairs.select(takes, pairs.subtract(rest, b), rest)
        bit = pairs.operate(Op.SELECT, takes, pairs.make_constant(1), pairs.zero)
        low, high = pairs.shift_by_constant(left, a, 1)
        return (pairs.operate(Op.BITWISE_OR, low, bit), high), rest
