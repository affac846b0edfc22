"""NumPy's reductions of device arrays along axes: sums, minima, maxima, any and all.

By steps a reduction has passes. In each, some neighbouring invocations combine a segment of the
elements of a result. The number of invocations and the length of segments follow from the shape
and the strides alone, and not from the device: float sums are the same on every device that adds
in the same way. An element of a sum passes through `MAX_SERIAL` additions for each pass at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch
from gpu_executor.kernels.arrays import (
    OPERAND_AXES,
    REDUCTION_INVOCATIONS,
    OperationCode,
    array_reduction_kernel,
)
from gpu_executor.ops.array_arithmetic import (
    BOOL,
    WORD,
    DType,
    bind_words,
    can_load,
    cast,
    check_dtype,
    choose_numbers,
    compute,
    merge_axes,
    pad_axes,
    split_wide,
)
from gpu_executor.ops.operation import operation

MAX_SERIAL = 64
"""Elements that one invocation combines where it has a segment for itself."""
SERIAL = 16
"""Elements that each invocation combines where several share a segment."""
_LOGICAL = (np.logical_or, np.logical_and)
_MERGE: dict[np.ufunc, np.ufunc] = {np.logical_or: np.bitwise_or, np.logical_and: np.bitwise_and}
"""What combines the words that logical reductions have made."""


@operation
def reduce_axes(
    function: np.ufunc, array: Any, axes: Sequence[int], dtype: DType, *, keepdims: bool
) -> Any:
    """The elements along the axes combined by `np.add`, `np.minimum`, `np.maximum`,
    `np.logical_or` or `np.logical_and`. The result has the type `dtype`, and no element of it is
    made of none, unless the function has an identity."""
    with np.errstate(all="ignore"):
        if function is np.add and dtype.kind == "f":
            return _add_pairwise(array, axes, dtype, keepdims=keepdims)
        made = function.reduce(array, axis=tuple(axes), dtype=dtype, keepdims=keepdims)
    return np.asarray(made)


def _add_pairwise(array: Any, axes: Sequence[int], dtype: DType, *, keepdims: bool) -> Any:
    """Sums of floats. NumPy adds pairwise along the last axis alone, and float16 in float16."""
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    shape = [array.shape[axis] for axis in kept]
    rows = np.transpose(array, (*kept, *axes)).astype(np.result_type(dtype, np.float32), order="C")
    sums = np.add.reduce(rows.reshape(*shape, -1), axis=-1) if array.size else np.zeros(shape)
    if keepdims:
        sums = sums.reshape([1 if axis in axes else n for axis, n in enumerate(array.shape)])
    return np.asarray(sums).astype(dtype)


@reduce_axes.by_steps
def _reduce_by_steps(
    function: np.ufunc, array: DeviceArray, axes: Sequence[int], dtype: DType, *, keepdims: bool
) -> DeviceArray:
    device: ArrayDevice = array.storage.device
    for each in (array.dtype, dtype):
        check_dtype(device, each, f"np.{function.__name__}.reduce: the array, or the result, is")
    if function is np.add and dtype == BOOL:
        function = np.logical_or
    if function not in _LOGICAL and not can_load(choose_numbers(dtype), array.dtype):
        array = cast(array, dtype)
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    shape = tuple(array.shape[axis] for axis in kept)
    if not array.size:  # no element, or only identities
        identity = np.asarray(function is np.logical_and, dtype)
        found = device.put(identity).broadcast_to(shape).copy()
    else:
        target = WORD if function in _LOGICAL else _choose_partial(dtype)
        found = _combine(function, array.transpose((*kept, *axes)), len(kept), target)
        found = found if target == dtype else cast(found, dtype)
    if keepdims:
        shape = tuple(1 if axis in axes else n for axis, n in enumerate(array.shape))
    return found.reshape(shape)


def _choose_partial(dtype: DType) -> DType:
    """The type of partial results: that of the result, with 32 or 64 bits."""
    return dtype if dtype.itemsize == 8 else np.dtype(f"{dtype.kind.replace('b', 'u')}4")


def _combine(function: np.ufunc, array: DeviceArray, kept: int, target: DType) -> DeviceArray:
    """Combine the elements of all axes behind the first `kept` ones, which the result has."""
    device: ArrayDevice = array.storage.device
    # The layout of the result, which may have more bytes than the array; it is not accessed.
    layout = DeviceArray(array.shape[:kept], target, array.storage)
    layout = layout.reshape((*array.shape[:kept], *[1] * (array.ndim - kept)))
    parts = split_wide([array, layout.broadcast_to(array.shape)])
    if parts is None:
        return _combine_segments(function, array, kept, target)
    result = device.empty(array.shape[:kept], target)
    made = []
    for part in parts:
        found = _combine(function, array[part], kept, target)
        if len(part) <= kept:
            device.submit([ArrayCopy(found, result[part])])
        made.append(found)
    if len(part) <= kept:
        return result
    merge = _MERGE.get(function, function)
    combined: DeviceArray = device.run_operation(compute, (merge, made, (target,) * 3), {})
    return combined


def _combine_segments(
    function: np.ufunc, array: DeviceArray, kept: int, target: DType
) -> DeviceArray:
    """Combine elements in one pass, then the results of segments in further passes."""
    device: ArrayDevice = array.storage.device
    shape = array.shape[:kept]
    axes = _merge_both(array, kept)
    if max(map(len, axes)) > OPERAND_AXES:
        array = array.copy()
        axes = _merge_both(array, kept)
    results, reduced = math.prod(shape), math.prod(array.shape[kept:])
    lanes = _choose_lanes(*axes, reduced)
    length = MAX_SERIAL if lanes == 1 else SERIAL * lanes
    parts = -(-reduced // length)
    made = device.empty((*shape, parts), target)
    words, start = bind_words(array)
    push_words = [parts, length, reduced, start]
    for each in axes:
        lengths, (strides,) = pad_axes(each, 1)
        push_words += [*lengths, *strides]
    numbers = choose_numbers(array.dtype if function in _LOGICAL else target)
    code = OperationCode[function.__name__.upper()]
    kernel = array_reduction_kernel(code, numbers, array.dtype, target, lanes, len(axes[1]))
    count = results * parts
    groups = -(-count // (REDUCTION_INVOCATIONS // lanes))
    device.submit(
        [
            Dispatch(
                kernel,
                (words, bind_words(made)[0]),
                count,
                tuple(push_words),
                groups=groups,
                grid_stride=True,
            )
        ]
    )
    if parts == 1:
        return made.reshape(shape)
    return _combine(function, made, kept, target)


def _merge_both(array: DeviceArray, kept: int) -> tuple[list[Any], list[Any]]:
    """The axes that the result has, and those that are combined, as few as possible."""
    strides = [each // array.dtype.itemsize for each in array.strides]
    return (
        merge_axes(array.shape[:kept], [strides[:kept]]),
        merge_axes(array.shape[kept:], [strides[kept:]]),
    )


def _choose_lanes(kept: Sequence[Any], reduced: Sequence[Any], count: int) -> int:
    """The invocations that share a segment: one where neighbouring results have neighbouring
    elements, so that neighbouring invocations load these together; else as many as have work."""
    if count <= SERIAL:
        return 1
    nearest = abs(reduced[-1][1][0])
    if kept and abs(kept[-1][1][0]) < nearest and kept[-1][0] >= REDUCTION_INVOCATIONS // 8:
        return 1
    return min(REDUCTION_INVOCATIONS, 1 << (-(-count // SERIAL) - 1).bit_length())
