"""Specialization: a module whose specialization constants have become plain constants.

Drivers specialize modules themselves. A module is specialized here where the code must be changed
before a driver sees it, and where an interface takes no specialization constants.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import (
    Kind,
    can_compute,
    compute_integer,
    list_operand_ids,
)
from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op
from gpu_executor.spirv.module import BUILT_IN, SPEC_ID

Value: TypeAlias = "int | float | tuple[Value, ...]"
"""A constant: a scalar (bools are integers), or the parts of a composite."""
_WORKGROUP_SIZE = 25  # Spec, "BuiltIn"
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38  # Spec, "Execution Mode"
_FLOAT_FORMATS = {16: "<e", 32: "<f", 64: "<d"}
_F_CONVERT, _QUANTIZE = 115, 116


def specialize(code: bytes, constants: Mapping[int, int | float | bool]) -> bytes:
    """Return the module with its specialization constants set; others keep their defaults."""
    return _Specialization(ModuleEditor(code), constants).run()


class _Specialization:
    """Specializes one module."""

    def __init__(self, editor: ModuleEditor, constants: Mapping[int, int | float | bool]) -> None:
        self._editor, self._constants = editor, constants
        self._types = editor.map_types()
        self._spec_ids = {
            operands[0]: operands[2]
            for opcode, operands in editor.preamble
            if opcode == Op.DECORATE and operands[1] == SPEC_ID
        }
        self._values: dict[int, Value] = {}
        """The constants so far, by id. Null constants of arrays and structs are not among them."""
        self._type_of: dict[int, int] = {}
        self._out: list[Instruction] = []

    def run(self) -> bytes:
        """Return the specialized module."""
        editor = self._editor
        for opcode, operands in editor.declarations:
            self._specialize(opcode, operands)
        editor.declarations = self._out
        self._set_local_size()
        return editor.encode()

    # --- types ---

    def _read_kind(self, type_id: int) -> tuple[Kind, int] | None:
        """The kind and the bits of a number; None for a bool."""
        opcode, operands = self._types[type_id]
        if opcode == Op.TYPE_INT:
            return ("int" if operands[1] else "uint"), operands[0]
        return ("float", operands[0]) if opcode == Op.TYPE_FLOAT else None

    def _list_parts(self, type_id: int, count: int) -> list[int]:
        """The types of the parts of a composite."""
        opcode, operands = self._types[type_id]
        return list(operands) if opcode == Op.TYPE_STRUCT else [operands[0]] * count

    # --- values ---

    def _specialize(self, opcode: int, operands: tuple[int, ...]) -> None:
        """Copy one declaration; a specialization constant becomes a plain one."""
        value = self._find_value(opcode, operands)
        if value is not None:
            type_id, result = operands[:2]
            self._values[result], self._type_of[result] = value, type_id
            if opcode == Op.SPEC_CONSTANT_COMPOSITE:
                opcode = Op.CONSTANT_COMPOSITE
            elif Op.SPEC_CONSTANT_TRUE <= opcode <= Op.SPEC_CONSTANT_OP:
                self._declare(type_id, result, value)
                return
        self._out.append((opcode, operands))

    def _find_value(self, opcode: int, operands: tuple[int, ...]) -> Value | None:
        """The value that a declaration has; None if it is no constant or a null constant."""
        if opcode in (Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE, Op.SPEC_CONSTANT):
            chosen = self._constants.get(self._spec_ids.get(operands[1], -1))
            if chosen is not None:
                return chosen
        value: Value | None = None
        if opcode == Op.SPEC_CONSTANT_OP:
            value = self._compute(operands)
        elif opcode in (Op.CONSTANT_COMPOSITE, Op.SPEC_CONSTANT_COMPOSITE):
            if all(part in self._values for part in operands[2:]):
                value = tuple(self._values[part] for part in operands[2:])
        elif opcode == Op.CONSTANT_NULL:
            value = self._make_null(operands[0])
        elif opcode in (Op.CONSTANT, Op.SPEC_CONSTANT):
            value = self._decode(operands[0], operands[2:])
        elif Op.CONSTANT_TRUE <= opcode <= Op.SPEC_CONSTANT_FALSE:
            value = int(opcode in (Op.CONSTANT_TRUE, Op.SPEC_CONSTANT_TRUE))
        return value

    def _make_null(self, type_id: int) -> Value | None:
        """The zero of a scalar or vector type; None for other types."""
        opcode, operands = self._types[type_id]
        if opcode == Op.TYPE_VECTOR:
            return (0,) * operands[1]
        return 0 if opcode in (Op.TYPE_BOOL, Op.TYPE_INT, Op.TYPE_FLOAT) else None

    def _decode(self, type_id: int, words: Sequence[int]) -> int | float:
        kind = self._read_kind(type_id)
        assert kind is not None, "bools have no words"
        raw = struct.pack(f"<{len(words)}I", *words)
        if kind[0] == "float":
            value: float = struct.unpack_from(_FLOAT_FORMATS[kind[1]], raw)[0]
            return value
        # A narrow integer is in the low bits of a word (Spec 2.2.1).
        return int.from_bytes(raw[: kind[1] // 8], "little", signed=kind[0] == "int")

    def _declare(self, type_id: int, result: int, value: Value) -> None:
        """Declare a constant with that id."""
        if isinstance(value, tuple):
            parts = []
            for part_type, part in zip(self._list_parts(type_id, len(value)), value, strict=True):
                parts.append(self._editor.make_id())
                self._declare(part_type, parts[-1], part)
            self._out.append((Op.CONSTANT_COMPOSITE, (type_id, result, *parts)))
            return
        kind = self._read_kind(type_id)
        if kind is None:
            self._out.append((Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE, (type_id, result)))
            return
        if kind[0] == "float":
            raw = struct.pack(_FLOAT_FORMATS[kind[1]], value)
        else:
            # A narrow integer is in the low bits of a word, sign-extended (Spec 2.2.1).
            width = max(kind[1], 32)
            raw = (int(value) & ((1 << width) - 1)).to_bytes(width // 8, "little")
        words = struct.unpack(f"<{max(kind[1] // 32, 1)}I", raw.ljust(4, b"\0"))
        self._out.append((Op.CONSTANT, (type_id, result, *words)))

    # --- operations ---

    def _compute(self, operands: tuple[int, ...]) -> Value:
        """The value of an OpSpecConstantOp."""
        type_id, result, opcode, *rest = operands
        ids = list_operand_ids("OpSpecConstantOp", operands)
        if not all(each in self._values for each in ids):
            raise SpirvError(f"constant %{result} depends on what is no constant of known value")
        values, literals = [self._values[each] for each in ids], rest[len(ids) :]
        if opcode == Op.COMPOSITE_EXTRACT:
            return _extract(values[0], literals)
        if opcode == Op.COMPOSITE_INSERT:
            return _insert(values[1], literals, values[0])
        if opcode == Op.VECTOR_SHUFFLE:
            both = _join(values)
            return tuple(0 if each == 0xFFFFFFFF else both[each] for each in literals)
        if opcode == Op.SELECT and not isinstance(values[0], tuple):
            return values[1] if values[0] else values[2]
        types = [self._type_of[each] for each in ids]
        if self._types[type_id][0] != Op.TYPE_VECTOR:
            return self._compute_scalar(result, opcode, type_id, types, values)
        scalars = [self._types[each][1][0] for each in types]
        return tuple(
            self._compute_scalar(result, opcode, self._types[type_id][1][0], scalars, each)
            for each in zip(*(_join([value]) for value in values), strict=True)
        )

    def _compute_scalar(
        self,
        result: int,
        opcode: int,
        type_id: int,
        types: Sequence[int],
        values: Sequence[Value],
    ) -> Value:
        if opcode == Op.SELECT:
            return values[1] if values[0] else values[2]
        kind, first = self._read_kind(type_id), values[0]
        if opcode in (_F_CONVERT, _QUANTIZE) and kind is not None:
            assert not isinstance(first, tuple)
            return _round(first, 16 if opcode == _QUANTIZE else kind[1])
        if not can_compute(opcode) or (kind is not None and kind[0] == "float"):
            raise SpirvError(f"constant %{result} has operation {opcode}, which is not known")
        bits = [each and each[1] for each in map(self._read_kind, types)]
        integers = [int(each) for each in values if not isinstance(each, tuple)]
        # What is undefined, such as a shift by more bits than there are, may have any value.
        return compute_integer(opcode, list(zip(integers, bits, strict=True)), kind) or 0

    # --- the work-group ---

    def _set_local_size(self) -> None:
        """State the size of a work-group as three numbers; drop the decorations of constants."""
        editor = self._editor
        built_in: Value | None = None
        for opcode, operands in editor.preamble:
            if opcode == Op.DECORATE and operands[1:] == (BUILT_IN, _WORKGROUP_SIZE):
                built_in = self._values[operands[0]]
        preamble: list[Instruction] = []
        for opcode, operands in editor.preamble:
            if opcode == Op.DECORATE and (
                operands[1] == SPEC_ID or operands[1:] == (BUILT_IN, _WORKGROUP_SIZE)
            ):
                continue
            size: Value | None = None
            if opcode == Op.EXECUTION_MODE_ID and operands[1] == _LOCAL_SIZE_ID:
                size = tuple(self._values[each] for each in operands[2:])
            elif opcode == Op.EXECUTION_MODE and operands[1] == _LOCAL_SIZE:
                size = operands[2:]
            if size is not None:
                extents = _join([size if built_in is None else built_in])
                words = [int(each) for each in extents if not isinstance(each, tuple)]
                preamble.append((Op.EXECUTION_MODE, (operands[0], _LOCAL_SIZE, *words)))
            else:
                preamble.append((opcode, operands))
        editor.preamble = preamble


def _extract(value: Value, indices: Sequence[int]) -> Value:
    for index in indices:
        assert isinstance(value, tuple), "the module is valid"
        value = value[index]
    return value


def _insert(composite: Value, indices: Sequence[int], part: Value) -> Value:
    if not indices:
        return part
    assert isinstance(composite, tuple), "the module is valid"
    first, *rest = indices
    return (*composite[:first], _insert(composite[first], rest, part), *composite[first + 1 :])


def _join(composites: Sequence[Value]) -> tuple[Value, ...]:
    """The parts of several composites."""
    return tuple(part for each in composites if isinstance(each, tuple) for part in each)


def _round(value: float, bits: int) -> float:
    """The number as a float of that width."""
    try:
        rounded: float = struct.unpack(
            _FLOAT_FORMATS[bits], struct.pack(_FLOAT_FORMATS[bits], value)
        )[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded
