"""The shared memory of a work-group: the variables of storage class Workgroup and their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import CodeUses
from gpu_executor.spirv.constants import evaluate_integer, find_spec_id, read_scalar_type
from gpu_executor.spirv.module import SPEC_ID, WHOLE, Module

_WORKGROUP = 4  # Spec, "Storage Class"
_DEEPEST_TYPE = 64  # far more than compilers emit, and well within Python's recursion limit
_BOOL_BYTES = 4  # Vulkan counts a bool as a 32-bit integer


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The types of the shared variables that the code uses, with all that defines their sizes."""

    types: tuple[int, ...] = ()
    definitions: tuple[tuple[int, str, tuple[int, ...]], ...] = ()  # id, name, operands
    spec_ids: tuple[tuple[int, int], ...] = ()  # the SpecIds of constants in `definitions`

    def __bool__(self) -> bool:
        return bool(self.types)

    def measure(self, values: Mapping[int, int | float | bool]) -> int:
        """Return the bytes of shared memory that a work-group needs at least.

        `values` are specialization constants by SpecId; the others have their defaults. The types
        have the std430 layout, and the variables the order that needs no padding between them:
        Vulkan leaves the order to the device. A type whose size is not known counts nothing.
        """
        if not self.types:
            return 0
        module = Module((1, 0))
        module.definitions = {target: (name, ids) for target, name, ids in self.definitions}
        module.decorations = {(target, WHOLE): {SPEC_ID: at} for target, at in self.spec_ids}
        return sum(_measure_type(module, each, values, 0)[0] for each in self.types)


def read_shared_memory(module: Module, uses: CodeUses) -> SharedMemory:
    """Return the shared memory of the code."""
    types = tuple(
        module.pointee(variable)
        for variable in module.all("OpVariable")
        if variable[2] == _WORKGROUP and uses.mentions(variable[1])
    )
    needed, waiting = dict.fromkeys(types), list(types)
    while waiting:
        # Literals among the operands may be taken for ids here, which does no harm.
        for operand in module.definition(waiting.pop())[1]:
            if operand in module.definitions and operand not in needed:
                needed[operand] = None
                waiting.append(operand)
    spec_ids = ((target, find_spec_id(module, target)) for target in needed)
    return SharedMemory(
        types,
        tuple((target, *module.definition(target)) for target in needed),
        tuple((target, spec_id) for target, spec_id in spec_ids if spec_id is not None),
    )


def _measure_type(
    module: Module, type_id: int, values: Mapping[int, int | float | bool], depth: int
) -> tuple[int, int]:
    """Return the size and the alignment of a type in bytes; (0, 1) if its size is not known."""
    if depth > _DEEPEST_TYPE:
        raise SpirvError(f"type %{type_id} is nested too deep, or contains itself")
    name, operands = module.definition(type_id)
    scalar = read_scalar_type(module, type_id)
    if scalar is not None:
        return scalar[1] // 8, scalar[1] // 8
    if name == "OpTypeBool":
        return _BOOL_BYTES, _BOOL_BYTES
    if name in ("OpTypeVector", "OpTypeMatrix", "OpTypeArray"):
        size, alignment = _measure_type(module, operands[1], values, depth + 1)
        if name == "OpTypeVector":
            return operands[2] * size, size * (2 if operands[2] == 2 else 4)
        count = operands[2]
        if name == "OpTypeArray":
            count = max(evaluate_integer(module, operands[2], values) or 0, 0)
        return count * (-(-size // alignment) * alignment), alignment
    if name == "OpTypeStruct":
        end, largest = 0, 1
        for member in operands[1:]:
            size, alignment = _measure_type(module, member, values, depth + 1)
            alignment = max(alignment, 1)
            end, largest = -(-end // alignment) * alignment + size, max(largest, alignment)
        return -(-end // largest) * largest, largest
    return 0, 1
