"""The shared memory of a work-group: the variables of storage class Workgroup and their size."""

from __future__ import annotations

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import CodeUses
from gpu_executor.spirv.constants import Values, evaluate_integer, find_spec_id, read_scalar_type
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

    def measure(self, values: Values) -> int:
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
        measurement = _Measurement(module, values)
        return sum(measurement.measure(each)[0] for each in self.types)


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


class _Measurement:
    """The sizes and alignments of types in bytes, each computed once."""

    def __init__(self, module: Module, values: Values) -> None:
        self._module, self._values = module, values
        self._sizes: dict[int, tuple[int, int]] = {}

    def measure(self, type_id: int, depth: int = 0) -> tuple[int, int]:
        """Return the size and the alignment of a type; (0, 1) if its size is not known."""
        if depth > _DEEPEST_TYPE:
            raise SpirvError(f"type %{type_id} is nested too deep, or contains itself")
        if type_id not in self._sizes:
            size, alignment = self._compute(type_id, depth + 1)
            self._sizes[type_id] = size, max(alignment, 1)
        return self._sizes[type_id]

    def _compute(self, type_id: int, depth: int) -> tuple[int, int]:
        name, operands = self._module.definition(type_id)
        scalar = read_scalar_type(self._module, type_id)
        if scalar is not None or name == "OpTypeBool":
            size = _BOOL_BYTES if scalar is None else scalar[1] // 8
            return size, size
        if name == "OpTypeVector":
            size, _ = self.measure(operands[1], depth)
            return operands[2] * size, size * (2 if operands[2] == 2 else 4)
        if name in ("OpTypeMatrix", "OpTypeArray"):
            size, alignment = self.measure(operands[1], depth)
            count = operands[2]
            if name == "OpTypeArray":
                count = max(evaluate_integer(self._module, operands[2], self._values) or 0, 0)
            return count * _round_up(size, alignment), alignment
        end, largest = 0, 1
        for member in operands[1:] if name == "OpTypeStruct" else ():
            size, alignment = self.measure(member, depth)
            end, largest = _round_up(end, alignment) + size, max(largest, alignment)
        return _round_up(end, largest), largest


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
