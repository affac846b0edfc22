"""Reads the interface of a SPIR-V compute shader, without Vulkan.

`read_interface` returns the bindings, push constants, specialization constants and work-group size
of a shader. For any bytes it returns an interface or raises `SpirvError`. "Spec" in these files is
the Khronos SPIR-V specification, unified edition.

    module.py     bytes -> instructions and decorations
    constants.py  scalar types, constants, specialization constants
    blocks.py     storage buffers and push constants, and the layout of their types
    interface.py  entry point, work-group size, capabilities: all of it together
"""

from gpu_executor.spirv.constants import SpecConstant
from gpu_executor.spirv.interface import (
    CAPABILITY_NAMES,
    LocalSize,
    ShaderInterface,
    read_interface,
)

__all__ = [
    "CAPABILITY_NAMES",
    "LocalSize",
    "ShaderInterface",
    "SpecConstant",
    "read_interface",
]
