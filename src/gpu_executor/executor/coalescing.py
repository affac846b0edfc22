"""Coalescing: several small calls of one kernel run as one call on their concatenated arrays.

A call of a few elements costs little more than its submission and wait. Eight coalesced calls pay
that once; a batch has a submission for each call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.calls.arguments import is_masked
from gpu_executor.calls.call import Array
from gpu_executor.errors import GpuError
from gpu_executor.executor.jobs import Arrays, CallArguments
from gpu_executor.kernel import ElementType, Kernel, Shape

MAX_COALESCED_BYTES = 1 << 20
"""Input bytes of all calls. Larger batches are faster without coalescing: the backend overlaps
their copies with computing."""


def coalesce(
    kernel: Kernel, calls: Sequence[CallArguments]
) -> tuple[CallArguments, list[Shape]] | None:
    """Concatenate the inputs of calls. Returns one call, and the leading shape of each of the
    calls; None if the calls cannot be coalesced.

    Invalid arguments give None too: the calls then run one by one, and the backend raises.
    """
    if kernel.split != "elements" or kernel.push_of is not None:
        return None
    if any(call.out is not None or call.out_shape is not None for call in calls):
        return None
    # A number of elements that is given by name is that of one call.
    if kernel.is_count_given(calls[0].params) or not _have_equal_params(kernel, calls):
        return None
    types = [argument.type for argument in kernel.arguments if argument.is_input]
    shapes: list[Shape] = []
    previous: Arrays | None = None
    shape, call_bytes, nbytes = None, 0, 0
    for call in calls:
        arrays = call.arrays
        if previous is None or not _have_same_layout(arrays, previous):  # nearly always the same
            previous, shape = arrays, _find_call_shape(arrays, types)
            if shape is None:
                return None
            call_bytes = sum(each.nbytes for each in arrays)
        assert shape is not None
        shapes.append(shape)
        nbytes += call_bytes
    if nbytes > MAX_COALESCED_BYTES:
        return None
    columns = zip(*(call.arrays for call in calls), strict=True)
    arrays = tuple(
        _concatenate(column, type_) for column, type_ in zip(columns, types, strict=True)
    )
    return CallArguments(arrays, params=calls[0].params), shapes


def _concatenate(arrays: Sequence[Array], type_: ElementType) -> Array:
    """Copy elements bytewise, one array after the other."""
    rows = [each.reshape(-1, *type_.shape) for each in arrays]
    if type_.dtype.names is not None:  # NumPy would remove the padding of structs
        rows = [each.view(type_.copied_dtype) for each in rows]
    joined = np.concatenate(rows, dtype=type_.copied_dtype, casting="no")
    return joined.view(type_.dtype)


def split_results(kernel: Kernel, result: Any, shapes: Sequence[Shape]) -> list[Any]:
    """Split the result of a coalesced call into the result of each call."""
    types = [argument.type for argument in kernel.arguments if argument.is_output]
    if not isinstance(result, tuple):
        return _split_output(result, shapes, types[0])
    outputs = zip(result, types, strict=True)
    return list(
        zip(*(_split_output(output, shapes, type_) for output, type_ in outputs), strict=True)
    )


def _split_output(output: Array, shapes: Sequence[Shape], type_: ElementType) -> list[Array]:
    """Split one output. The parts are copies: a view would keep the whole output alive."""
    parts, first = [], 0
    for shape in shapes:
        end = first + math.prod(shape)
        parts.append(output[first:end].reshape(shape + type_.shape).copy())
        first = end
    return parts


def _have_equal_params(kernel: Kernel, calls: Sequence[CallArguments]) -> bool:
    """Whether all calls have the same parameter values. The encoded values are compared: they tell
    0.0 from -0.0, and equal values may be given by name in one call and by position in another."""
    first = calls[0].params
    if all(call.params is first for call in calls):
        return True
    try:
        layout = kernel.make_parameters(b"")
        values = layout.encode(first)
        return all(layout.encode(call.params) == values for call in calls)
    except GpuError:
        return False


def _have_same_layout(arrays: Arrays, others: Arrays) -> bool:
    """Whether two calls have plain NumPy arrays of the same shapes and dtypes."""
    if len(arrays) != len(others):
        return False
    for array, other in zip(arrays, others, strict=True):
        if type(array) is not np.ndarray or type(other) is not np.ndarray:
            return False
        if array.shape != other.shape or array.dtype != other.dtype:
            return False
    return True


def _find_call_shape(arrays: Arrays, types: Sequence[ElementType]) -> Shape | None:
    """The leading shape that all arrays of a call share; None if they do not fit the kernel."""
    if len(arrays) != len(types):
        return None
    first = _find_leading_shape(arrays[0], types[0])
    for array, type_ in zip(arrays[1:], types[1:], strict=True):
        if _find_leading_shape(array, type_) != first:
            return None
    return first


def _find_leading_shape(array: Array, type_: ElementType) -> Shape | None:
    """The shape of an array without that of its elements; None if the element type differs."""
    if not isinstance(array, np.ndarray) or array.dtype != type_.dtype:
        return None
    if is_masked(array):
        return None  # the backend raises when the call runs alone
    element_axes = len(type_.shape)
    leading: Shape = array.shape[: array.ndim - element_axes]
    return leading if array.shape[array.ndim - element_axes :] == type_.shape else None
