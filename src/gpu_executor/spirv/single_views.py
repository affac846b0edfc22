"""One view of each buffer, for interfaces that take a binding once.

A kernel may declare a binding several times, to access it in units of one, two or four words. Here
all of them become accesses of the view with single words.
"""

from __future__ import annotations

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.editor import Instruction, InstructionWriter, ModuleEditor, Op
from gpu_executor.spirv.module import ARRAY_STRIDE, BINDING, OFFSET

_STORAGE_BUFFER, _BLOCK = 12, 2  # Spec, "Storage Class", "Decoration"
_CHAINS = (Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN)


@dataclass(frozen=True, slots=True)
class _View:
    """A variable that is an array of words or of vectors of words."""

    variable: int
    element: int
    """The type of an element."""
    word: int
    """The type of a word."""
    words: int
    """In an element."""


def keep_single_views(code: bytes) -> bytes:
    """Return the module with one variable for each binding."""
    editor = ModuleEditor(code)
    by_binding: dict[int, list[int]] = {}
    for opcode, operands in editor.preamble:
        if opcode == Op.DECORATE and operands[1] == BINDING:
            by_binding.setdefault(operands[2], []).append(operands[0])
    several = [variables for variables in by_binding.values() if len(variables) > 1]
    return _ViewMerger(editor, several).run() if several else code


class _ViewMerger(InstructionWriter):
    """Merges the views of one module."""

    def __init__(self, editor: ModuleEditor, several: list[list[int]]) -> None:
        super().__init__(editor)
        self._types = editor.map_types()
        self._uint = editor.find_type(Op.TYPE_INT, 32, 0)
        self._kept: dict[int, tuple[_View, _View]] = {}
        """By variable: its view, and the view of single words of the same binding."""
        for variables in several:
            views = [self._read_view(variable) for variable in variables]
            if len({self._count_bits(view) for view in views}) > 1:
                raise SpirvError("views of one binding have integers of several widths")
            single = next((view for view in views if view.words == 1), None)
            single = single or self._declare_single(views[0])
            for view in views:
                if view != single:
                    self._kept[view.variable] = view, single
        self._pointers: dict[int, tuple[_View, _View, int]] = {}
        """Views and index, by the id of a pointer to an element."""

    def run(self) -> bytes:
        """Return the module."""
        editor = self._editor
        self._zero = editor.find_constant(self._uint, 0)
        editor.expand(self._expand)
        gone = set(self._kept)
        editor.declarations = [
            (opcode, operands)
            for opcode, operands in editor.declarations
            if opcode != Op.VARIABLE or operands[1] not in gone
        ]
        editor.preamble = [
            (opcode, operands)
            for opcode, operands in map(self._drop_from_interface, editor.preamble)
            if opcode not in (Op.NAME, Op.DECORATE) or operands[0] not in gone
        ]
        return editor.encode()

    def _drop_from_interface(self, instruction: Instruction) -> Instruction:
        opcode, operands = instruction
        if opcode != Op.ENTRY_POINT:
            return instruction
        # Behind the execution model, the function and the name, which is no id of a variable here.
        added = tuple({single.variable for _, single in self._kept.values()} - set(operands[3:]))
        kept = tuple(each for each in operands[3:] if each not in self._kept)
        return opcode, (*operands[:3], *kept, *added)

    def _read_view(self, variable: int) -> _View:
        declared = next(
            operands
            for opcode, operands in self._editor.declarations
            if opcode == Op.VARIABLE and operands[1] == variable
        )
        members = self._types[self._types[declared[0]][1][1]][1]
        array = self._types[members[0]]
        if len(members) != 1 or array[0] != Op.TYPE_RUNTIME_ARRAY:
            raise SpirvError("views of one binding that are no plain arrays cannot be merged")
        element = array[1][0]
        opcode, operands = self._types[element]
        word, words = operands if opcode == Op.TYPE_VECTOR else (element, 1)
        if self._types[word][0] != Op.TYPE_INT:
            raise SpirvError("views of one binding that have no integers cannot be merged")
        return _View(variable, element, word, words)

    def _count_bits(self, view: _View) -> int:
        """The bits of a word."""
        return self._types[view.word][1][0]

    def _declare_single(self, view: _View) -> _View:
        """Declare a view of single words beside one of vectors, with the same decorations."""
        editor = self._editor
        array, struct, pointer, variable = (editor.make_id() for _ in range(4))
        editor.declarations += [
            (Op.TYPE_RUNTIME_ARRAY, (array, view.word)),
            (Op.TYPE_STRUCT, (struct, array)),
            (Op.TYPE_POINTER, (pointer, _STORAGE_BUFFER, struct)),
            (Op.VARIABLE, (pointer, variable, _STORAGE_BUFFER)),
        ]
        copied = [
            (opcode, (variable, *operands[1:]))
            for opcode, operands in editor.preamble
            if opcode == Op.DECORATE and operands[0] == view.variable
        ]
        editor.preamble += [
            *copied,
            (Op.DECORATE, (array, ARRAY_STRIDE, self._count_bits(view) // 8)),
            (Op.DECORATE, (struct, _BLOCK)),
            (Op.MEMBER_DECORATE, (struct, 0, OFFSET, 0)),
        ]
        return _View(variable, view.word, view.word, 1)

    def _expand(self, opcode: int, operands: tuple[int, ...]) -> list[Instruction] | None:
        self.out = []
        if opcode in _CHAINS and operands[2] in self._kept:
            if len(operands) not in (5, 6):
                raise SpirvError("a view of a shared binding is accessed in an unknown way")
            return self._point(operands)
        if opcode == Op.LOAD and operands[2] in self._pointers:
            return self._load(operands)
        if opcode == Op.STORE and operands[0] in self._pointers:
            return self._store(operands)
        if any(each in self._pointers or each in self._kept for each in operands):
            raise SpirvError("a view of a shared binding is used in an unknown way")
        return None

    def _point(self, operands: tuple[int, ...]) -> list[Instruction]:
        """Replace a pointer to an element, or to a word of it."""
        view, single = self._kept[operands[2]]
        index = operands[4]
        if len(operands) == 5:
            self._pointers[operands[1]] = view, single, index
            return []
        scaled = self._scale(view, index)
        at = self.emit(Op.I_ADD, self._uint, scaled, operands[5])
        chain = (operands[0], operands[1], single.variable, self._zero, at)
        self.out.append((Op.ACCESS_CHAIN, chain))
        return self.out

    def _scale(self, view: _View, index: int) -> int:
        words = self._editor.find_constant(self._uint, view.words)
        return self.emit(Op.I_MUL, self._uint, index, words)

    def _list_words(self, pointer: int) -> list[int]:
        """Pointers to the words of an element."""
        view, single, index = self._pointers[pointer]
        scaled = self._scale(view, index)
        kind = self._editor.find_type(Op.TYPE_POINTER, _STORAGE_BUFFER, single.word)
        found = []
        for number in range(view.words):
            added = self._editor.find_constant(self._uint, number)
            at = self.emit(Op.I_ADD, self._uint, scaled, added)
            found.append(self.emit(Op.ACCESS_CHAIN, kind, single.variable, self._zero, at))
        return found

    def _load(self, operands: tuple[int, ...]) -> list[Instruction]:
        view, single, _ = self._pointers[operands[2]]
        words = [
            self.emit(Op.LOAD, single.word, pointer) for pointer in self._list_words(operands[2])
        ]
        if view.word != single.word:
            words = [self.emit(Op.BITCAST, view.word, word) for word in words]
        self.out.append((Op.COMPOSITE_CONSTRUCT, (operands[0], operands[1], *words)))
        return self.out

    def _store(self, operands: tuple[int, ...]) -> list[Instruction]:
        view, single, _ = self._pointers[operands[0]]
        for number, pointer in enumerate(self._list_words(operands[0])):
            word = self.emit(Op.COMPOSITE_EXTRACT, view.word, operands[1], number)
            if view.word != single.word:
                word = self.emit(Op.BITCAST, single.word, word)
            self.out.append((Op.STORE, (pointer, word)))
        return self.out
