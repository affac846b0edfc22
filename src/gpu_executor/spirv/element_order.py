"""Whether a shader reads an element of one buffer before it writes the same element of another.

Only then may one array be bound to both. The proof covers the usual form of an element-wise kernel:
each invocation accesses both buffers at `gl_GlobalInvocationID.x` alone, and no path through the
code leads from a store to a load. Everything else counts as not proven.
"""

from __future__ import annotations

import struct
from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.spirv.constants import find_spec_id, read_constant
from gpu_executor.spirv.instructions import HEADER_WORDS
from gpu_executor.spirv.module import (
    ARRAY_STRIDE,
    BINDING,
    BUILT_IN,
    GL_COMPUTE,
    Module,
    read_module,
)

_GLOBAL_INVOCATION_ID = 28  # Spec, "BuiltIn"
_FUNCTION, _FUNCTION_END, _VARIABLE, _LOAD, _STORE = 54, 56, 59, 61, 62
_ACCESS_CHAINS = (65, 66)  # OpAccessChain, OpInBoundsAccessChain
_ARRAY_LENGTH, _COMPOSITE_EXTRACT = 68, 81
_SAME_VALUE = (83, 124)  # OpCopyObject, OpBitcast
_LABEL, _BRANCH, _BRANCH_CONDITIONAL = 248, 249, 250
_LINES = (8, 317)  # OpLine and OpNoLine, which may also stand behind the end of a block
_ENDS = (252, 253, 254, 255, 4416)  # OpKill, OpReturn, OpReturnValue, OpUnreachable, OpTerminate

Instruction = tuple[int, tuple[int, ...]]
"""Opcode and operands."""


def is_read_before_written(code: bytes, read: int, written: int) -> bool:
    """Whether each element of the buffer at binding `read` is loaded only by the invocation that
    stores that element to the buffer at binding `written`, and only before it stores it.

    `code` was read by `read_interface` before.
    """
    module = read_module(code)
    sources, targets = _find_variables(module, read), _find_variables(module, written)
    if len(sources) != 1 or len(targets) != 1:
        return False
    if _find_stride(module, sources[0]) != _find_stride(module, targets[0]):
        return False
    (entry,) = (each[1] for each in module.all("OpEntryPoint") if each[0] == GL_COMPUTE)
    function = _read_function(module, code, entry)
    if function is None or _is_used_elsewhere(module, function, {*sources, *targets}):
        return False
    loads = function.find_accesses(sources[0], _LOAD)
    stores = function.find_accesses(targets[0], _STORE)
    if loads is None or stores is None:
        return False
    reached = function.find_reached_blocks({function.blocks[store] for store in stores})
    return not any(
        function.blocks[load] in reached
        or any(function.blocks[store] == function.blocks[load] and store < load for store in stores)
        for load in loads
    )


def _find_variables(module: Module, binding: int) -> list[int]:
    return [
        operands[1]
        for operands in module.all("OpVariable")
        if module.decoration(operands[1], BINDING) == binding
    ]


def _find_stride(module: Module, variable: int) -> int | None:
    """Return the distance of the elements of the array that is the variable's only member."""
    _, (pointer, *_) = module.definition(variable)
    name, members = module.definition(module.definition(pointer)[1][2])
    if name != "OpTypeStruct" or len(members) != 2:
        return None
    return module.decoration(members[1], ARRAY_STRIDE)


@dataclass(slots=True)
class _Function:
    """The code of a function, in order."""

    module: Module
    identity: int
    instructions: list[Instruction] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    """The number of the block that each instruction is in."""
    starts: dict[int, int] = field(default_factory=dict)
    """The number of the block by its label."""
    last: dict[int, Instruction] = field(default_factory=dict)
    """The last instruction of each block."""
    definitions: dict[int, Instruction] = field(default_factory=dict)

    def add(self, opcode: int, operands: tuple[int, ...]) -> None:
        if opcode == _LABEL:
            self.starts[operands[0]] = len(self.starts)
        elif opcode in (_LOAD, _COMPOSITE_EXTRACT, _VARIABLE, *_ACCESS_CHAINS, *_SAME_VALUE):
            self.definitions[operands[1]] = opcode, operands
        self.instructions.append((opcode, operands))
        self.blocks.append(len(self.starts) - 1)
        self.last[self.blocks[-1]] = opcode, operands

    def find_accesses(self, variable: int, wanted: int) -> list[int] | None:
        """Return the places of the loads or stores of a buffer; None if the code does anything else
        with it, or accesses elements other than the invocation's own.
        """
        found: list[int] = []
        pointers: set[int] = set()
        for place, (opcode, operands) in enumerate(self.instructions):
            if opcode in _ACCESS_CHAINS and operands[2] == variable:
                indices = operands[3:]
                if len(indices) < 2 or not self.is_own_index(indices[1]):
                    return None
                pointers.add(operands[1])
            elif opcode in _ACCESS_CHAINS and operands[2] in pointers:
                pointers.add(operands[1])
            elif opcode == wanted and operands[0 if wanted == _STORE else 2] in pointers:
                found.append(place)
            elif opcode != _ARRAY_LENGTH and (
                variable in operands or not pointers.isdisjoint(operands)
            ):
                return None
        return found

    def is_own_index(self, value: int, depth: int = 8) -> bool:
        """Whether a value is gl_GlobalInvocationID.x."""
        opcode, operands = self.definitions.get(value, (0, ()))
        if depth == 0 or not operands:
            return False
        if opcode in _SAME_VALUE:
            return self.is_own_index(operands[2], depth - 1)
        if opcode == _COMPOSITE_EXTRACT:
            made = self.definitions.get(operands[2], (0, ()))
            is_id = made[0] == _LOAD and self._is_invocation_id(made[1][2])
            return is_id and operands[3:] == (0,)
        if opcode != _LOAD:
            return False
        source, chain = self.definitions.get(operands[2], (0, ()))
        if source in _ACCESS_CHAINS and self._is_invocation_id(chain[2]) and len(chain) == 4:
            index = read_constant(self.module, chain[3])
            is_fixed = find_spec_id(self.module, chain[3]) is None
            return is_fixed and index is not None and index.value == 0
        return source == _VARIABLE and self._always_holds_own_index(operands[2], chain, depth)

    def _is_invocation_id(self, variable: int) -> bool:
        return self.module.decoration(variable, BUILT_IN) == _GLOBAL_INVOCATION_ID

    def _always_holds_own_index(
        self, variable: int, declaration: tuple[int, ...], depth: int
    ) -> bool:
        """Whether a local variable is loaded as a whole and set once, to the own index."""
        stored = []
        for opcode, operands in self.instructions:
            if opcode == _STORE and operands[0] == variable:
                stored.append(operands[1])
            elif variable in operands and opcode not in (_LOAD, _VARIABLE):
                return False
        is_set_once = len(stored) == 1 and len(declaration) == 3  # four with an initial value
        return is_set_once and self.is_own_index(stored[0], depth - 1)

    def find_reached_blocks(self, begins: set[int]) -> set[int]:
        """Return the blocks that paths from the ends of blocks lead to."""
        reached: set[int] = set()
        waiting = list(begins)
        while waiting:
            for block in self._list_successors(waiting.pop()):
                if block not in reached:
                    reached.add(block)
                    waiting.append(block)
        return reached

    def _list_successors(self, block: int) -> list[int]:
        opcode, operands = self.last[block]
        if opcode == _BRANCH:
            return [self.starts[operands[0]]]
        if opcode == _BRANCH_CONDITIONAL:
            return [self.starts[label] for label in operands[1:3]]
        # The literals of a switch have one or two words: any block may follow, as it may follow an
        # instruction that is not known.
        return [] if opcode in _ENDS else list(self.starts.values())


def _read_function(module: Module, code: bytes, entry: int) -> _Function | None:
    """Return the code of a function; None if it branches to what it does not have."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    function, inside, offset = _Function(module, entry), False, HEADER_WORDS
    while offset < len(words):
        size, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        operands = words[offset + 1 : offset + size]
        offset += size
        if opcode == _FUNCTION:
            inside = operands[1] == entry
        elif opcode == _FUNCTION_END:
            inside = False
        elif inside and opcode not in _LINES:
            function.add(opcode, operands)
    labels = {
        label
        for opcode, operands in function.instructions
        for label in {_BRANCH: operands[:1], _BRANCH_CONDITIONAL: operands[1:3]}.get(opcode, ())
    }
    return function if labels <= function.starts.keys() else None


def _is_used_elsewhere(module: Module, function: _Function, variables: set[int]) -> bool:
    """Whether another function has one of the variables among its operands."""
    return any(
        not variables.isdisjoint(operands)
        for identity, other in module.functions.items()
        if identity != function.identity
        for _, operands in other.instructions
    )
