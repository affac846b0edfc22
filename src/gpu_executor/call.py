"""A call, checked: a kernel and the arrays it is to run on, nothing wrong with them any more.

Every backend starts here. What does not fit the kernel stops with an error that names the argument,
what was found and what fits; arrays that merely lie awkwardly in memory (strided, big-endian,
read-only) are taken as they are, because whoever copies them reads any layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.kernel import ElementType, Kernel, Shape

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Operand:
    """One storage buffer of a call: its element type and how many elements it has."""

    type: ElementType
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.type.nbytes


@dataclass(slots=True)
class Call:
    """A kernel, its inputs and its freshly made outputs, each as (elements, *element shape)."""

    kernel: Kernel
    count: int
    """The number of elements: what the kernel gets as its first push constant."""
    inputs: list[Array]
    outputs: list[Array]
    results: list[Array]
    """The outputs again, in the shapes that the caller gets."""

    def operands(self) -> tuple[Operand, ...]:
        """The inputs' and outputs' types and sizes, without their data."""
        arrays = (*self.inputs, *self.outputs)
        return tuple(
            Operand(ElementType(array.dtype.newbyteorder("="), array.shape[1:]), len(array))
            for array in arrays
        )

    def result(self) -> Any:
        """What the caller gets: the output, or a tuple of several."""
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def check(kernel: Kernel, arrays: tuple[Any, ...]) -> Call:
    """Hold the arrays against the kernel and make room for its outputs."""
    if not isinstance(kernel, Kernel):
        raise ArgumentTypeError(
            f"the first argument is {_found(kernel)}; it is a Kernel: gx.kernels.load(name) or "
            "gx.Kernel.from_spirv(...)"
        )
    if len(arrays) != kernel.inputs:
        raise ArgumentTypeError(f"{kernel.name} takes {kernel.inputs} arrays and got {len(arrays)}")
    types = kernel.types or (None,) * (kernel.inputs + kernel.outputs)
    inputs = [_rows(kernel, i, array, types[i]) for i, array in enumerate(arrays)]
    count = len(inputs[0])
    if kernel.split == "elements":
        _check_equal_counts(kernel, inputs)
    elif count == 0:
        raise ArgumentShapeError(
            f"{kernel.name}: argument 0 is empty; a kernel not cut by elements needs some"
        )
    results = _outputs(kernel, arrays)
    outputs = [
        result.reshape(-1, *(type_.shape if type_ else ()))
        for result, type_ in zip(results, types[kernel.inputs :], strict=True)
    ]
    return Call(kernel, count, inputs, outputs, results)


def _rows(kernel: Kernel, index: int, array: Any, type_: ElementType | None) -> Array:
    """The array as (elements, *element shape)."""
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} is {_found(array)}; it takes a NumPy array"
        )
    dtype = array.dtype
    if type_ is None:
        if dtype.kind not in "biufc":
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} has dtype {dtype}; a kernel takes numbers"
            )
        return array if array.ndim == 1 else array.reshape(-1)
    if dtype != type_.dtype and dtype.newbyteorder("=") != type_.dtype:
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} has dtype {dtype}; it takes {type_.dtype} "
            f"(convert with .astype(np.{type_.dtype}))"
        )
    width = len(type_.shape)
    if array.ndim == width + 1 and array.shape[1:] == type_.shape:
        return array
    if array.ndim < width or array.shape[array.ndim - width :] != type_.shape:
        wanted = ", ".join(["n", *map(str, type_.shape)])
        raise ArgumentShapeError(
            f"{kernel.name}: argument {index} has shape {array.shape}; it takes ({wanted})"
        )
    return array.reshape(-1, *type_.shape)


def _check_equal_counts(kernel: Kernel, inputs: list[Array]) -> None:
    for index, array in enumerate(inputs):
        if len(array) != len(inputs[0]):
            raise ArgumentShapeError(
                f"{kernel.name}: argument {index} has {len(array)} elements and argument 0 has "
                f"{len(inputs[0])}; they must be equal"
            )


def _outputs(kernel: Kernel, arrays: tuple[Array, ...]) -> list[Array]:
    first = arrays[0]
    types = kernel.types
    shapes = _output_shapes(kernel, arrays)
    dtypes = [type_.dtype for type_ in types[kernel.inputs :]] if types else []
    dtypes = dtypes or [first.dtype.newbyteorder("=")] * kernel.outputs
    return [np.empty(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _output_shapes(kernel: Kernel, arrays: tuple[Array, ...]) -> list[Shape]:
    if kernel.out_shape is not None:
        return _asked_shapes(kernel, kernel.out_shape(*(array.shape for array in arrays)))
    shape = arrays[0].shape
    if kernel.types is None:
        return [shape] * kernel.outputs
    width = len(kernel.types[0].shape)
    leading = shape[: len(shape) - width]
    return [leading + type_.shape for type_ in kernel.types[kernel.inputs :]]


def _asked_shapes(kernel: Kernel, asked: Any) -> list[Shape]:
    """What `out_shape` said: one shape, or a list of them for several outputs."""
    shapes = [asked] if kernel.outputs == 1 and not isinstance(asked, list) else list(asked)
    shapes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    if len(shapes) != kernel.outputs:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape gave {len(shapes)} shapes for {kernel.outputs} outputs"
        )
    for shape in shapes:
        if math.prod(shape) < 1:
            raise ArgumentShapeError(f"{kernel.name}: out_shape gave {shape}, an empty output")
    return shapes


def _found(value: Any) -> str:
    return f"a {type(value).__name__}"
