"""The interface blocks of a shader: storage buffers, a uniform buffer and push constants.

Any other resource is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import ATOMIC, LOAD, STORE, UNKNOWN, Access, CodeUses
from gpu_executor.spirv.constants import Values
from gpu_executor.spirv.members import BlockMember, flatten_members
from gpu_executor.spirv.module import (
    BINDING,
    BUFFER_BLOCK,
    DESCRIPTOR_SET,
    NON_READABLE,
    NON_WRITABLE,
    WHOLE,
    Module,
)
from gpu_executor.spirv.types import TypeLayout, TypeReader, find_used_bytes, make_dtype

# Spec, "Storage Class"
_UNIFORM_CONSTANT, _UNIFORM, _PUSH_CONSTANT, _STORAGE_BUFFER = 0, 2, 9, 12
_MOST_PUSH_BYTES = 1 << 16  # far beyond the limits of devices, 128 to 4,096 bytes
_RESOURCE_NAMES = {
    "OpTypeImage": "an image",
    "OpTypeSampler": "a sampler",
    "OpTypeSampledImage": "a combined image and sampler",
    "OpTypeAccelerationStructureKHR": "an acceleration structure",
    "OpTypeArray": "an array of resources",
    "OpTypeRuntimeArray": "an array of resources",
}


@dataclass(frozen=True, slots=True)
class StorageBlock:
    """A storage buffer of descriptor set 0."""

    binding: int
    name: str  # the variable's, else the block's; "" if the compiler removed both
    access: Access  # by what the code does through the variable, and by its decorations
    stores: bool  # whether the code stores to it or does atomic operations on it
    atomics: bool  # whether the code does atomic operations on it, atomic loads and stores too
    element: np.dtype[Any] | None  # of one element; None if no dtype has its layout
    stride: int  # bytes from one element to the next; 0 if the block has no elements
    length: int | None  # elements, if the code fixes them; None for a runtime array
    layout: str  # the members with their types, offsets and strides, for messages
    used: bytes = b""  # 1 for each byte of an element that is no padding; b"": there is none


@dataclass(frozen=True, slots=True)
class UniformBlock:
    """The uniform buffer of descriptor set 0."""

    binding: int
    nbytes: int  # a multiple of 16
    members: tuple[BlockMember, ...]  # in the order of their offsets


@dataclass(frozen=True, slots=True)
class Blocks:
    """Everything that a shader binds, and its push constants."""

    buffers: tuple[StorageBlock, ...]
    read_only: frozenset[int]
    uniform: UniformBlock | None
    push_constant_bytes: int
    push_members: tuple[BlockMember, ...]
    unusable_members: tuple[str, ...]
    length_ids: frozenset[int]  # the SpecIds that the lengths of arrays in blocks depend on


class _Variable(NamedTuple):
    """The variable of a storage buffer, and whether it or all its members are decorated so."""

    target: int
    block: int  # the struct's id
    read_only: bool
    write_only: bool


def read_blocks(module: Module, uses: CodeUses, values: Values) -> Blocks:
    """Return the interface blocks; raise SpirvError if the shader needs anything else.

    `values` are the specialization constants that are set.
    """
    types = TypeReader(module, values)
    variables: dict[int, list[_Variable]] = {}
    uniforms: list[tuple[int, int]] = []
    for variable in module.all("OpVariable"):
        if variable[2] in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
            block = module.pointee(variable)
            binding = _read_binding(module, variable[1], block)
            if variable[2] == _STORAGE_BUFFER or module.decoration(block, BUFFER_BLOCK) is not None:
                decorations = _get_decorations(module, variable[1], block)
                found = _Variable(
                    variable[1], block, NON_WRITABLE in decorations, NON_READABLE in decorations
                )
                variables.setdefault(binding, []).append(found)
            else:
                uniforms.append((binding, block))
    buffers = [
        _read_storage_block(module, types, uses, binding, variables[binding])
        for binding in sorted(variables)
    ]
    read_only = [at for at, found in variables.items() if all(each.read_only for each in found)]
    uniform, unusable = _read_uniform(types, uniforms, variables)
    push_bytes, push_members, unusable_push = _read_push_constants(module, types, uses)
    return Blocks(
        tuple(buffers), frozenset(read_only), uniform, push_bytes, push_members,
        unusable_push + unusable, frozenset(types.length_ids),
    )  # fmt: skip


# --- bindings ---


def _read_binding(module: Module, target: int, pointee: int) -> int:
    binding = module.decoration(target, BINDING)
    descriptor_set = module.decoration(target, DESCRIPTOR_SET)
    if binding is None or descriptor_set is None:
        raise SpirvError(
            f"resource %{target} has no binding: declare it with layout(set = 0, binding = ...)"
        )
    name = module.definition(pointee)[0]
    if name != "OpTypeStruct":
        what = _RESOURCE_NAMES.get(name, f"a resource of {name}")
        raise SpirvError(
            f"binding {binding} is {what}: only single storage buffers and one uniform buffer are "
            "supported; give each buffer a binding of its own"
        )
    if descriptor_set != 0:
        raise SpirvError(
            f"binding {binding} is in descriptor set {descriptor_set}: use set 0, the only one "
            "that is bound"
        )
    return binding


def _get_decorations(module: Module, variable: int, block: int) -> set[int]:
    """Return the decorations that a variable or every member of its block has."""
    found = set(module.decorations.get((variable, WHOLE), ()))
    members = len(module.definition(block)[1]) - 1
    of_members = [module.decorations.get((block, at), {}) for at in range(members)]
    return found.union(set(of_members[0]).intersection(*of_members[1:]) if of_members else ())


# --- storage buffers ---


def _read_storage_block(
    module: Module, types: TypeReader, uses: CodeUses, binding: int, variables: list[_Variable]
) -> StorageBlock:
    """Return the block of a binding; several variables may share it."""
    flags = 0
    for variable in variables:
        flags |= _read_flags(uses, binding, variable)
    access: Access = "in"
    if flags & STORE or all(variable.write_only for variable in variables):
        access = "inout" if flags & LOAD else "out"
    elements = [_describe_elements(types.read(variable.block)) for variable in variables]
    element, stride, length, layout, used = _combine_elements(list(dict.fromkeys(elements)))
    first = variables[0]
    return StorageBlock(
        binding=binding,
        name=module.name(first.target) or module.name(first.block),
        access=access,
        stores=bool(flags & STORE),
        atomics=bool(flags & ATOMIC),
        element=element,
        stride=stride,
        length=length,
        layout=layout,
        used=used,
    )


def _read_flags(uses: CodeUses, binding: int, variable: _Variable) -> int:
    """Return what the code does through a variable; raise SpirvError if its decorations forbid
    it.
    """
    flags = uses.through(variable.target)
    if flags & STORE and variable.read_only:
        raise SpirvError(
            f"binding {binding} is readonly, but the code stores to it: remove the qualifier"
        )
    if flags & LOAD and variable.write_only:
        raise SpirvError(
            f"binding {binding} is writeonly, but the code loads from it: remove the qualifier"
        )
    if flags & UNKNOWN:
        flags |= (0 if variable.write_only else LOAD) | (0 if variable.read_only else STORE)
    return flags


_Elements = tuple[np.dtype[Any] | None, int, int | None, str, bytes]
"""The element type, stride, length, layout and used bytes of a storage buffer."""


def _describe_elements(block: TypeLayout) -> _Elements:
    members = block.members
    layout = "{" + block.text.partition("{")[2]
    last = members[-1].layout if members else block
    # A block of one member, be it an array or not, is not a struct for NumPy.
    only = members[0].layout if len(members) == 1 and members[0].offset == 0 else block
    if only.element is not None:
        element = None if block.problem else make_dtype(only.element, only.stride)
        used = b"" if element is None else find_used_bytes(only.element, only.stride)
        return element, only.stride, only.length, layout, used
    if last.element is not None and last.length is None:  # other members before the elements
        return None, last.stride, None, layout, b""
    element = None if block.problem else make_dtype(only, only.padded_nbytes)
    if element is None:
        return None, 0, None, layout, b""
    return element, element.itemsize, 1, layout, find_used_bytes(only, only.padded_nbytes)


def _combine_elements(elements: list[_Elements]) -> _Elements:
    """Return what the variables of one binding have in common."""
    if len(elements) == 1:
        return elements[0]
    types, strides, lengths, layouts, used = zip(*elements, strict=True)
    element = types[0] if all(each == types[0] for each in types) else None
    length = lengths[0] if element is not None and len(set(lengths)) == 1 else None
    same = element is not None and len(set(used)) == 1
    text = " or ".join(dict.fromkeys(layouts))
    return element, min(strides), length, text, used[0] if same else b""


# --- parameters ---


def _read_uniform(
    types: TypeReader, uniforms: list[tuple[int, int]], storage: Iterable[int]
) -> tuple[UniformBlock | None, tuple[str, ...]]:
    """Return the uniform buffer, and the declarations of its members that take no values."""
    if not uniforms:
        return None, ()
    if len(uniforms) > 1:
        bindings = " and ".join(str(binding) for binding, _ in sorted(uniforms))
        raise SpirvError(
            f"bindings {bindings} are uniform buffers: at most one is supported; put all "
            "parameters into one block"
        )
    binding, pointee = uniforms[0]
    if binding in storage:
        raise SpirvError(
            f"binding {binding} is both a storage buffer and a uniform buffer: give each a binding "
            "of its own"
        )
    layout = types.read(pointee)
    _check_layout(layout, f"the members of uniform buffer {binding}")
    members, unusable = flatten_members(layout)
    return UniformBlock(binding, -(-layout.nbytes // 16) * 16, members), unusable


def _read_push_constants(
    module: Module, types: TypeReader, uses: CodeUses
) -> tuple[int, tuple[BlockMember, ...], tuple[str, ...]]:
    """Return the size of the largest push-constant block in bytes, rounded up to a multiple of 4,
    and the members of the largest block that the code uses.
    """
    variables = [v for v in module.all("OpVariable") if v[2] == _PUSH_CONSTANT]
    layouts = {v[1]: types.read(module.pointee(v)) for v in variables}
    if not layouts:
        return 0, (), ()
    for layout in layouts.values():
        _check_layout(layout, "the push constants")
    nbytes = max(layout.nbytes for layout in layouts.values())
    if nbytes > _MOST_PUSH_BYTES:
        raise SpirvError(
            f"the push constants have {nbytes} bytes: devices have 128 to 4,096; check their "
            "offsets, or read a buffer"
        )
    used = [layout for variable, layout in layouts.items() if uses.mentions(variable)]
    largest = max(used or layouts.values(), key=lambda layout: layout.nbytes)
    return -(-nbytes // 4) * 4, *flatten_members(largest)


def _check_layout(layout: TypeLayout, where: str) -> None:
    if layout.problem:
        raise SpirvError(
            f"{where} {layout.problem}: only scalars, vectors, matrices, arrays of a constant "
            "length, structs and buffer references are supported"
        )
