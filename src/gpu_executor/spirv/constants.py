"""Scalar types and constants, and the specialization constants among them."""

from __future__ import annotations

import numbers
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.module import SPEC_ID, Module

Kind = Literal["bool", "int", "uint", "float"]

# The struct format that reads a constant's default and writes its specialization data.
_FORMATS: dict[tuple[Kind, int], str] = {
    ("bool", 32): "<I",
    **{("int", bits): f"<{code}" for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))},
    **{("uint", bits): f"<{code}" for bits, code in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    **{("float", bits): f"<{code}" for bits, code in ((16, "e"), (32, "f"), (64, "d"))},
}
_DEEPEST_EXPRESSION = 64  # far more than compilers emit, and well within Python's recursion limit
_UCONVERT, _SCONVERT, _SELECT = 113, 114, 169
_VECTOR_SHUFFLE, _COMPOSITE_EXTRACT, _COMPOSITE_INSERT = 79, 81, 82
# Spec, OpSpecConstantOp: the operations on integers that array lengths are made of.
_OPERATIONS: dict[int, Callable[[int, int], int]] = {
    128: operator.add, 130: operator.sub, 132: operator.mul,
    134: operator.floordiv, 137: operator.mod,  # OpUDiv, OpUMod
    135: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),  # OpSDiv
    138: lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),  # OpSRem
    139: operator.mod,  # OpSMod
    194: operator.rshift, 195: operator.rshift, 196: operator.lshift,
    197: operator.or_, 198: operator.xor, 199: operator.and_,
    166: operator.or_, 167: operator.and_, 164: operator.eq, 165: operator.ne,  # of bools
    170: operator.eq, 171: operator.ne, 172: operator.gt, 173: operator.gt, 174: operator.ge,
    175: operator.ge, 176: operator.lt, 177: operator.lt, 178: operator.le, 179: operator.le,
}  # fmt: skip
_UNARY: dict[int, Callable[[int], int]] = {
    _UCONVERT: operator.pos, _SCONVERT: operator.pos, 126: operator.neg, 200: operator.invert,
    168: operator.not_,  # OpLogicalNot
}  # fmt: skip
_SHIFTS = frozenset((194, 195, 196))
# OpSConvert, OpSDiv, OpSRem, OpSMod, comparisons, OpShiftRightArithmetic: their operands are
# signed, whatever their types say. Those of all others are unsigned.
_SIGNED = frozenset((_SCONVERT, 135, 138, 139, 173, 175, 177, 179, 195))


@dataclass(frozen=True, slots=True)
class SpecConstant:
    """A specialization constant: its SpecId, its type and its default."""

    spec_id: int
    kind: Kind
    bits: int  # 32 for a bool, which Vulkan passes as a VkBool32
    default: int | float | bool

    def encode(self, value: int | float | bool) -> bytes:
        """Return `value` as the little-endian bytes of Vulkan's specialization data."""
        if not self._is_of_kind(value):
            raise self._make_refusal(value)
        try:
            return struct.pack(_FORMATS[self.kind, self.bits], value)
        except (struct.error, OverflowError):
            raise self._make_refusal(value) from None

    def decode(self, encoded: bytes) -> int | float | bool:
        """Return the value of bytes that `encode` made."""
        value: int | float = struct.unpack(_FORMATS[self.kind, self.bits], encoded)[0]
        return bool(value) if self.kind == "bool" else value

    def _is_of_kind(self, value: object) -> bool:
        if self.kind == "bool" or isinstance(value, bool):
            return self.kind == "bool" and isinstance(value, bool)
        # NumPy's scalars are registered with these abstract types.
        return isinstance(value, numbers.Real if self.kind == "float" else numbers.Integral)

    def _make_refusal(self, value: object) -> SpirvError:
        fits = {
            "bool": "True or False",
            "int": f"an int in {-1 << (self.bits - 1)} .. {(1 << (self.bits - 1)) - 1}",
            "uint": f"an int in 0 .. {(1 << self.bits) - 1}",
            "float": f"a number in the range of a {self.bits}-bit float",
        }[self.kind]
        found = type(value).__name__
        if isinstance(value, int) and value.bit_length() > 128:  # str() refuses very long ints
            found += f" of {value.bit_length()} bits"
        elif isinstance(value, numbers.Real):
            found += f" {value}"
        return SpirvError(
            f"specialization constant {self.spec_id} is a {self.bits}-bit {self.kind}: "
            f"found {found}; give {fits}"
        )


class Constant(NamedTuple):
    """A scalar constant: its type and its value, or its default if it can be specialized."""

    kind: Kind
    bits: int
    value: int | float | bool


def read_spec_constants(module: Module) -> tuple[SpecConstant, ...]:
    """Return the specialization constants, each SpecId once, sorted by SpecId."""
    found: dict[int, SpecConstant] = {}
    decorated = {target for (target, _), each in module.decorations.items() if SPEC_ID in each}
    for target in module.definitions if decorated else ():
        spec_id = find_spec_id(module, target) if target in decorated else None
        if spec_id is None:
            continue
        constant = read_constant(module, target)
        if constant is None:
            raise SpirvError(f"specialization constant {spec_id} is not a bool, int or float")
        # glslang emits a SpecId twice if it sets both a local size and a constant, each with its
        # own default. A specialized value sets both, so only their types must agree.
        first = found.setdefault(spec_id, SpecConstant(spec_id, *constant))
        if (first.kind, first.bits) != constant[:2]:
            raise SpirvError(
                f"specialization constant {spec_id} is both a {first.bits}-bit {first.kind} "
                f"and a {constant.bits}-bit {constant.kind}: declare one type per SpecId"
            )
    return tuple(found[spec_id] for spec_id in sorted(found))


def read_constant(module: Module, target: int) -> Constant | None:
    """Return the scalar constant with that id; None if the id is anything else."""
    name, operands = module.definition(target)
    if name.endswith(("ConstantTrue", "ConstantFalse")):
        return Constant("bool", 32, name.endswith("True"))
    scalar = (
        read_scalar_type(module, operands[0]) if name in ("OpConstant", "OpSpecConstant") else None
    )
    if scalar is None:
        return None
    kind, bits = scalar
    words = operands[2:]
    if len(words) != max(bits // 32, 1):
        raise SpirvError(
            f"constant %{target} is a {bits}-bit {kind}, but has {len(words)} words: "
            "the module is damaged"
        )
    raw = struct.pack(f"<{len(words)}I", *words)  # a narrow value is in the low bits (Spec 2.2.1)
    return Constant(kind, bits, struct.unpack_from(_FORMATS[kind, bits], raw)[0])


Values = Mapping[int, int | float | bool]
"""Specialization constants that are set, by SpecId; the others have their defaults."""


def evaluate_integer(
    module: Module,
    target: int,
    values: Values,
    results: dict[int, int | None] | None = None,
    depth: int = 0,
) -> int | None:
    """Return the value of an integer or bool constant, or of an expression of such constants.

    None if the id is anything else. `results` has those of the expressions evaluated so far: an
    expression may occur in another one many times.
    """
    name, operands = module.definition(target)
    if name != "OpSpecConstantOp":
        constant = read_constant(module, target)
        if constant is None or constant.kind == "float":
            return None
        spec_id = find_spec_id(module, target)
        return int(constant.value if spec_id is None else values.get(spec_id, constant.value))
    results = {} if results is None else results
    if target not in results:
        results[target] = None  # for an expression that contains itself
        if depth <= _DEEPEST_EXPRESSION:
            results[target] = _evaluate_operation(module, operands, values, results, depth + 1)
    return results[target]


def _evaluate_operation(
    module: Module,
    operands: tuple[int, ...],
    values: Values,
    results: dict[int, int | None],
    depth: int,
) -> int | None:
    """Return the value of an OpSpecConstantOp with these operands."""
    if operands[2] == _COMPOSITE_EXTRACT and len(operands) == 5:
        composite, parts = module.definition(operands[3])
        if not composite.endswith("ConstantComposite") or operands[4] >= len(parts) - 2:
            return None
        return evaluate_integer(module, parts[2 + operands[4]], values, results, depth)
    arguments: list[tuple[int, int | None]] = []
    for each in operands[3:]:
        value = evaluate_integer(module, each, values, results, depth)
        if value is None:
            return None
        scalar = read_scalar_type(module, next(iter(module.definition(each)[1]), 0))
        arguments.append((value, scalar and scalar[1]))
    return compute_integer(operands[2], arguments, read_scalar_type(module, operands[0]))


def compute_integer(
    opcode: int, arguments: Sequence[tuple[int, int | None]], kind: tuple[Kind, int] | None
) -> int | None:
    """Return the result of an operation on integers and bools; None if it is undefined.

    Each argument has a value and its bits, None for a bool. `kind` is the type of the result, None
    for a bool.
    """
    known = [
        _reinterpret(value, bits, signed=opcode in _SIGNED and not (opcode in _SHIFTS and at == 1))
        for at, (value, bits) in enumerate(arguments)
    ]
    result = _operate(opcode, known)
    if result is None or kind is None:
        return result
    return _reinterpret(result, kind[1], signed=kind[0] == "int")


def _reinterpret(value: int, bits: int | None, *, signed: bool) -> int:
    """Return an integer, read as a signed or as an unsigned one of its width; a bool as it is."""
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def can_compute(opcode: int) -> bool:
    """Whether `compute_integer` knows an operation."""
    return opcode in _OPERATIONS or opcode in _UNARY or opcode == _SELECT


def _operate(opcode: int, arguments: list[int]) -> int | None:
    """Return the result of one operation on integers; None if it is unknown or undefined."""
    if opcode in _UNARY and len(arguments) == 1:
        return int(_UNARY[opcode](*arguments))
    if opcode == _SELECT and len(arguments) == 3:
        return arguments[1] if arguments[0] else arguments[2]
    if opcode not in _OPERATIONS or len(arguments) != 2:
        return None
    if opcode in _SHIFTS and not 0 <= arguments[1] < 64:
        return None
    try:
        return int(_OPERATIONS[opcode](*arguments))
    except ZeroDivisionError:
        return None


def read_scalar_type(module: Module, type_id: int) -> tuple[Kind, int] | None:
    """Return the kind and the bits of an integer or float type of `_FORMATS`; None for other
    types.
    """
    name, operands = module.definition(type_id)
    kind: Kind = "float"
    if name == "OpTypeInt":
        kind = "int" if operands[2] else "uint"
    elif (
        name != "OpTypeFloat" or len(operands) > 2
    ):  # a third operand is an encoding such as bfloat16
        return None
    return (kind, operands[1]) if (kind, operands[1]) in _FORMATS else None


def list_operand_ids(name: str, operands: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ids that a constant expression or composite with these operands is made of."""
    if name.endswith("ConstantComposite"):
        return operands[2:]
    if name != "OpSpecConstantOp":
        return ()
    # The operands behind the first one or two of these are literals.
    most = {_COMPOSITE_EXTRACT: 1, _COMPOSITE_INSERT: 2, _VECTOR_SHUFFLE: 2}.get(operands[2])
    return operands[3:] if most is None else operands[3 : 3 + most]


def list_spec_ids(module: Module, target: int) -> set[int]:
    """Return the SpecIds that a constant, or an expression of constants, depends on."""
    found: set[int] = set()
    seen, waiting = {target}, [target]
    while waiting:
        each = waiting.pop()
        spec_id = find_spec_id(module, each)
        if spec_id is not None:
            found.add(spec_id)
        for operand in list_operand_ids(*module.definition(each)):
            if operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return found


def find_spec_id(module: Module, target: int) -> int | None:
    """Return the SpecId of a specialization constant; None for other ids."""
    is_spec = module.definition(target)[0].startswith("OpSpecConstant")
    return module.decoration(target, SPEC_ID) if is_spec else None
