"""How many bytes the push constants take, from the types of their members."""

from __future__ import annotations

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import constant_of, scalar_of
from gpu_executor.spirv.module import ARRAY_STRIDE, MATRIX_STRIDE, OFFSET, ROW_MAJOR, Module

_PUSH_CONSTANT, _PHYSICAL = 9, 5349  # Spec, "Storage Class"
_DEEPEST_TYPE = 64  # far beyond what compilers emit, and well within Python's recursion limit


def push_constant_bytes(module: Module) -> int:
    """Bytes of the largest block, rounded up to a multiple of 4."""
    variables = [v for v in module.all("OpVariable") if v[2] == _PUSH_CONSTANT]
    size = max((_size(module, module.pointee(v)) for v in variables), default=0)
    return -(-size // 4) * 4


def _size(module: Module, type_id: int, depth: int = 0) -> int:
    """Bytes of a type in a push-constant block; kept, as one type can be a member many times."""
    if depth > _DEEPEST_TYPE:
        raise SpirvError(f"type %{type_id} of the push constants is nested too deep, or in itself")
    if type_id not in module.sizes:
        module.sizes[type_id] = _computed_size(module, type_id, depth)
    return module.sizes[type_id]


def _computed_size(module: Module, type_id: int, depth: int) -> int:
    name, operands = module.definition(type_id)
    scalar = scalar_of(module, type_id)
    if scalar is not None:
        return scalar[1] // 8
    if name == "OpTypeVector":
        return operands[2] * _size(module, operands[1], depth + 1)
    if name == "OpTypeArray":
        return _array_size(module, type_id, operands[2])
    if name == "OpTypeStruct":
        members = enumerate(operands[1:])
        return max((_member_end(module, type_id, at, m, depth) for at, m in members), default=0)
    if name == "OpTypePointer" and operands[1] == _PHYSICAL:
        return 8
    raise SpirvError(f"the push constants hold {name} (%{type_id}), which has no known size there")


def _array_size(module: Module, type_id: int, length_id: int) -> int:
    length, stride = constant_of(module, length_id), module.decoration(type_id, ARRAY_STRIDE)
    if length is None or length.kind not in ("int", "uint") or length.value < 1 or stride is None:
        raise SpirvError(
            f"array %{type_id} of the push constants needs an ArrayStride and a length that is a "
            "plain or specialization constant of at least 1"
        )
    return int(length.value) * stride


def _member_end(module: Module, block: int, member: int, type_id: int, depth: int) -> int:
    offset = module.decoration(block, OFFSET, member)
    if offset is None:
        raise SpirvError(f"member {member} of the push constants' struct %{block} has no Offset")
    name, operands = module.definition(type_id)
    stride = module.decoration(block, MATRIX_STRIDE, member)
    if name != "OpTypeMatrix" or stride is None:
        return offset + _size(module, type_id, depth + 1)
    # One stride per column, or per row where the rows are contiguous.
    column_name, column = module.definition(operands[1])
    if module.decoration(block, ROW_MAJOR, member) is not None and column_name == "OpTypeVector":
        return offset + stride * column[2]
    return offset + stride * operands[2]
