"""`ConstantFolder`: what instructions compute whose operands are constants."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_executor.spirv.constants import Kind, can_compute, compute_integer
from gpu_executor.spirv.editor import ModuleEditor, Op

_CASTS = (Op.BITCAST, Op.COPY_OBJECT)
_FOLDED = frozenset((*_CASTS, Op.SELECT, Op.LOGICAL_AND, Op.LOGICAL_OR))


def may_fold(opcode: int) -> bool:
    """Whether the result of an instruction is known if its operands are."""
    return opcode in _FOLDED or can_compute(opcode)


class ConstantFolder:
    """The constants of a module: words and bools. It declares new ones."""

    def __init__(self, editor: ModuleEditor) -> None:
        self._editor = editor
        self._kinds: dict[int, tuple[Kind, int] | None] = {}
        """The kind and the bits of types that are folded, by id; None for bools."""
        for type_id, (opcode, operands) in editor.map_types().items():
            if opcode == Op.TYPE_BOOL:
                self._kinds[type_id] = None
            elif opcode == Op.TYPE_INT and operands[0] == 32:
                self._kinds[type_id] = ("int" if operands[1] else "uint"), 32
        self._values: dict[int, tuple[int, int]] = {}
        """The types and the values of constants, by id."""
        self._ids: dict[tuple[int, int], int] = {}
        """The ids of constants, by type and value."""
        for opcode, operands in editor.declarations:
            if opcode == Op.CONSTANT and operands[0] in self._kinds:
                self._note(operands[0], operands[1], operands[2])
            elif opcode in (Op.CONSTANT_TRUE, Op.CONSTANT_FALSE):
                self._note(operands[0], operands[1], int(opcode == Op.CONSTANT_TRUE))
            elif opcode == Op.CONSTANT_NULL and operands[0] in self._kinds:
                self._note(operands[0], operands[1], 0)
        self._folded: dict[tuple[int, ...], int | None] = {}
        """Results by opcode, type and operands: rounds of a loop repeat them."""

    def find_value(self, id_: int) -> int | None:
        """The value of a constant: a word, or 1 or 0 for a bool; None for other ids."""
        found = self._values.get(id_)
        return None if found is None else found[1]

    def fold(self, opcode: int, operands: Sequence[int]) -> int | None:
        """The id of what an instruction computes, if that is known before it runs."""
        if operands[0] not in self._kinds:
            return None
        type_id, _, *arguments = operands
        values = self._values
        for each in arguments:
            if each in values:
                break
        else:
            return None
        key = (opcode, type_id, *arguments)
        if key not in self._folded:
            self._folded[key] = self._compute(opcode, type_id, arguments)
        return self._folded[key]

    def _compute(self, opcode: int, type_id: int, arguments: list[int]) -> int | None:
        known = [self.find_value(each) for each in arguments]
        if opcode == Op.SELECT and known[0] is not None:
            return arguments[1] if known[0] else arguments[2]
        if opcode in (Op.LOGICAL_AND, Op.LOGICAL_OR):
            decides = int(opcode == Op.LOGICAL_OR)
            for mine, other in ((0, 1), (1, 0)):
                if known[mine] is not None:
                    return arguments[mine] if known[mine] == decides else arguments[other]
        values = [value for value in known if value is not None]
        if len(values) < len(arguments):
            return None
        if opcode in _CASTS:
            return self._find(type_id, values[0])
        if not can_compute(opcode):
            return None
        bits = [self._kinds[self._values[each][0]] and 32 for each in arguments]
        computed = compute_integer(
            opcode, list(zip(values, bits, strict=True)), self._kinds[type_id]
        )
        # Undefined, such as a shift by 32 bits: the code does not use it.
        return None if computed is None else self._find(type_id, computed & 0xFFFFFFFF)

    def _note(self, type_id: int, id_: int, value: int) -> None:
        self._values[id_] = type_id, value
        self._ids.setdefault((type_id, value), id_)

    def _find(self, type_id: int, value: int) -> int:
        """The id of a constant; declared now if it is new."""
        found = self._ids.get((type_id, value))
        if found is None:
            found = self._editor.make_id()
            if self._kinds[type_id] is None:
                opcode = Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE
                self._editor.declarations.append((opcode, (type_id, found)))
            else:
                self._editor.declarations.append((Op.CONSTANT, (type_id, found, value)))
            self._note(type_id, found, value)
        return found
