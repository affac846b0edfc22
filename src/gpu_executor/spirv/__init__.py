"""Reads a SPIR-V binary far enough to know whether, and how, Vulkan can run it.

`read_interface` answers what a kernel binds, pushes and can be specialized with. It never
touches Vulkan, and whatever bytes it is given, it returns an answer or raises `SpirvError`.
"Spec" in these files is the Khronos SPIR-V specification, unified edition.
"""

from gpu_executor.spirv.capabilities import CAPABILITY_NAMES
from gpu_executor.spirv.constants import SpecConstant
from gpu_executor.spirv.interface import ShaderInterface, read_interface
from gpu_executor.spirv.local_size import LocalSize

__all__ = [
    "CAPABILITY_NAMES",
    "LocalSize",
    "ShaderInterface",
    "SpecConstant",
    "read_interface",
]
