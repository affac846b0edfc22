"""The storage buffers that a shader binds; any other resource is refused."""

from __future__ import annotations

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.module import BINDING, BUFFER_BLOCK, DESCRIPTOR_SET, NON_WRITABLE, Module

_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER = 0, 2, 12  # Spec, "Storage Class"
_RESOURCE_NAMES = {
    "OpTypeImage": "an image",
    "OpTypeSampler": "a sampler",
    "OpTypeSampledImage": "a combined image and sampler",
    "OpTypeAccelerationStructureKHR": "an acceleration structure",
    "OpTypeArray": "an array of resources",
    "OpTypeRuntimeArray": "an array of resources",
    "OpTypeStruct": "a uniform buffer",
}


def storage_buffers(module: Module) -> dict[int, bool]:
    """The bindings of set 0, each with whether anything can be written through it."""
    writable: dict[int, bool] = {}
    for variable in module.all("OpVariable"):
        if variable[2] in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
            pointee = module.pointee(variable)
            binding = _checked_binding(module, variable, pointee)
            writes = not _is_read_only(module, variable[1], pointee)
            writable[binding] = writable.get(binding, False) or writes
    return writable


def _checked_binding(module: Module, variable: tuple[int, ...], pointee: int) -> int:
    _, target, storage = variable[:3]
    binding = module.decoration(target, BINDING)
    descriptor_set = module.decoration(target, DESCRIPTOR_SET)
    if binding is None or descriptor_set is None:
        raise SpirvError(
            f"resource %{target} has no binding: give it layout(set = 0, binding = ...)"
        )
    name = module.definition(pointee)[0]
    is_buffer = storage == _STORAGE_BUFFER or module.decoration(pointee, BUFFER_BLOCK) is not None
    if name != "OpTypeStruct" or not is_buffer:
        what = _RESOURCE_NAMES.get(name, f"a resource of {name}")
        raise SpirvError(f"binding {binding} is {what}: only single storage buffers are bound")
    if descriptor_set != 0:
        raise SpirvError(f"binding {binding} is in descriptor set {descriptor_set}: use set 0")
    return binding


def _is_read_only(module: Module, variable: int, block: int) -> bool:
    members = range(len(module.definition(block)[1]) - 1)
    return module.decoration(variable, NON_WRITABLE) is not None or (
        all(module.decoration(block, NON_WRITABLE, at) is not None for at in members)
        and len(members) > 0
    )
