"""What one dispatch runs: code, its arguments, its parameters and its declaration."""

from gpu_executor.kernel.arguments import Argument, ElementType, Shape, to_native
from gpu_executor.kernel.contract import COUNT_BYTES, Constant
from gpu_executor.kernel.declaration import Grid, Reference, Tuning
from gpu_executor.kernel.kernel import Kernel

__all__ = [
    "COUNT_BYTES",
    "Argument",
    "Constant",
    "ElementType",
    "Grid",
    "Kernel",
    "Reference",
    "Shape",
    "Tuning",
    "to_native",
]
