"""The kernels of NumPy's arithmetic on arrays: element-wise operations, selections, casts and
reductions.

One source in GLSL stands for each of these shapes of computation. It is compiled for each kind of
numbers that it computes with (`Numbers`), and specialization constants choose the operation and the
types of the elements in memory. Only a `Dispatch` runs the kernels (`ops/array_arithmetic.py`,
`ops/array_reductions.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Literal

import numpy as np

from gpu_executor.kernel import Kernel
from gpu_executor.kernels.modules import SpecId, load_interface, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel, tune_per_invocation

Numbers = Literal["word", "long", "f32", "f64"]
"""Integers of 32 or 64 bits; floats of 32 or 64 bits, and float16 as float32."""
NUMBER_OPTIONS: dict[str, tuple[str, ...]] = {
    "word": (),
    "long": ("-DLONG",),
    "f32": ("-DFLOATS",),
    "f64": ("-DFLOATS", "-DLONG"),
}
"""The compiler options of each kind of numbers."""
OPERAND_AXES = 4
"""The most axes that kernels walk along; neighbouring axes with fitting strides are one."""
REDUCTION_INVOCATIONS = 256


class ElementCode(IntEnum):
    """The types of elements, by NumPy's names in upper case."""

    BOOL = 0
    UINT8 = 1
    INT8 = 2
    UINT16 = 3
    INT16 = 4
    UINT32 = 5
    INT32 = 6
    UINT64 = 7
    INT64 = 8
    FLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11


class OperationCode(IntEnum):
    """The operations on numbers, by the names of NumPy's functions in upper case."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    FLOOR_DIVIDE = 4
    REMAINDER = 5
    BITWISE_AND = 6
    BITWISE_OR = 7
    BITWISE_XOR = 8
    LEFT_SHIFT = 9
    RIGHT_SHIFT = 10
    EQUAL = 11
    NOT_EQUAL = 12
    LESS = 13
    LESS_EQUAL = 14
    MINIMUM = 15
    MAXIMUM = 16
    LOGICAL_AND = 17
    LOGICAL_OR = 18
    LOGICAL_XOR = 19
    LOGICAL_NOT = 20
    NEGATIVE = 21
    ABSOLUTE = 22
    INVERT = 23


def list_number_variants(source: str) -> Sequence[str]:
    """Return the kinds of numbers that a source is compiled for. A cast computes with integers."""
    return ("word", "long") if source == "array_cast" else tuple(NUMBER_OPTIONS)


def find_code(dtype: np.dtype[Any]) -> ElementCode | None:
    """Return the code of a type of elements; None if kernels do not take it."""
    return ElementCode.__members__.get(dtype.name.upper())


@functools.cache
def elementwise_kernel(
    operation: OperationCode,
    numbers: Numbers,
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]],
    scalars: tuple[bool, bool],
    axes: int,
    *,
    loop: np.dtype[Any],
) -> Kernel:
    """Return the kernel of an operation on two operands; of one on a single operand, both are the
    same.

    Push words: the number of elements, the lengths of `OPERAND_AXES` axes, and for each operand its
    start, its strides and its scalar (glsl/arrays/strides.glsl). `dtypes` are those of the operands
    and of the result in memory; `loop` is the type in which it is computed.
    """
    constants = {
        SpecId.OPERATION: operation,
        SpecId.A_TYPE: _code(dtypes[0]),
        SpecId.B_TYPE: _code(dtypes[1]),
        SpecId.RESULT_TYPE: _code(dtypes[2]),
        SpecId.A_IS_SCALAR: scalars[0],
        SpecId.B_IS_SCALAR: scalars[1],
        SpecId.AXES: axes,
        **_describe_loop(loop),
    }
    return _make_kernel(f"array_elementwise_{numbers}", operation.name.lower(), 2, constants)


@functools.cache
def select_kernel(dtype: np.dtype[Any], scalars: tuple[bool, bool], axes: int) -> Kernel:
    """Return the kernel of `where`: the condition is an array of bools, the other operands and the
    result have one type. Push words: as those of `elementwise_kernel`, for three operands."""
    constants = {
        SpecId.RESULT_TYPE: _code(dtype),
        SpecId.A_IS_SCALAR: scalars[0],
        SpecId.B_IS_SCALAR: scalars[1],
        SpecId.AXES: axes,
    }
    return _make_kernel("array_select", f"where_{dtype}", 3, constants)


@functools.cache
def cast_kernel(source: np.dtype[Any], target: np.dtype[Any], axes: int) -> Kernel:
    """Return the kernel that converts elements. Push words: as those of `elementwise_kernel`, for
    one operand."""
    numbers = "long" if max(source.itemsize, target.itemsize) == 8 else "word"
    constants = {
        SpecId.A_TYPE: _code(source),
        SpecId.RESULT_TYPE: _code(target),
        SpecId.AXES: axes,
    }
    return _make_kernel(f"array_cast_{numbers}", f"cast_{source}_{target}", 1, constants)


@functools.cache
def array_reduction_kernel(
    operation: OperationCode,
    numbers: Numbers,
    source: np.dtype[Any],
    target: np.dtype[Any],
    lanes: int,
    axes: int,
) -> Kernel:
    """Return the kernel that combines segments of elements of `axes` axes, with `lanes` invocations
    for each. The result has elements of 32 or 64 bits. `glsl/arrays/array_reduce.comp` lists the
    push words."""
    constants = {
        SpecId.OPERATION: operation,
        SpecId.A_TYPE: _code(source),
        SpecId.RESULT_TYPE: _code(target),
        SpecId.LANES: lanes,
        SpecId.AXES: axes,
        **_describe_loop(target),
    }
    name = f"reduce_{operation.name.lower()}_{source}"
    return _make_kernel(f"array_reduce_{numbers}", name, 1, constants)


def _code(dtype: np.dtype[Any]) -> ElementCode:
    return ElementCode[dtype.name.upper()]


def _describe_loop(dtype: np.dtype[Any]) -> dict[SpecId, int]:
    return {SpecId.IS_SIGNED: dtype.kind == "i", SpecId.BITS: 8 * dtype.itemsize}


def _make_kernel(module: str, name: str, inputs: int, constants: dict[SpecId, int]) -> Kernel:
    """Return the kernel of a module, all of whose buffers are words. A compiler leaves out the
    constants that a module does not use."""
    present = {constant.spec_id for constant in load_interface(module).constants}
    return make_pass_kernel(
        load_spirv(module),
        name,
        inputs,
        [np.uint32] * (inputs + 1),
        constants={at: value for at, value in constants.items() if at in present},
        tuning=tune_per_invocation(present),
    )
