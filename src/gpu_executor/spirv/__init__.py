"""Reads the interface of a SPIR-V compute shader, without Vulkan.

`read_interface` returns the bindings, push constants, specialization constants and work-group size
of a shader. For any bytes it returns an interface or raises `SpirvError`. "Spec" in these files is
the Khronos SPIR-V specification, unified edition.

    instructions.py  where each instruction begins, and checks that cost little
    module.py     bytes -> declarations, decorations and functions
    constants.py  scalar types, constants, specialization constants
    types.py      the layout of types in memory, and the NumPy dtypes with that layout
    access.py     what the code does through its variables: loads, stores, atomic operations
    built_ins.py  the built-ins that compute shaders may use, and their types
    members.py    members of push constants and uniform buffers, and values encoded into them
    blocks.py     storage buffers, the uniform buffer and push constants
    shared_memory.py  the size of shared variables
    push_constants.py  push constants moved into a uniform buffer
    ballots.py    the lowest bit of a ballot by arithmetic on its words
    loops.py      loops that stay loops
    element_order.py  whether an element is read before it is written
    interface.py  entry point, work-group size, capabilities: all of it together
"""

from gpu_executor.spirv.access import Access
from gpu_executor.spirv.ballots import lower_ballot_find_lsb
from gpu_executor.spirv.blocks import StorageBlock
from gpu_executor.spirv.constants import SpecConstant
from gpu_executor.spirv.element_order import is_read_before_written
from gpu_executor.spirv.interface import (
    CAPABILITY_NAMES,
    INT64,
    LocalSize,
    ShaderInterface,
    read_interface,
)
from gpu_executor.spirv.loops import remove_unroll_hints
from gpu_executor.spirv.members import BlockMember
from gpu_executor.spirv.push_constants import move_to_uniform_buffer

__all__ = [
    "CAPABILITY_NAMES",
    "INT64",
    "Access",
    "BlockMember",
    "LocalSize",
    "ShaderInterface",
    "SpecConstant",
    "StorageBlock",
    "is_read_before_written",
    "lower_ballot_find_lsb",
    "move_to_uniform_buffer",
    "read_interface",
    "remove_unroll_hints",
]
