"""The interface blocks of a shader: its storage buffers and its push constants.

Any other resource is refused. The sizes of push constants follow from the explicit layout of their
types: offsets of members, strides of arrays and matrices.
"""

from __future__ import annotations

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import read_constant, read_scalar_type
from gpu_executor.spirv.module import (
    ARRAY_STRIDE,
    BINDING,
    BUFFER_BLOCK,
    DESCRIPTOR_SET,
    MATRIX_STRIDE,
    NON_WRITABLE,
    OFFSET,
    ROW_MAJOR,
    Module,
)

# Spec, "Storage Class"
_UNIFORM_CONSTANT, _UNIFORM, _PUSH_CONSTANT, _STORAGE_BUFFER = 0, 2, 9, 12
_PHYSICAL_STORAGE_BUFFER = 5349
_DEEPEST_TYPE = 64  # far more than compilers emit, and well within Python's recursion limit
_RESOURCE_NAMES = {
    "OpTypeImage": "an image",
    "OpTypeSampler": "a sampler",
    "OpTypeSampledImage": "a combined image and sampler",
    "OpTypeAccelerationStructureKHR": "an acceleration structure",
    "OpTypeArray": "an array of resources",
    "OpTypeRuntimeArray": "an array of resources",
    "OpTypeStruct": "a uniform buffer",
}


# --- storage buffers ---


def read_storage_buffers(module: Module) -> dict[int, bool]:
    """Return the bindings of set 0 and, for each, whether the shader declares it writable."""
    writable: dict[int, bool] = {}
    for variable in module.all("OpVariable"):
        if variable[2] in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
            pointee = module.pointee(variable)
            binding = _read_binding(module, variable, pointee)
            writes = not _is_read_only(module, variable[1], pointee)
            writable[binding] = writable.get(binding, False) or writes
    return writable


def _read_binding(module: Module, variable: tuple[int, ...], pointee: int) -> int:
    _, target, storage_class = variable[:3]
    binding = module.decoration(target, BINDING)
    descriptor_set = module.decoration(target, DESCRIPTOR_SET)
    if binding is None or descriptor_set is None:
        raise SpirvError(
            f"resource %{target} has no binding: declare it with layout(set = 0, binding = ...)"
        )
    name = module.definition(pointee)[0]
    is_buffer = (
        storage_class == _STORAGE_BUFFER or module.decoration(pointee, BUFFER_BLOCK) is not None
    )
    if name != "OpTypeStruct" or not is_buffer:
        what = _RESOURCE_NAMES.get(name, f"a resource of {name}")
        raise SpirvError(f"binding {binding} is {what}: only single storage buffers are supported")
    if descriptor_set != 0:
        raise SpirvError(
            f"binding {binding} is in descriptor set {descriptor_set}: use set 0, the only one "
            "that is bound"
        )
    return binding


def _is_read_only(module: Module, variable: int, block: int) -> bool:
    members = range(len(module.definition(block)[1]) - 1)
    return module.decoration(variable, NON_WRITABLE) is not None or (
        all(module.decoration(block, NON_WRITABLE, at) is not None for at in members)
        and len(members) > 0
    )


# --- push constants ---


def read_push_constant_bytes(module: Module) -> int:
    """Return the size of the largest push-constant block in bytes, rounded up to a multiple of
    4.
    """
    variables = [v for v in module.all("OpVariable") if v[2] == _PUSH_CONSTANT]
    size = max((_get_type_size(module, module.pointee(v)) for v in variables), default=0)
    return -(-size // 4) * 4


def _get_type_size(module: Module, type_id: int, depth: int = 0) -> int:
    """Return the size of a type in bytes; cached, because a type can be a member many times."""
    if depth > _DEEPEST_TYPE:
        raise SpirvError(
            f"type %{type_id} of the push constants is nested too deep, or contains itself"
        )
    if type_id not in module.type_sizes:
        module.type_sizes[type_id] = _compute_size(module, type_id, depth)
    return module.type_sizes[type_id]


def _compute_size(module: Module, type_id: int, depth: int) -> int:
    name, operands = module.definition(type_id)
    scalar = read_scalar_type(module, type_id)
    if scalar is not None:
        return scalar[1] // 8
    if name == "OpTypeVector":
        return operands[2] * _get_type_size(module, operands[1], depth + 1)
    if name == "OpTypeArray":
        return _compute_array_size(module, type_id, operands[2])
    if name == "OpTypeStruct":
        members = enumerate(operands[1:])
        return max((_get_member_end(module, type_id, at, m, depth) for at, m in members), default=0)
    if name == "OpTypePointer" and operands[1] == _PHYSICAL_STORAGE_BUFFER:
        return 8
    raise SpirvError(
        f"the push constants hold {name} (%{type_id}): only scalars, vectors, matrices, arrays, "
        "structs and buffer references are supported"
    )


def _compute_array_size(module: Module, type_id: int, length_id: int) -> int:
    length, stride = read_constant(module, length_id), module.decoration(type_id, ARRAY_STRIDE)
    if length is None or length.kind not in ("int", "uint") or length.value < 1 or stride is None:
        raise SpirvError(
            f"array %{type_id} of the push constants needs an ArrayStride and a length that is a "
            "plain or specialization constant of at least 1"
        )
    return int(length.value) * stride


def _get_member_end(module: Module, block: int, member: int, type_id: int, depth: int) -> int:
    """Return the offset of the first byte after a member."""
    offset = module.decoration(block, OFFSET, member)
    if offset is None:
        raise SpirvError(f"member {member} of the push constants' struct %{block} has no Offset")
    name, operands = module.definition(type_id)
    stride = module.decoration(block, MATRIX_STRIDE, member)
    if name != "OpTypeMatrix" or stride is None:
        return offset + _get_type_size(module, type_id, depth + 1)
    # One stride per column, or per row if the rows are contiguous.
    column_name, column = module.definition(operands[1])
    if module.decoration(block, ROW_MAJOR, member) is not None and column_name == "OpTypeVector":
        return offset + stride * column[2]
    return offset + stride * operands[2]
