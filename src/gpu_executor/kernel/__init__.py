"""What one dispatch runs: code, its arguments, its parameters and its declaration."""

from gpu_executor.kernel.kernel import (
    COUNT_BYTES,
    Argument,
    Constant,
    ElementType,
    Grid,
    Kernel,
    Reference,
    Shape,
    Tuning,
    to_native,
)

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
