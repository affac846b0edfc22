"""The interface blocks of a shader: storage buffers, a uniform buffer and push constants.

Any other resource is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import ATOMIC, LOAD, STORE, UNKNOWN, Access, CodeUses
from gpu_executor.spirv.members import BlockMember, flatten_members
from gpu_executor.spirv.module import (
    BINDING,
    BUFFER_BLOCK,
    DESCRIPTOR_SET,
    NON_READABLE,
    NON_WRITABLE,
    Module,
)
from gpu_executor.spirv.types import TypeLayout, TypeReader, make_dtype

# Spec, "Storage Class"
_UNIFORM_CONSTANT, _UNIFORM, _PUSH_CONSTANT, _STORAGE_BUFFER = 0, 2, 9, 12
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


def read_blocks(module: Module, uses: CodeUses) -> Blocks:
    """Return the interface blocks; raise SpirvError if the shader needs anything else."""
    types = TypeReader(module)
    variables: dict[int, list[tuple[int, int]]] = {}
    uniforms: list[tuple[int, int]] = []
    for variable in module.all("OpVariable"):
        if variable[2] in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
            pointee = module.pointee(variable)
            binding = _read_binding(module, variable, pointee)
            if _is_storage_buffer(module, variable, pointee):
                variables.setdefault(binding, []).append((variable[1], pointee))
            else:
                uniforms.append((binding, pointee))
    buffers = {
        binding: _read_storage_block(module, types, uses, binding, found)
        for binding, found in sorted(variables.items())
    }
    read_only = frozenset(
        binding
        for binding, found in variables.items()
        if all(_is_decorated(module, each, NON_WRITABLE) for each in found)
    )
    uniform, unusable = _read_uniform(types, uniforms, variables)
    push_bytes, push_members, unusable_push = _read_push_constants(module, types, uses)
    return Blocks(
        tuple(buffers.values()), read_only, uniform, push_bytes, push_members,
        unusable_push + unusable,
    )  # fmt: skip


# --- bindings ---


def _read_binding(module: Module, variable: tuple[int, ...], pointee: int) -> int:
    target = variable[1]
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


def _is_storage_buffer(module: Module, variable: tuple[int, ...], pointee: int) -> bool:
    return variable[2] == _STORAGE_BUFFER or module.decoration(pointee, BUFFER_BLOCK) is not None


def _is_decorated(module: Module, variable_and_block: tuple[int, int], decoration: int) -> bool:
    """Return whether a variable, or every member of its block, has a decoration."""
    variable, block = variable_and_block
    members = range(len(module.definition(block)[1]) - 1)
    return module.decoration(variable, decoration) is not None or (
        all(module.decoration(block, decoration, at) is not None for at in members)
        and len(members) > 0
    )


# --- storage buffers ---


def _read_storage_block(
    module: Module, types: TypeReader, uses: CodeUses, binding: int, found: list[tuple[int, int]]
) -> StorageBlock:
    """Return the block of a binding; several variables may share it."""
    flags, blocks = 0, []
    for variable, pointee in found:
        flags |= _read_flags(module, uses, binding, (variable, pointee))
        name = module.name(variable) or module.name(pointee)
        blocks.append(_describe_block(binding, name, types.read(pointee)))
    write_only = all(_is_decorated(module, each, NON_READABLE) for each in found)
    access: Access = "in"
    if flags & STORE or write_only:
        access = "inout" if flags & LOAD else "out"
    return replace(
        _combine_blocks(blocks),
        access=access,
        stores=bool(flags & STORE),
        atomics=bool(flags & ATOMIC),
    )


def _read_flags(
    module: Module, uses: CodeUses, binding: int, variable_and_block: tuple[int, int]
) -> int:
    """Return what the code does through a variable; raise SpirvError if its decorations forbid
    it.
    """
    flags = uses.through(variable_and_block[0])
    read_only = _is_decorated(module, variable_and_block, NON_WRITABLE)
    write_only = _is_decorated(module, variable_and_block, NON_READABLE)
    if flags & STORE and read_only:
        raise SpirvError(
            f"binding {binding} is readonly, but the code stores to it: remove the qualifier"
        )
    if flags & LOAD and write_only:
        raise SpirvError(
            f"binding {binding} is writeonly, but the code loads from it: remove the qualifier"
        )
    if flags & UNKNOWN:
        flags |= (0 if write_only else LOAD) | (0 if read_only else STORE)
    return flags


def _describe_block(binding: int, name: str, layout: TypeLayout) -> StorageBlock:
    """Return a block with the element type, stride and length of a struct's layout."""
    members = layout.members
    element: np.dtype[Any] | None = None
    stride, length = 0, None
    first = members[0].layout if len(members) == 1 and members[0].offset == 0 else layout
    last = members[-1].layout if members else layout
    if first.element is not None:
        element, stride = make_dtype(first.element, first.stride), first.stride
        # A length that can be specialized is not fixed by the code.
        length = None if first.specialized else first.length
    elif last.element is not None and last.length is None:  # other members before the elements
        stride = last.stride
    else:
        element = make_dtype(first, first.padded_nbytes)
        stride, length = (0, None) if element is None else (element.itemsize, 1)
    return StorageBlock(
        binding=binding,
        name=name,
        access="in",
        stores=False,
        atomics=False,
        element=element,
        stride=stride,
        length=length,
        layout="{" + layout.text.partition("{")[2],
    )


def _combine_blocks(blocks: list[StorageBlock]) -> StorageBlock:
    """Return one block for the variables of a binding, with what they have in common."""
    first = blocks[0]
    layouts = list(dict.fromkeys(block.layout for block in blocks))
    if len(layouts) == 1:
        return first
    same = all(block.element == first.element for block in blocks)
    lengths = {block.length for block in blocks}
    return replace(
        first,
        element=first.element if same else None,
        stride=min(block.stride for block in blocks),
        length=first.length if same and len(lengths) == 1 else None,
        layout=" or ".join(layouts),
    )


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
    used = [layout for variable, layout in layouts.items() if uses.mentions(variable)]
    largest = max(used or layouts.values(), key=lambda layout: layout.nbytes)
    return -(-nbytes // 4) * 4, *flatten_members(largest)


def _check_layout(layout: TypeLayout, where: str) -> None:
    if layout.problem:
        raise SpirvError(
            f"{where} {layout.problem}: only scalars, vectors, matrices, arrays of a constant "
            "length, structs and buffer references are supported"
        )
