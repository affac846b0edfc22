"""The built-ins of a compute shader: which it may use, of which types, in which storage class.

`spirv-val` does not check all of it (2023.1: a uvec3 as LocalInvocationIndex passes), and drivers
trust it: lavapipe crashes on a built-in of another type, and on an input that is no built-in.
Vulkan 1.3, "Built-In Variables", has the rules.
"""

from __future__ import annotations

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.access import CodeUses
from gpu_executor.spirv.constants import read_scalar_type
from gpu_executor.spirv.module import BUILT_IN, WHOLE, Module
from gpu_executor.spirv.types import TypeReader

WORKGROUP_SIZE = 25
_INPUT, _OUTPUT = 1, 3  # Spec, "Storage Class"
_STORAGE_NAMES = {
    0: "UniformConstant", 2: "Uniform", 3: "Output", 4: "Workgroup", 5: "CrossWorkgroup",
    6: "Private", 7: "Function", 9: "PushConstant", 12: "StorageBuffer",
}  # fmt: skip
# Spec, "BuiltIn": the name and the number of 32-bit integers, signed or unsigned.
_COMPUTE: dict[int, tuple[str, int]] = {
    24: ("NumWorkgroups", 3), WORKGROUP_SIZE: ("WorkgroupSize", 3), 26: ("WorkgroupId", 3),
    27: ("LocalInvocationId", 3), 28: ("GlobalInvocationId", 3), 29: ("LocalInvocationIndex", 1),
    36: ("SubgroupSize", 1), 38: ("NumSubgroups", 1), 40: ("SubgroupId", 1),
    41: ("SubgroupLocalInvocationId", 1), 4416: ("SubgroupEqMask", 4), 4417: ("SubgroupGeMask", 4),
    4418: ("SubgroupGtMask", 4), 4419: ("SubgroupLeMask", 4), 4420: ("SubgroupLtMask", 4),
    4438: ("DeviceIndex", 1),
}  # fmt: skip
_OF_OTHERS = {
    0: "Position", 1: "PointSize", 3: "ClipDistance", 4: "CullDistance", 5: "VertexId",
    6: "InstanceId", 7: "PrimitiveId", 8: "InvocationId", 9: "Layer", 10: "ViewportIndex",
    11: "TessLevelOuter", 12: "TessLevelInner", 13: "TessCoord", 14: "PatchVertices",
    15: "FragCoord", 16: "PointCoord", 17: "FrontFacing", 18: "SampleId", 19: "SamplePosition",
    20: "SampleMask", 22: "FragDepth", 23: "HelperInvocation", 30: "WorkDim", 31: "GlobalSize",
    32: "EnqueuedWorkgroupSize", 33: "GlobalOffset", 34: "GlobalLinearId", 37: "SubgroupMaxSize",
    39: "NumEnqueuedSubgroups", 42: "VertexIndex", 43: "InstanceIndex", 4424: "BaseVertex",
    4425: "BaseInstance", 4426: "DrawIndex", 4440: "ViewIndex",
}  # fmt: skip
_TYPES = {1: "uint", 3: "uvec3", 4: "uvec4"}


def check_built_ins(module: Module, entry: int, uses: CodeUses) -> None:
    """Raise SpirvError if a built-in of the entry point is not one of a compute shader, or has
    another type or storage class than Vulkan requires, or if an input is no built-in.
    """
    listed = _read_listed_variables(module, entry)
    variables = {
        operands[1]: operands
        for operands in module.all("OpVariable")
        if operands[1] in listed or uses.mentions(operands[1])
    }
    blocks = {module.pointee(operands) for operands in variables.values()}
    for (target, member), decorations in module.decorations.items():
        built_in = decorations.get(BUILT_IN)
        if built_in is None:
            continue
        if built_in == WORKGROUP_SIZE:
            _check_work_group_size(module, target, member)
        elif member != WHOLE:
            if target in blocks:
                _check_member(module, target, member, built_in)
        elif target in variables:
            _check_variable(module, variables[target], built_in)
        elif module.definition(target)[0] != "OpVariable":  # else of another entry point
            raise SpirvError(
                f"the built-in {_name(built_in)} decorates %{target}, "
                f"{module.definition(target)[0]}: it must be a variable in storage class Input"
            )
    for operands in variables.values():
        _check_storage(module, operands)


def _read_listed_variables(module: Module, entry: int) -> frozenset[int]:
    """Return the variables that the entry point's instruction lists behind its name."""
    for _, function, *rest in module.all("OpEntryPoint"):
        if function == entry:
            end = next((at for at, word in enumerate(rest) if word >> 24 == 0), len(rest))
            return frozenset(rest[end + 1 :])
    return frozenset()


def _check_work_group_size(module: Module, target: int, member: int) -> None:
    name, operands = module.definition(target)
    if member != WHOLE or not name.endswith("ConstantComposite"):
        raise SpirvError(
            f"the WorkgroupSize %{target} is {name if member == WHOLE else 'a member'}: it must be "
            "a vector of three constants"
        )
    _check_type(module, f"constant %{target}", WORKGROUP_SIZE, operands[0])


def _check_variable(module: Module, variable: tuple[int, ...], built_in: int) -> None:
    where = f"variable %{variable[1]}"
    _check_type(module, where, built_in, module.pointee(variable))
    if variable[2] != _INPUT:
        found = _STORAGE_NAMES.get(variable[2], str(variable[2]))
        raise SpirvError(
            f"{where} is the built-in {_COMPUTE[built_in][0]} in storage class {found}: it must be "
            "in Input"
        )


def _check_member(module: Module, block: int, member: int, built_in: int) -> None:
    name, operands = module.definition(block)
    types = operands[1:] if name == "OpTypeStruct" else ()
    where = f"member {member} of %{block}"
    if member >= len(types):
        raise SpirvError(f"{where} is a built-in, but {name} %{block} has {len(types)} members")
    _check_type(module, where, built_in, types[member])


def _check_type(module: Module, where: str, built_in: int, type_id: int) -> None:
    """Check that a built-in is one of compute shaders, and consists of as many 32-bit integers as
    Vulkan requires.
    """
    if built_in not in _COMPUTE:
        raise SpirvError(
            f"{where} is the built-in {_name(built_in)}, which a compute shader does not have: it "
            f"has {', '.join(name for name, _ in _COMPUTE.values())}"
        )
    required = _COMPUTE[built_in][1]
    name, operands = module.definition(type_id)
    scalar, count = operands[1:] if name == "OpTypeVector" else (type_id, 1)
    if count != required or read_scalar_type(module, scalar) not in (("uint", 32), ("int", 32)):
        raise SpirvError(
            f"{where} is the built-in {_COMPUTE[built_in][0]} of type "
            f"{_describe_type(module, type_id)}: it must be of type {_TYPES[required]}"
        )


def _describe_type(module: Module, type_id: int) -> str:
    layout, extents = TypeReader(module, {}).read(type_id), ""
    while layout.element is not None:
        extents += "[]" if layout.length is None else f"[{layout.length}]"
        layout = layout.element
    return layout.text + extents


def _check_storage(module: Module, variable: tuple[int, ...]) -> None:
    """Check that an input consists of built-ins, and that there is no output."""
    if variable[2] == _OUTPUT:
        raise SpirvError(
            f"variable %{variable[1]} is an output (storage class Output): a compute shader has "
            "none; write to a storage buffer"
        )
    if variable[2] != _INPUT or module.decoration(variable[1], BUILT_IN) is not None:
        return
    block = module.pointee(variable)
    name, operands = module.definition(block)
    if name != "OpTypeStruct" or any(
        module.decoration(block, BUILT_IN, member) is None for member in range(len(operands) - 1)
    ):
        raise SpirvError(
            f"variable %{variable[1]} is an input (storage class Input) that is no built-in: a "
            "compute shader has no other inputs; decorate it as a built-in, or read a buffer"
        )


def _name(built_in: int) -> str:
    if built_in in _COMPUTE:
        return _COMPUTE[built_in][0]
    return _OF_OTHERS.get(built_in, f"with the number {built_in}")
