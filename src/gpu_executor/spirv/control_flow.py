"""Control flow that constants decide: branches that are never taken go, loops are unrolled.

Drivers do both themselves, if they know of it. They see no view of a buffer that a constant has
switched off, where an interface takes one view of a binding; and naga drops the request to unroll a
loop. A driver that runs the loops of a product as loops is slow, and lavapipe ends every loop of an
invocation after 65,535 rounds of all its loops together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op
from gpu_executor.spirv.folding import ConstantFolder, may_fold
from gpu_executor.spirv.instructions import has_id, has_typed_result

MAX_ROUNDS = 1024
"""A loop that is longer stays a loop."""
_UNROLL = 1  # Spec, "Loop Control"
_FIRST_EXTENDED_OPERAND = 4
"""Of OpExtInst: type, result, instruction set and instruction come before."""
_UNREACHABLE = 255


def follow_constants(code: bytes, *, unroll: bool) -> bytes:
    """Return the module without the blocks that no branch reaches. `unroll`: without the loops that
    ask to be unrolled and whose number of rounds is constant. It must be specialized."""
    editor = ModuleEditor(code)
    folder = ConstantFolder(editor)
    functions: list[Instruction] = []
    body: list[Instruction] = []
    for opcode, operands in editor.functions:
        body.append((opcode, operands))
        if opcode == Op.FUNCTION_END:
            functions += _follow_function(editor, folder, body, unroll=unroll)
            body = []
    editor.functions = functions
    editor.drop_names_of_results()
    return editor.encode()


def breaks_loop_in_switch(code: bytes) -> bool:
    """Whether a branch inside of a switch ends the loop around the switch. GLSL has no such branch;
    compilers make one of a `return` there."""
    body: list[Instruction] = []
    for opcode, operands in ModuleEditor(code).functions:
        body.append((opcode, operands))
        if opcode == Op.FUNCTION_END:
            _, blocks = _split_function(body)
            body = []
            if _find_break_in_switch(blocks):
                return True
    return False


def _find_break_in_switch(blocks: dict[int, _Block]) -> bool:
    """Whether a function has such a branch."""
    switches = [label for label, block in blocks.items() if block.branch[0] == Op.SWITCH]
    headers = [label for label, block in blocks.items() if block.is_loop()] if switches else []
    loops = [(header, _list_construct(blocks, header, set())) for header in headers]
    for switch in switches:
        around = [blocks[header].merge for header, inside in loops if switch in inside]
        outside = {each for merge in around if merge is not None for each in merge[1][:2]}
        ends = {merge[1][0] for merge in around if merge is not None}
        for label in _list_construct(blocks, switch, outside) - {switch}:
            if ends.intersection(blocks[label].list_targets()):
                return True
    return False


def _list_construct(blocks: dict[int, _Block], header: int, outside: set[int]) -> set[int]:
    """The blocks from a header on that come before its merge block and are not `outside`."""
    merge = blocks[header].merge
    stops = outside if merge is None else outside | {merge[1][0]}
    found: set[int] = set()
    waiting = [header]
    while waiting:
        label = waiting.pop()
        if label not in found and label not in stops:
            found.add(label)
            waiting += blocks[label].list_targets()
    return found


def _follow_function(
    editor: ModuleEditor, folder: ConstantFolder, body: list[Instruction], *, unroll: bool
) -> list[Instruction]:
    head, blocks = _split_function(body)
    if not blocks:  # a declaration without a body
        return body
    order = _sort_blocks(blocks)
    unrolled = {label for label in order if unroll and blocks[label].asks_to_unroll()}
    kept: set[int] = set()
    while True:
        copy = _FunctionCopy(editor, folder, blocks, order, unrolled - kept)
        try:
            copied = copy.run()
        except _NotConstantError as error:
            kept.add(error.header)
            continue
        ended = copy.list_loops_that_end()
        if not ended:
            return [*head, *copied, body[-1]]
        if ended & kept:
            raise SpirvError("a loop never repeats, and values decide how its only round ends")
        unrolled |= ended


class _NotConstantError(Exception):
    """A loop cannot be unrolled."""

    def __init__(self, header: int) -> None:
        super().__init__()
        self.header = header


_CodeLine = tuple[int, tuple[int, ...], tuple[int, ...], bool, bool]
"""An instruction, which of its operands are ids, whether it has a result, and whether constants may
decide the result: an unrolled loop copies it many times."""


@dataclass(slots=True)
class _Block:
    """A label and its instructions, up to a branch or return."""

    label: int
    phis: list[Instruction] = field(default_factory=list)
    code: list[_CodeLine] = field(default_factory=list)
    """Without phis, the merge and the branch."""
    merge: Instruction | None = None
    branch: Instruction = (_UNREACHABLE, ())

    def add(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Add the next instruction."""
        if opcode == Op.PHI:
            self.phis.append((opcode, operands))
        elif opcode in (Op.LOOP_MERGE, Op.SELECTION_MERGE):
            self.merge = opcode, operands
        else:
            positions = _list_id_positions(opcode, len(operands))
            has_result = has_typed_result(opcode)
            self.code.append((opcode, operands, positions, has_result, may_fold(opcode)))

    def end(self) -> None:
        """Note the last instruction as the branch."""
        self.branch = self.code.pop()[:2]

    def is_loop(self) -> bool:
        """Whether it is the header of a loop."""
        return self.merge is not None and self.merge[0] == Op.LOOP_MERGE

    def asks_to_unroll(self) -> bool:
        """Whether it is the header of a loop to unroll."""
        return self.merge is not None and self.is_loop() and bool(self.merge[1][2] & _UNROLL)

    def list_targets(self) -> tuple[int, ...]:
        """The labels that it may branch to."""
        return _list_targets(*self.branch)


def _list_targets(opcode: int, operands: tuple[int, ...]) -> tuple[int, ...]:
    """The labels of a branch."""
    if opcode == Op.BRANCH:
        return operands
    if opcode == Op.BRANCH_CONDITIONAL:
        return operands[1:3]
    # Literals of one word and labels take turns behind the default.
    return (operands[1], *operands[3::2]) if opcode == Op.SWITCH else ()


def _split_function(body: list[Instruction]) -> tuple[list[Instruction], dict[int, _Block]]:
    """The head of a function and its blocks by label; `body` ends with its OpFunctionEnd, which is
    in neither."""
    head: list[Instruction] = []
    blocks: dict[int, _Block] = {}
    block: _Block | None = None
    for opcode, operands in body[:-1]:
        if opcode == Op.LABEL:
            block = blocks[operands[0]] = _Block(operands[0])
        elif block is None:
            head.append((opcode, operands))
        else:
            block.add(opcode, operands)
    for each in blocks.values():
        each.end()
    return head, blocks


def _sort_blocks(blocks: dict[int, _Block]) -> list[int]:
    """The labels such that a loop or selection is whole before its merge block."""
    first = next(iter(blocks))
    visited: set[int] = set()
    found: list[int] = []
    waiting = [(first, False)]
    while waiting:
        label, is_done = waiting.pop()
        if is_done:
            found.append(label)
            continue
        if label in visited:
            continue
        visited.add(label)
        block = blocks[label]
        # What is visited first ends last: the merge block, then the continue target.
        following = [*(block.merge[1][:2] if block.is_loop() and block.merge else ())]
        if block.merge is not None and not block.is_loop():
            following.append(block.merge[1][0])
        waiting.append((label, True))
        waiting += [(each, False) for each in reversed((*following, *block.list_targets()))]
    return found[::-1]


@functools.cache
def _list_id_positions(opcode: int, count: int) -> tuple[int, ...]:
    """Which of an instruction's operands are ids that may be replaced: not the type, the result."""
    first = 2 if has_typed_result(opcode) else 0
    if opcode == Op.EXTENDED:
        return tuple(range(_FIRST_EXTENDED_OPERAND, count))
    return tuple(at for at in range(first, count) if has_id(opcode, at))


@dataclass(slots=True)
class _Edge:
    """A branch to a block: the label that it comes from, and the values of the block's phis."""

    source: int
    values: tuple[int, ...]


@dataclass(slots=True)
class _OpenLoop:
    """A loop that stays one, and whose branch back is still to come."""

    header: int
    label: int
    """Of the header in this copy."""
    phis: range
    """Where the phis of its header are."""
    repeats: bool = False
    """Whether a branch back has come."""


class _FunctionCopy:
    """Copies a function, block by block as they run. Values that are known are not computed, and
    the blocks of a loop to unroll are copied for each round."""

    def __init__(
        self,
        editor: ModuleEditor,
        folder: ConstantFolder,
        blocks: dict[int, _Block],
        order: Sequence[int],
        unrolled: set[int],
    ) -> None:
        self._editor, self._folder, self._blocks = editor, folder, blocks
        self._order, self._unrolled = order, unrolled
        self._positions = {label: at for at, label in enumerate(order)}
        self._out: list[Instruction] = []
        self._names: dict[int, int] = {}
        """The ids that stand for ids of the function in the round that is being copied."""
        self._used: set[int] = set()
        """Ids that are defined: the first copy of an instruction keeps its id."""
        self._edges: dict[int, list[_Edge]] = {order[0]: [_Edge(0, ())]}
        """The branches to blocks that are not copied yet."""
        self._labels: dict[int, int] = {}
        """The labels of blocks that are not copied yet, and that something names."""
        self._merged: set[int] = set()
        """Labels that merges name, as merge blocks or continue targets."""
        self._opened: list[_OpenLoop] = []
        self._loops: dict[int, _OpenLoop] = {}
        """The loops that stay loops: all copies, and the last copy by header."""
        self._rounds: list[tuple[int, int, int]] = []
        """The loops that are being unrolled: header, and the positions of it and of the merge
        block."""

    def run(self) -> list[Instruction]:
        """Return the blocks."""
        self._copy(0, len(self._order))
        return self._out

    def _copy(self, start: int, end: int) -> None:
        at = start
        while at < end:
            label = self._order[at]
            if label in self._unrolled and label in self._edges:
                at = self._unroll(at)
            else:
                self._copy_block(self._blocks[label])
                at += 1

    def _unroll(self, at: int) -> int:
        """Copy the rounds of a loop; returns the position of its merge block."""
        header = self._order[at]
        block = self._blocks[header]
        assert block.merge is not None
        merge = block.merge[1][0]
        end = self._positions[merge]
        self._rounds.append((header, at, end))
        for _ in range(MAX_ROUNDS):
            self._copy_block(block)
            self._copy(at + 1, end)
            if header not in self._edges:
                self._rounds.pop()
                return end
            if merge in self._edges:  # whether it ends is not known
                break
        raise _NotConstantError(header)

    def _copy_block(self, block: _Block) -> None:
        edges = self._edges.pop(block.label, None)
        named = self._labels.pop(block.label, None)
        if edges is None:
            if named is not None:  # a merge names it, and no branch
                self._out += [(Op.LABEL, (named,)), (_UNREACHABLE, ())]
            return
        stays_loop = block.is_loop() and block.label not in self._unrolled
        label = self._name(block.label) if named is None else named
        if not stays_loop and len(edges) == 1 and self._continues(label):
            self._out.pop()
            label = edges[0].source
        else:
            self._out.append((Op.LABEL, (label,)))
        self._copy_phis(block, edges, stays_loop=stays_loop)
        if stays_loop:
            phis = range(len(self._out) - len(block.phis), len(self._out))
            self._loops[block.label] = _OpenLoop(block.label, label, phis)
            self._opened.append(self._loops[block.label])
        names, fold, out = self._names, self._folder.fold, self._out
        for opcode, operands, positions, has_result, folds in block.code:
            renamed = list(operands)
            for at in positions:
                renamed[at] = names.get(operands[at], operands[at])
            if has_result:
                known = fold(opcode, renamed) if folds else None
                if known is not None:
                    names[operands[1]] = known
                    continue
                renamed[1] = names[operands[1]] = self._name(operands[1])
            out.append((opcode, tuple(renamed)))
        self._copy_branch(block, label, stays_loop=stays_loop)

    def _continues(self, label: int) -> bool:
        """Whether a block that one branch reaches is one with the block before."""
        return (
            len(self._out) > 1
            and self._out[-1] == (Op.BRANCH, (label,))
            and self._out[-2][0] not in (Op.LOOP_MERGE, Op.SELECTION_MERGE)
            and label not in self._merged
        )

    def _name(self, id_: int) -> int:
        """A new name for what an id of the function stands for; at first the id itself."""
        if id_ in self._used:
            return self._editor.make_id()
        self._used.add(id_)
        return id_

    def _copy_phis(self, block: _Block, edges: Sequence[_Edge], *, stays_loop: bool) -> None:
        if len(edges) == 1 and not stays_loop:
            for (_, operands), value in zip(block.phis, edges[0].values, strict=True):
                self._names[operands[1]] = value
            return
        for number, (opcode, operands) in enumerate(block.phis):
            made = self._names[operands[1]] = self._name(operands[1])
            pairs = [each for edge in edges for each in (edge.values[number], edge.source)]
            self._out.append((opcode, (operands[0], made, *pairs)))

    def _copy_branch(self, block: _Block, label: int, *, stays_loop: bool) -> None:
        opcode, operands = self._decide(*block.branch)
        if block.merge is not None and (stays_loop or opcode != Op.BRANCH):
            if block.label in self._unrolled:
                raise _NotConstantError(block.label)
            merge, named = block.merge
            count = 2 if stays_loop else 1
            # The header of a loop of one block is its own continue target.
            names = [
                label if each == block.label else self._find_label(each) for each in named[:count]
            ]
            self._merged.update(names)
            self._out.append((merge, (*names, *named[count:])))
        targets = _list_targets(opcode, operands)
        if opcode != Op.BRANCH and any(map(self._leaves_round, targets)):
            raise _NotConstantError(self._rounds[-1][0])
        labels = {each: self._branch(block.label, label, each) for each in dict.fromkeys(targets)}
        if opcode == Op.SWITCH:
            named = tuple(labels[each] if at % 2 else each for at, each in enumerate(operands))
            operands = operands[0], *named[1:]
        elif targets:
            operands = (*operands[: -len(targets)], *(labels[each] for each in targets))
        self._out.append((opcode, operands))

    def _decide(self, opcode: int, operands: tuple[int, ...]) -> Instruction:
        """A branch with the names of this round; one way, if its condition is known."""
        if opcode == Op.BRANCH or not operands:
            return opcode, operands
        value = self._names.get(operands[0], operands[0])  # a condition, or what is returned
        known = self._folder.find_value(value)
        if opcode == Op.BRANCH_CONDITIONAL and known is not None:
            return Op.BRANCH, (operands[1] if known else operands[2],)
        end = 3 if opcode == Op.BRANCH_CONDITIONAL else len(operands)  # without weights
        return opcode, (value, *operands[1:end])

    def _find_label(self, target: int) -> int:
        """The label that the next copy of a block has."""
        if target not in self._labels:
            self._labels[target] = self._name(target)
        return self._labels[target]

    def _branch(self, source: int, label: int, target: int) -> int:
        """Note a branch from a block, which is `label` in this round; returns the target's label
        there."""
        position = self._positions[target]
        if self._rounds:
            header, start, end = self._rounds[-1]
            if not start <= position <= end:
                raise _NotConstantError(header)
        values = tuple(
            self._find_value(operands, source) for _, operands in self._blocks[target].phis
        )
        if self._positions[source] >= position and target not in self._unrolled:
            self._close_loop(self._loops[target], label, values)
            return self._loops[target].label
        if target in self._edges and self._leaves_round(target):
            # A second branch to it leaves a selection.
            raise _NotConstantError(self._rounds[-1][0])
        self._edges.setdefault(target, []).append(_Edge(label, values))
        return self._find_label(target)

    def _close_loop(self, loop: _OpenLoop, label: int, values: Sequence[int]) -> None:
        """Give the phis of a loop's header their values for the branch back."""
        loop.repeats = True
        for at, value in zip(loop.phis, values, strict=True):
            opcode, operands = self._out[at]
            self._out[at] = opcode, (*operands, value, label)

    def list_loops_that_end(self) -> set[int]:
        """The headers of loops that stayed loops, and that end after one round."""
        return {loop.header for loop in self._opened if not loop.repeats}

    def _leaves_round(self, target: int) -> bool:
        """Whether a block is the merge block or the continue target of the loop that is being
        unrolled. Only inside of a loop may a branch that depends on a value lead there."""
        if not self._rounds:
            return False
        merge = self._blocks[self._rounds[-1][0]].merge
        return merge is not None and target in merge[1][:2]

    def _find_value(self, operands: tuple[int, ...], source: int) -> int:
        """What a phi is if it is reached from a block."""
        for value, label in zip(operands[2::2], operands[3::2], strict=True):
            if label == source:
                return self._names.get(value, value)
        raise SpirvError(f"phi %{operands[1]} has no value for a branch from %{source}")
