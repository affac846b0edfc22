"""Lowering of 64-bit integers: a module that computes with pairs of 32-bit words instead.

A 64-bit integer becomes a vector of two words, the low one first, and a vector of two such integers
one of four words: their layouts in memory are the same. `word_pairs.py` and `word_division.py` have
the arithmetic.

A module must be specialized first: amounts of shifts are constants then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op
from gpu_executor.spirv.instructions import has_typed_result, list_values
from gpu_executor.spirv.interface import INT64
from gpu_executor.spirv.word_division import DIVISIONS, WordDivision
from gpu_executor.spirv.word_pairs import COMPARISONS, Pair, WordPairs

Operand = Pair | int
"""A 64-bit integer as two words, or the id of any other scalar."""
_CHAINS = (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN)
_MOVES = frozenset((
    Op.UNDEF, Op.LOAD, Op.STORE, Op.VARIABLE, Op.FUNCTION, Op.FUNCTION_PARAMETER, Op.FUNCTION_CALL,
    Op.RETURN_VALUE, Op.PHI, Op.COPY_OBJECT, 400,  # OpCopyLogical
))  # fmt: skip
"""Instructions that move values of any type: they need no other form."""
_LANE_MOVES = frozenset((337, 338, 345, 346, 347, 348, 359, 360, 361, 365, 366))
"""Subgroup operations that treat each word alone: broadcasts, shuffles, and, or, exclusive or."""
_BITS = (Op.BITWISE_AND, Op.BITWISE_OR, Op.BITWISE_XOR, Op.NOT)
_SHIFTS = (Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL, Op.SHIFT_RIGHT_ARITHMETIC)
_EQUALITIES = (Op.I_EQUAL, Op.I_NOT_EQUAL)
_U_MIN, _S_MIN, _U_MAX, _S_MAX, _U_CLAMP, _S_CLAMP = 38, 39, 41, 42, 44, 45  # GLSL.std.450
_CHOICES = {
    _U_MIN: Op.U_LESS_THAN,
    _S_MIN: Op.S_LESS_THAN,
    _U_MAX: Op.U_GREATER_THAN,
    _S_MAX: Op.S_GREATER_THAN,
}
"""Which of two integers a minimum or maximum is: the first if this holds."""
_S_ABS, _S_SIGN = 5, 7  # GLSL.std.450
_CLAMPS = {_U_CLAMP: (_U_MAX, _U_MIN), _S_CLAMP: (_S_MAX, _S_MIN)}
_WRAP_DECORATIONS = (4469, 4470)  # NoSignedWrap, NoUnsignedWrap: hints
_UNKNOWN = {
    **dict.fromkeys((109, 110, 111, 112), "conversion from or to floats"),
    **dict.fromkeys((117, 120), "conversion of addresses"),
    **dict.fromkeys(range(227, 243), "atomic operation"),
    **dict.fromkeys(range(349, 365), "arithmetic of subgroups"),
    **dict.fromkeys(range(201, 206), "bit field operation"),
    Op.SWITCH: "switch",
    Op.EXTENDED: "function of GLSL",
}  # fmt: skip
"""What cannot be lowered, in words."""


def lower_int64(code: bytes) -> bytes:
    """Return the module without 64-bit integers. It must be specialized. What has no form in words,
    such as an atomic operation, raises `SpirvError`."""
    editor = ModuleEditor(code)
    if (Op.CAPABILITY, (INT64,)) not in editor.preamble:
        return code
    return _Int64Lowering(editor).run()


class _Int64Lowering:
    """Lowers one module."""

    def __init__(self, editor: ModuleEditor) -> None:
        self._editor = editor
        self._types = editor.map_types()
        self._type_of = editor.map_result_types()
        self._wide = {
            type_id
            for type_id, (opcode, operands) in self._types.items()
            if opcode == Op.TYPE_INT and operands[0] == 64
        }
        self._vectors = set[int]()
        """Vectors of two 64-bit integers."""
        for type_id, (opcode, operands) in self._types.items():
            if opcode == Op.TYPE_VECTOR and operands[0] in self._wide:
                if operands[1] != 2:
                    raise SpirvError(f"a vector of {operands[1]} 64-bit integers {_NO_FORM}")
                self._vectors.add(type_id)
        self._words: dict[int, Pair] = {}
        """The words of values, where they have ids."""
        self._pointers: dict[int, Pair] = {}
        """Pointers to the words of a part of a vector in memory."""
        self._literals: dict[int, int] = {}
        """The values of 32-bit and narrower constants."""

    def run(self) -> bytes:
        """Return the lowered module."""
        editor = self._editor
        editor.preamble = [each for each in editor.preamble if not self._is_dropped(*each)]
        functions, editor.functions = editor.functions, []
        self._declare()
        editor.functions = self._pairs.out
        for opcode, operands in functions:
            self._lower(opcode, operands)
        self._division.define()
        editor.merge_types()
        return editor.encode()

    def _is_dropped(self, opcode: int, operands: tuple[int, ...]) -> bool:
        """Whether the preamble needs an instruction no more."""
        if opcode == Op.DECORATE:
            return operands[1] in _WRAP_DECORATIONS
        return (opcode == Op.NAME and operands[0] in self._wide) or (
            (opcode, operands) == (Op.CAPABILITY, (INT64,))
        )

    # --- declarations ---

    def _declare(self) -> None:
        """Declare pairs of words in place of 64-bit integers."""
        editor = self._editor
        declared = editor.declarations
        # The types of words and pairs, and all constants of words, come first.
        basic = ((Op.TYPE_BOOL, ()), (Op.TYPE_INT, (32, 0)), (Op.TYPE_INT, (32, 1)))
        editor.declarations = [each for each in declared if (each[0], each[1][1:]) in basic]
        self._pairs = pairs = WordPairs(editor)
        self._int = editor.find_type(Op.TYPE_INT, 32, 1)
        editor.declarations += [each for each in declared if self._is_pair_type(*each)]
        self._pair = editor.find_type(Op.TYPE_VECTOR, pairs.word, 2)
        self._division = WordDivision(editor, pairs, self._pair)
        first = set(editor.declarations)
        for opcode, operands in declared:
            if opcode != Op.CONSTANT:
                continue
            if len(operands) == 3:
                self._literals[operands[1]] = operands[2]
            if operands[0] in self._wide:
                low, high = (pairs.make_constant(word) for word in operands[2:])
                self._words[operands[1]] = low, high
        for opcode, operands in declared:
            is_wide_type = opcode == Op.TYPE_INT and operands[0] in self._wide
            if (opcode, operands) not in first and not is_wide_type:
                editor.declarations.append(self._lower_declaration(opcode, operands))
        editor.replace_types(dict.fromkeys(self._wide, self._pair))

    def _is_pair_type(self, opcode: int, operands: tuple[int, ...]) -> bool:
        return opcode == Op.TYPE_VECTOR and operands[1:] == (self._pairs.word, 2)

    def _lower_declaration(self, opcode: int, operands: tuple[int, ...]) -> Instruction:
        if opcode == Op.CONSTANT and operands[0] in self._wide:
            return Op.CONSTANT_COMPOSITE, (self._pair, operands[1], *self._words[operands[1]])
        if opcode == Op.CONSTANT_COMPOSITE and operands[0] in self._vectors:
            words = tuple(word for part in operands[2:] for word in self._split_constant(part))
            return opcode, (*operands[:2], *words)
        if operands[0] in self._vectors and opcode == Op.TYPE_VECTOR:
            return opcode, (operands[0], self._pairs.word, 4)
        return opcode, operands

    def _split_constant(self, constant: int) -> Pair:
        """The words of a constant; those of a null or undefined one are zero."""
        return self._words.get(constant, (self._pairs.zero, self._pairs.zero))

    # --- values ---

    def _is_wide(self, value: int) -> bool:
        return self._type_of.get(value) in self._wide

    def _is_vector(self, value: int) -> bool:
        return self._type_of.get(value) in self._vectors

    def _split(self, value: int) -> Pair:
        """The words of a 64-bit integer."""
        words = self._words.get(value)
        if words is None:
            low = self._pairs.operate(Op.COMPOSITE_EXTRACT, value, 0)
            return low, self._pairs.operate(Op.COMPOSITE_EXTRACT, value, 1)
        return words

    def _join(self, result: int, words: Pair) -> None:
        """Define a 64-bit integer by its words."""
        self._words[result] = words
        self._pairs.out.append((Op.COMPOSITE_CONSTRUCT, (self._pair, result, *words)))

    def _rename(self, type_id: int, result: int, made: int) -> None:
        """Define a result as what the last instruction made, or as an earlier value."""
        out = self._pairs.out
        if out and len(out[-1][1]) > 1 and out[-1][1][:2] == (type_id, made):
            out[-1] = (out[-1][0], (type_id, result, *out[-1][1][2:]))
        else:
            out.append((Op.COPY_OBJECT, (type_id, result, made)))

    def _retype(self, operands: tuple[int, ...]) -> tuple[int, ...]:
        return (self._pair, *operands[1:]) if operands[0] in self._wide else operands

    def _to_word(self, value: int) -> int:
        """An index or an amount of any width as a word."""
        if self._is_wide(value):
            return self._split(value)[0]
        bits = self._types[self._type_of[value]][1][0]
        if value in self._literals:
            return self._pairs.make_constant(self._literals[value])
        if self._type_of[value] == self._pairs.word:
            return value
        return self._pairs.operate(Op.BITCAST if bits == 32 else Op.U_CONVERT, value)

    # --- code ---

    def _lower(self, opcode: int, operands: tuple[int, ...]) -> None:
        values = list_values(opcode, operands)
        type_id = operands[0] if has_typed_result(opcode) else 0
        if any(value in self._pointers for value in values):
            self._lower_access(opcode, operands)
        elif opcode in _CHAINS:
            self._lower_chain(opcode, operands)
        elif not (
            type_id in self._wide
            or type_id in self._vectors
            or any(self._is_wide(value) or self._is_vector(value) for value in values)
        ):
            self._pairs.out.append((opcode, operands))
        elif opcode in _MOVES or opcode in _LANE_MOVES:
            self._pairs.out.append((opcode, self._retype(operands)))
            if opcode == Op.COPY_OBJECT and operands[2] in self._words:
                self._words[operands[1]] = self._words[operands[2]]
        elif opcode in _COMPOSITES:
            _COMPOSITES[opcode](self, opcode, operands)
        elif opcode == Op.BITCAST:
            self._lower_bitcast(opcode, operands)
        elif opcode in (Op.U_MUL_EXTENDED, Op.I_ADD_CARRY, Op.I_SUB_BORROW):
            self._lower_extended(opcode, operands)
        else:
            self._lower_arithmetic(opcode, operands)

    # --- memory ---

    def _lower_chain(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower a pointer: indices become words, and a part of a vector has a pointer to each of
        its words."""
        type_id, result, base, *indices = operands
        indices = [self._to_word(each) if self._is_wide(each) else each for each in indices]
        storage, pointee = self._types[type_id][1]
        if pointee in self._wide and self._find_indexed_type(base, indices) in self._vectors:
            pointer = self._editor.find_type(Op.TYPE_POINTER, storage, self._pairs.word)
            first = self._double(indices[-1])
            second = self._pairs.operate(Op.I_ADD, first, self._pairs.make_constant(1))
            low, high = (
                self._pairs.emit(opcode, pointer, base, *indices[:-1], each)
                for each in (first, second)
            )
            self._pointers[result] = low, high
        else:
            self._pairs.out.append((opcode, (type_id, result, base, *indices)))

    def _double(self, index: int) -> int:
        if index in self._literals:
            return self._pairs.make_constant(2 * self._literals[index])
        return self._pairs.operate(Op.I_MUL, self._to_word(index), self._pairs.make_constant(2))

    def _find_indexed_type(self, base: int, indices: Sequence[int]) -> int:
        """The type that the last index selects a part of."""
        found = self._types[self._type_of[base]][1][1]
        for index in indices[:-1]:
            opcode, operands = self._types[found]
            found = operands[self._literals[index] if opcode == Op.TYPE_STRUCT else 0]
        return found

    def _lower_access(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower a load or store of a part of a vector."""
        pairs = self._pairs
        if opcode == Op.LOAD and len(operands) == 3:
            low, high = (pairs.operate(opcode, each) for each in self._pointers[operands[2]])
            self._join(operands[1], (low, high))
        elif opcode == Op.STORE and len(operands) == 2 and operands[0] in self._pointers:
            words = self._split(operands[1])
            pointers = self._pointers[operands[0]]
            pairs.out += [(opcode, each) for each in zip(pointers, words, strict=True)]
        else:
            raise SpirvError(
                f"a pointer to a part of a vector of 64-bit integers, used by more than a plain "
                f"load or store (instruction {opcode}), {_NO_FORM}"
            )

    # --- composites ---

    def _has_parts(self, value: int) -> bool:
        return self._types[self._type_of[value]][0] == Op.TYPE_VECTOR

    def _list_parts(self, value: int) -> list[Operand]:
        """The two parts of a vector of 64-bit integers or of other scalars."""
        if not self._is_vector(value):
            scalar = self._types[self._type_of[value]][1][0]
            return [self._pairs.emit(Op.COMPOSITE_EXTRACT, scalar, value, at) for at in (0, 1)]
        words = [self._pairs.operate(Op.COMPOSITE_EXTRACT, value, at) for at in range(4)]
        return [(words[0], words[1]), (words[2], words[3])]

    def _lower_construct(self, opcode: int, operands: tuple[int, ...]) -> None:
        type_id, result, *parts = operands
        if type_id in self._vectors:
            words = [word for part in parts for word in self._split_part(part)]
            self._pairs.out.append((opcode, (type_id, result, *words)))
        else:
            self._pairs.out.append((opcode, operands))

    def _split_part(self, part: int) -> list[int]:
        """The words of a part from which a vector is made: a 64-bit integer, or a whole vector."""
        return [part] if self._is_vector(part) else list(self._split(part))

    def _lower_extract(self, opcode: int, operands: tuple[int, ...]) -> None:
        _, result, composite, *indices = operands
        if self._is_vector(composite):
            at = 2 * indices[0]
            low, high = (self._pairs.operate(opcode, composite, each) for each in (at, at + 1))
            self._join(result, (low, high))
            return
        inner = self._follow(self._type_of[composite], indices[:-1])
        if inner in self._vectors:
            at = 2 * indices[-1]
            low, high = (
                self._pairs.operate(opcode, composite, *indices[:-1], each) for each in (at, at + 1)
            )
            self._join(result, (low, high))
        else:
            self._pairs.out.append((opcode, self._retype(operands)))

    def _follow(self, type_id: int, indices: Sequence[int]) -> int:
        """The type of a part of a composite."""
        for index in indices:
            opcode, operands = self._types[type_id]
            type_id = operands[index if opcode == Op.TYPE_STRUCT else 0]
        return type_id

    def _lower_insert(self, opcode: int, operands: tuple[int, ...]) -> None:
        type_id, result, part, composite, *indices = operands
        if not self._is_wide(part) or self._follow(type_id, indices[:-1]) not in self._vectors:
            self._pairs.out.append((opcode, operands))
            return
        low, high = self._split(part)
        at, before = 2 * indices[-1], indices[:-1]
        made = self._pairs.emit(opcode, type_id, low, composite, *before, at)
        self._pairs.out.append((opcode, (type_id, result, high, made, *before, at + 1)))

    def _lower_shuffle(self, opcode: int, operands: tuple[int, ...]) -> None:
        type_id, result, a, b, *places = operands
        words = [0xFFFFFFFF if at == 0xFFFFFFFF else 2 * at + n for at in places for n in (0, 1)]
        self._pairs.out.append((opcode, (type_id, result, a, b, *words)))

    # --- arithmetic ---

    def _lower_arithmetic(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower an operation on integers, or on vectors of them part by part."""
        type_id, result = operands[:2]
        values = list_values(opcode, operands)
        function = operands[3] if opcode == Op.EXTENDED else 0
        kind = self._types.get(type_id, (0, ()))
        if not has_typed_result(opcode) or kind[0] == Op.TYPE_STRUCT:
            raise _refuse(opcode)
        if kind[0] != Op.TYPE_VECTOR:
            scalars = [self._split(each) if self._is_wide(each) else each for each in values]
            types = [self._type_of[each] for each in values]
            made = self._compute(opcode, function, type_id, scalars, types)
            if isinstance(made, tuple):
                self._join(result, made)
            else:
                self._rename(type_id, result, made)
            return
        # One condition may choose between two vectors.
        repeated = values[:1] if opcode == Op.SELECT and not self._has_parts(values[0]) else []
        if not all(map(self._has_parts, values[len(repeated) :])):
            raise _refuse(opcode)
        types = [self._type_of[each] for each in values]
        types[len(repeated) :] = [self._types[each][1][0] for each in types[len(repeated) :]]
        parts = zip(
            *([each] * 2 for each in repeated),
            *(self._list_parts(each) for each in values[len(repeated) :]),
            strict=True,
        )
        computed = [self._compute(opcode, function, kind[1][0], part, types) for part in parts]
        words = [
            word for part in computed for word in (part if isinstance(part, tuple) else (part,))
        ]
        self._pairs.out.append((Op.COMPOSITE_CONSTRUCT, (type_id, result, *words)))

    def _lower_bitcast(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower a bitcast from or to what is a vector of words now."""
        type_id, result, value = self._retype(operands)
        source = self._type_of[value]
        if self._is_wide(value):
            source = self._pair
            if type_id == source and value in self._words:
                self._words[result] = self._words[value]
        same = source == type_id or (self._is_vector(value) and type_id in self._vectors)
        self._pairs.out.append((Op.COPY_OBJECT if same else opcode, (type_id, result, value)))

    def _compute(
        self,
        opcode: int,
        function: int,
        type_id: int,
        values: Sequence[Operand],
        types: Sequence[int],
    ) -> Operand:
        """Compute one scalar. `types` are those of `values` before they were lowered."""
        pairs = self._pairs
        if opcode in (Op.U_CONVERT, Op.S_CONVERT):
            return self._convert(opcode, type_id, values[0], types[0])
        if opcode in _SHIFTS:
            return self._shift(opcode, type_id, values, types)
        if opcode == Op.SELECT:
            condition, a, b = values
            assert isinstance(condition, int) and isinstance(a, tuple) and isinstance(b, tuple)
            return pairs.select(condition, a, b)
        whole = [value for value in values if isinstance(value, tuple)]
        if len(whole) != len(values):
            raise _refuse(opcode)
        return self._compute_pairs(opcode, function, whole)

    def _compute_pairs(self, opcode: int, function: int, whole: Sequence[Pair]) -> Operand:
        """Compute with 64-bit integers alone."""
        pairs = self._pairs
        if opcode in DIVISIONS:
            return self._division.divide(opcode, *whole)
        if opcode in _BITS:
            return pairs.combine_bits(opcode, *whole)
        if opcode in _EQUALITIES:
            return pairs.equal(opcode, *whole)
        if opcode in COMPARISONS:
            return pairs.compare(opcode, *whole)
        if opcode == Op.EXTENDED:
            return self._choose(function, whole)
        if opcode not in _ARITHMETIC:
            raise _refuse(opcode)
        return _ARITHMETIC[opcode](pairs, *whole)

    def _choose(self, function: int, values: Sequence[Pair]) -> Pair:
        """A minimum or maximum, or both; an absolute value or a sign."""
        pairs = self._pairs
        if function in (_S_ABS, _S_SIGN):
            (a,), zero = values, (pairs.zero, pairs.zero)
            negative = pairs.compare(Op.S_LESS_THAN, a, zero)
            if function == _S_ABS:
                return pairs.select(negative, pairs.negate(a), a)
            one, ones = pairs.make_constant(1), pairs.make_constant(0xFFFFFFFF)
            positive = pairs.compare(Op.S_GREATER_THAN, a, zero)
            return pairs.select(
                negative, (ones, ones), pairs.select(positive, (one, zero[1]), zero)
            )
        if function in _CLAMPS:
            most, least = _CLAMPS[function]
            return self._choose(least, (self._choose(most, values[:2]), values[2]))
        if function not in _CHOICES:
            raise _refuse(Op.EXTENDED)
        holds = self._pairs.compare(_CHOICES[function], *values)
        return self._pairs.select(holds, *values)

    def _convert(self, opcode: int, type_id: int, value: Operand, source: int) -> Operand:
        pairs = self._pairs
        if isinstance(value, tuple):
            if type_id in self._wide:
                return value
            low = value[0]
            if type_id == pairs.word:
                return low
            if type_id == self._int:
                return pairs.emit(Op.BITCAST, type_id, low)
            is_signed = self._types[type_id][1][1]
            return pairs.emit(Op.S_CONVERT if is_signed else Op.U_CONVERT, type_id, low)
        bits, is_signed = self._types[source][1]
        signed = opcode == Op.S_CONVERT
        if bits < 32:
            value = pairs.operate(Op.S_CONVERT if signed else Op.U_CONVERT, value)
        elif is_signed:
            value = pairs.operate(Op.BITCAST, value)
        return pairs.widen(value, signed=signed)

    def _shift(
        self, opcode: int, type_id: int, values: Sequence[Operand], types: Sequence[int]
    ) -> Operand:
        value, amount = values
        if isinstance(amount, tuple):
            amount = amount[0]
            types = (types[0], self._pairs.word)
        if not isinstance(value, tuple):
            return self._pairs.emit(opcode, type_id, value, amount)
        if amount in self._literals:
            return self._pairs.shift_by_constant(opcode, value, self._literals[amount])
        known = self._editor.find_literal(amount)
        if known is not None:
            return self._pairs.shift_by_constant(opcode, value, known)
        if types[1] != self._pairs.word:
            bits = self._types[types[1]][1][0]
            amount = self._pairs.operate(Op.BITCAST if bits == 32 else Op.U_CONVERT, amount)
        return self._pairs.shift_by_variable(opcode, value, amount)

    def _lower_extended(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Lower an operation whose result is a struct of two 64-bit integers."""
        type_id, result, *values = operands
        if not all(self._is_wide(each) for each in values):
            raise _refuse(opcode)
        pairs = self._pairs
        a, b = (self._split(each) for each in values)
        if opcode == Op.U_MUL_EXTENDED:
            halves = pairs.multiply_extended(a, b)
        elif opcode == Op.I_ADD_CARRY:
            total = pairs.add(a, b)
            halves = total, self._to_flag(pairs.compare(Op.U_LESS_THAN, total, b))
        else:
            borrow = pairs.compare(Op.U_LESS_THAN, a, b)
            halves = pairs.subtract(a, b), self._to_flag(borrow)
        joined = [pairs.emit(Op.COMPOSITE_CONSTRUCT, self._pair, *half) for half in halves]
        pairs.out.append((Op.COMPOSITE_CONSTRUCT, (type_id, result, *joined)))

    def _to_flag(self, condition: int) -> Pair:
        one, zero = self._pairs.make_constant(1), self._pairs.zero
        return self._pairs.operate(Op.SELECT, condition, one, zero), zero


_NO_FORM = "has no form in 32-bit words"
_ARITHMETIC: dict[int, Callable[..., Pair]] = {
    Op.I_ADD: WordPairs.add,
    Op.I_SUB: WordPairs.subtract,
    Op.I_MUL: WordPairs.multiply,
    Op.S_NEGATE: WordPairs.negate,
}
_COMPOSITES: dict[int, Callable[[_Int64Lowering, int, tuple[int, ...]], None]] = {
    Op.COMPOSITE_CONSTRUCT: _Int64Lowering._lower_construct,
    Op.COMPOSITE_EXTRACT: _Int64Lowering._lower_extract,
    Op.COMPOSITE_INSERT: _Int64Lowering._lower_insert,
    Op.VECTOR_SHUFFLE: _Int64Lowering._lower_shuffle,
}


def _refuse(opcode: int) -> SpirvError:
    what = _UNKNOWN.get(opcode, f"instruction {opcode}")
    return SpirvError(f"{what} of 64-bit integers {_NO_FORM}")
