"""Removal of code that a specialized module never reaches, and of buffers that nothing accesses.

Kernels decide by specialization constants which of several views of a buffer they use, and which
form of a loop. Drivers remove the others themselves; interfaces that allow one view of a binding
see them.
"""

from __future__ import annotations

from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op

_SELECTION_MERGE, _LOOP_MERGE, _BRANCH, _BRANCH_CONDITIONAL, _SWITCH = 247, 246, 249, 250, 251
_UNREACHABLE = 255
_PURE = frozenset((
    1, Op.LOAD, Op.ACCESS_CHAIN, Op.IN_BOUNDS_ACCESS_CHAIN, 68, *range(77, 85), *range(109, 216),
    Op.PHI, Op.FUNCTION_PARAMETER, Op.VARIABLE,
))  # fmt: skip
"""Instructions without an effect but their result: loads, composites, arithmetic."""
_NAMES = (Op.NAME, 6, Op.DECORATE, Op.MEMBER_DECORATE)


@dataclass(slots=True)
class _Block:
    """A label and its instructions, up to a branch or return."""

    label: int
    instructions: list[Instruction] = field(default_factory=list)


def remove_dead_code(code: bytes) -> bytes:
    """Return the module without branches whose conditions are constants, without results that
    nothing uses, and without variables that nothing accesses. It must be specialized."""
    editor = ModuleEditor(code)
    known = {
        operands[1]: opcode == Op.CONSTANT_TRUE
        for opcode, operands in editor.declarations
        if opcode in (Op.CONSTANT_TRUE, Op.CONSTANT_FALSE)
    }
    defined = _list_results(editor.functions)
    functions: list[Instruction] = []
    body: list[Instruction] = []
    for opcode, operands in editor.functions:
        body.append((opcode, operands))
        if opcode == Op.FUNCTION_END:
            functions += _simplify_function(body, known)
            body = []
    editor.functions = _remove_unused_results(functions)
    _remove_unused_variables(editor, defined - _list_results(editor.functions))
    return editor.encode()


def _list_results(functions: list[Instruction]) -> set[int]:
    """The ids that instructions of functions may define."""
    return {operands[1] for _, operands in functions if len(operands) > 1}


def _simplify_function(body: list[Instruction], known: dict[int, bool]) -> list[Instruction]:
    """The function without the blocks that it never reaches."""
    head: list[Instruction] = []
    blocks: dict[int, _Block] = {}
    block: _Block | None = None
    for opcode, operands in body[:-1]:
        if opcode == Op.LABEL:
            block = blocks[operands[0]] = _Block(operands[0])
        elif block is None:
            head.append((opcode, operands))
        else:
            block.instructions.append((opcode, operands))
    if not blocks:  # a declaration without a body
        return body
    for each in blocks.values():
        _take_known_branch(each, known)
    reached, named = _find_reached(blocks)
    sources: dict[int, set[int]] = {label: set() for label in reached}
    for label in reached:
        for target in _list_targets(blocks[label]):
            sources[target].add(label)
    found = list(head)
    for label, each in blocks.items():
        if label in reached:
            found.append((Op.LABEL, (label,)))
            found += [_drop_sources(one, sources[label]) for one in each.instructions]
        elif label in named:
            found += [(Op.LABEL, (label,)), named[label]]
    return [*found, body[-1]]


def _take_known_branch(block: _Block, known: dict[int, bool]) -> None:
    """Replace a branch by a constant by the branch that it takes."""
    opcode, operands = block.instructions[-1]
    if opcode != _BRANCH_CONDITIONAL or operands[0] not in known:
        return
    target = operands[1] if known[operands[0]] else operands[2]
    merge = block.instructions[-2][0] if len(block.instructions) > 1 else 0
    keep = block.instructions[:-2] if merge == _SELECTION_MERGE else block.instructions[:-1]
    block.instructions = [*keep, (_BRANCH, (target,))]


def _list_targets(block: _Block) -> tuple[int, ...]:
    """The labels that a block may branch to."""
    opcode, operands = block.instructions[-1]
    if opcode == _BRANCH:
        return operands
    if opcode == _BRANCH_CONDITIONAL:
        return operands[1:3]
    # Literals of one word and labels take turns behind the default.
    return (operands[1], *operands[3::2]) if opcode == _SWITCH else ()


def _find_reached(blocks: dict[int, _Block]) -> tuple[set[int], dict[int, Instruction]]:
    """The blocks that are reached, and those that merges name without being reached, with the
    instruction that ends them."""
    first = next(iter(blocks))
    reached, waiting = {first}, [first]
    named: dict[int, Instruction] = {}
    while waiting:
        for target in _list_targets(blocks[waiting.pop()]):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    for label in reached:
        for opcode, operands in blocks[label].instructions:
            if opcode in (_SELECTION_MERGE, _LOOP_MERGE) and operands[0] not in reached:
                named[operands[0]] = (_UNREACHABLE, ())
            if opcode == _LOOP_MERGE and operands[1] not in reached:
                named[operands[1]] = (_BRANCH, (label,))
    return reached, named


def _drop_sources(instruction: Instruction, sources: set[int]) -> Instruction:
    """A phi without the values of blocks that are gone."""
    opcode, operands = instruction
    if opcode != Op.PHI:
        return instruction
    pairs = zip(operands[2::2], operands[3::2], strict=True)
    kept = [each for value, label in pairs if label in sources for each in (value, label)]
    return opcode, (*operands[:2], *kept)


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


def _remove_unused_variables(editor: ModuleEditor, removed: set[int]) -> None:
    """Remove the variables outside of functions that no function names, and the decorations of
    these and of removed results."""
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
    preamble = []
    for opcode, operands in editor.preamble:
        if opcode in _NAMES and operands[0] in unused | removed:
            continue
        kept = operands
        if opcode == Op.ENTRY_POINT:
            end = 2 + _count_name_words(operands[2:])
            kept = (*operands[:end], *(each for each in operands[end:] if each not in unused))
        preamble.append((opcode, kept))
    editor.preamble = preamble


def _count_name_words(words: tuple[int, ...]) -> int:
    """The words of a text: the last of them has a zero byte."""
    for number, word in enumerate(words):
        if not all(word >> shift & 0xFF for shift in (0, 8, 16, 24)):
            return number + 1
    return len(words)
