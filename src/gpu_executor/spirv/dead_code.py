"""Removal of results that nothing uses, and of buffers that nothing accesses."""

from __future__ import annotations

from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op

_PURE = frozenset((
    1, Op.LOAD, Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN, 68, *range(77, 85), *range(109, 216),
    Op.PHI, Op.FUNCTION_PARAMETER, Op.VARIABLE,
))  # fmt: skip
"""Instructions without an effect but their result: loads, composites, arithmetic."""


def remove_dead_code(code: bytes) -> bytes:
    """Return the module without results that nothing uses, and without variables that nothing
    accesses."""
    editor = ModuleEditor(code)
    editor.functions = _remove_unused_results(editor.functions)
    editor.drop_names_of_results()
    _remove_unused_variables(editor)
    return editor.encode()


def _remove_unused_results(functions: list[Instruction]) -> list[Instruction]:
    """The functions without results that nothing with an effect depends on."""
    definitions = {operands[1]: operands for opcode, operands in functions if opcode in _PURE}
    used: set[int] = set()
    waiting = [each for opcode, operands in functions if opcode not in _PURE for each in operands]
    while waiting:
        each = waiting.pop()
        if each in definitions and each not in used:
            used.add(each)
            waiting += definitions[each]
    return [
        (opcode, operands)
        for opcode, operands in functions
        if opcode not in _PURE or opcode == Op.FUNCTION_PARAMETER or operands[1] in used
    ]


def _remove_unused_variables(editor: ModuleEditor) -> None:
    """Remove the variables outside of functions that no function names."""
    used = {each for _, operands in editor.functions for each in operands}
    unused = {
        operands[1]
        for opcode, operands in editor.declarations
        if opcode == Op.VARIABLE and operands[1] not in used
    }
    editor.declarations = [
        (opcode, operands)
        for opcode, operands in editor.declarations
        if opcode != Op.VARIABLE or operands[1] not in unused
    ]
    editor.drop_names(unused)
    for at, (opcode, operands) in enumerate(editor.preamble):
        if opcode == Op.ENTRY_POINT:
            end = 2 + _count_name_words(operands[2:])
            kept = [each for each in operands[end:] if each not in unused]
            editor.preamble[at] = opcode, (*operands[:end], *kept)


def _count_name_words(words: tuple[int, ...]) -> int:
    """The words of a text: the last of them has a zero byte."""
    for number, word in enumerate(words):
        if not all(word >> shift & 0xFF for shift in (0, 8, 16, 24)):
            return number + 1
    return len(words)
