"""What a shader's code does through its variables: loads, stores, atomic operations.

Pointers are followed from a variable through access chains, copies, phis, selections and function
calls. Only functions that the entry point reaches count. A pointer that goes into an instruction
that this module does not know may be loaded from and stored to.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.module import Module

Access = Literal["in", "out", "inout"]
"""Whether a kernel reads a buffer, writes it, or both."""

# What happens through a pointer; flags of one int. An atomic operation that changes memory is
# also a STORE. It is no LOAD: a histogram starts from zeros; what its atomicAdd reads is its own.
LOAD, STORE, ATOMIC, UNKNOWN = 1, 2, 4, 8

# Spec, "Instructions": the position of the pointer among the operands, by opcode.
_LOADS = {61: 2, 4457: 2, 5359: 2}  # OpLoad, OpCooperativeMatrixLoadKHR, -NV
_STORES = {62: 0, 4458: 0, 5360: 0}  # OpStore, OpCooperativeMatrixStoreKHR, -NV
_ATOMIC_LOAD, _ATOMIC_STORE = 227, 228
_ATOMICS = {
    **dict.fromkeys(range(229, 243), 2),  # OpAtomicExchange .. OpAtomicXor
    **dict.fromkeys((318, 5614, 5615, 6035), 2),  # FlagTestAndSet, FMinEXT, FMaxEXT, FAddEXT
    319: 0,  # OpAtomicFlagClear
}
_USES: dict[int, tuple[int, int]] = {
    **{opcode: (LOAD, at) for opcode, at in _LOADS.items()},
    **{opcode: (STORE, at) for opcode, at in _STORES.items()},
    **{opcode: (STORE | ATOMIC, at) for opcode, at in _ATOMICS.items()},
    _ATOMIC_LOAD: (LOAD | ATOMIC, 2),
    _ATOMIC_STORE: (STORE | ATOMIC, 0),
}
# Access chains, OpCopyObject, OpBitcast, OpCopyLogical, OpRawAccessChainNV: result and base.
_DERIVATIONS = frozenset((65, 66, 67, 70, 83, 124, 400, 5398))
_COPY_MEMORY = frozenset((63, 64))
_EXTENDED, _FUNCTION_CALL, _SELECT, _PHI, _RETURN_VALUE = 12, 57, 169, 245, 254
_CONTROL_BARRIER = 224
_GLSL_MODF, _GLSL_FREXP = 35, 51  # GLSL.std.450: both store through their last operand


@dataclass(slots=True)
class CodeUses:
    """The uses of pointers in the functions that the entry point reaches."""

    has_barriers: bool = False
    uses: dict[int, int] = field(default_factory=dict)  # flags by pointer id
    derived: dict[int, list[int]] = field(default_factory=dict)  # pointer ids made from others

    def through(self, variable: int) -> int:
        """Return the flags of everything that happens through a variable."""
        flags, seen, waiting = 0, {variable}, [variable]
        while waiting:
            pointer = waiting.pop()
            flags |= self.uses.get(pointer, 0)
            for derived in self.derived.get(pointer, ()):
                if derived not in seen:
                    seen.add(derived)
                    waiting.append(derived)
        return flags

    def mentions(self, variable: int) -> bool:
        """Return whether the code uses a variable at all."""
        return variable in self.uses or variable in self.derived


def read_uses(module: Module, entry: int) -> CodeUses:
    """Return what the code reachable from the function `entry` does through pointers."""
    found = CodeUses()
    for variable in module.all("OpVariable"):
        for initializer in variable[3:]:  # a pointer in memory is not followed
            found.uses[initializer] = UNKNOWN
    returned: dict[int, list[int]] = {}  # the values that a function returns
    results: dict[int, list[int]] = {}  # the results of the calls of a function
    reached, waiting = {entry}, [entry]
    while waiting:
        function = waiting.pop()
        for opcode, operands in module.functions[function].instructions:
            if opcode == _FUNCTION_CALL:
                called = operands[2]
                if called not in module.functions:
                    raise SpirvError(f"the code calls %{called}, which is not a function")
                results.setdefault(called, []).append(operands[1])
                parameters = module.functions[called].parameters
                for argument, parameter in zip(operands[3:], parameters, strict=False):
                    found.derived.setdefault(argument, []).append(parameter)
                if called not in reached:
                    reached.add(called)
                    waiting.append(called)
            elif opcode == _RETURN_VALUE:
                returned.setdefault(function, []).append(operands[0])
            else:
                _add_use(module, found, opcode, operands)
    for function, values in returned.items():
        for value in values:
            found.derived.setdefault(value, []).extend(results.get(function, ()))
    return found


def _add_use(module: Module, found: CodeUses, opcode: int, operands: tuple[int, ...]) -> None:
    """Add what one instruction does with its operands that may be pointers."""
    uses, derived = found.uses, found.derived
    if opcode in _USES:
        flags, at = _USES[opcode]
        uses[operands[at]] = uses.get(operands[at], 0) | flags
        if opcode in _STORES:  # a stored pointer is no longer followed
            uses[operands[1]] = uses.get(operands[1], 0) | UNKNOWN
    elif opcode in _DERIVATIONS:
        derived.setdefault(operands[2], []).append(operands[1])
    elif opcode in (_PHI, _SELECT):
        for value in operands[2::2] if opcode == _PHI else operands[3:5]:
            derived.setdefault(value, []).append(operands[1])
    elif opcode in _COPY_MEMORY:
        uses[operands[0]] = uses.get(operands[0], 0) | STORE
        uses[operands[1]] = uses.get(operands[1], 0) | LOAD
    elif opcode == _CONTROL_BARRIER:
        found.has_barriers = True
    elif opcode == _EXTENDED:
        _add_extended_use(module, found, operands)
    else:
        for value in operands:
            uses[value] = uses.get(value, 0) | UNKNOWN


def _add_extended_use(module: Module, found: CodeUses, operands: tuple[int, ...]) -> None:
    """Add the use of pointers by an instruction of an extended set."""
    instruction_set = module.name_of_set(operands[2])
    if instruction_set == "GLSL.std.450":
        flags = STORE if operands[3] in (_GLSL_MODF, _GLSL_FREXP) else 0
        pointers = operands[-1:] if flags else ()
    elif instruction_set.startswith("NonSemantic.") or "DebugInfo" in instruction_set:
        return
    else:
        flags, pointers = UNKNOWN, operands[4:]
    for pointer in pointers:
        found.uses[pointer] = found.uses.get(pointer, 0) | flags
