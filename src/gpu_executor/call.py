"""A call, checked: a kernel and the arrays it is to run on, nothing wrong with them any more.

Every backend starts here. What does not fit the kernel stops with an error that names the argument,
what was found and what fits; arrays that merely lie awkwardly in memory (strided, big-endian,
read-only) are taken as they are, because whoever copies them reads any layout.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
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

    def signature(self) -> Hashable:
        """Equal for calls that one plan serves: the kernel, and what it leaves open."""
        if self.kernel.types is not None and self.kernel.split == "elements":
            return self.kernel, self.count
        return self.kernel, *((array.dtype, array.shape) for array in (*self.inputs, *self.outputs))

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
    inputs = [
        _rows(kernel, index, array, type_)
        for index, (array, type_) in enumerate(zip(arrays, types, strict=False))
    ]
    count = len(inputs[0])
    if kernel.split == "elements":
        for index, array in enumerate(inputs):
            if len(array) != count:
                raise ArgumentShapeError(
                    f"{kernel.name}: argument {index} has {len(array)} elements and argument 0 has "
                    f"{count}; they must be equal"
                )
    elif count == 0:
        raise ArgumentShapeError(
            f"{kernel.name}: argument 0 is empty; a kernel not cut by elements needs some"
        )
    results = _outputs(kernel, arrays)
    if inputs[0] is arrays[0] and kernel.split == "elements":
        return Call(kernel, count, inputs, results, results)
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


def _outputs(kernel: Kernel, arrays: tuple[Array, ...]) -> list[Array]:
    """New arrays for the outputs: as `out_shape` says, else with as many elements as argument 0."""
    first = arrays[0]
    if kernel.types is None:
        types = (ElementType(first.dtype.newbyteorder("=")),) * kernel.outputs
        leading = first.shape
    else:
        types = kernel.types[kernel.inputs :]
        leading = first.shape[: first.ndim - len(kernel.types[0].shape)]
    if kernel.out_shape is None:
        return [np.empty(leading + type_.shape, type_.dtype) for type_ in types]
    shapes = _asked_shapes(kernel, types, kernel.out_shape(*(array.shape for array in arrays)))
    return [np.empty(shape, type_.dtype) for shape, type_ in zip(shapes, types, strict=True)]


def _asked_shapes(kernel: Kernel, types: tuple[ElementType, ...], asked: Any) -> list[Shape]:
    """What `out_shape` said: one shape, or a list of them for several outputs."""
    shapes = [asked] if kernel.outputs == 1 and not isinstance(asked, list) else list(asked)
    shapes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    if len(shapes) != kernel.outputs:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape gave {len(shapes)} shapes for {kernel.outputs} outputs"
        )
    for shape, type_ in zip(shapes, types, strict=True):
        if math.prod(shape) < 1:
            raise ArgumentShapeError(f"{kernel.name}: out_shape gave {shape}, an empty output")
        if shape[len(shape) - len(type_.shape) :] != type_.shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape gave {shape}; its last axes must be {type_.shape}"
            )
    return shapes


def _found(value: Any) -> str:
    return f"a {type(value).__name__}"
