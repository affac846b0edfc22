"""Small calls of one kernel as a single call: their elements one behind the other.

A call of a few elements costs what submitting and waiting cost. Eight of them in one cost it once,
where a batch has a submission for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.call import Array, is_masked
from gpu_executor.executor.jobs import Arrays
from gpu_executor.kernel import ElementType, Kernel, Shape

MOST_BYTES = 1 << 20
"""Of all inputs: more is copied faster by those who overlap copies and computing."""


def coalesce(kernel: Kernel, calls: Sequence[Arrays]) -> tuple[Arrays, list[Shape]] | None:
    """Inputs of one call, and the shape of elements in each; None where they cannot be joined.

    What does not fit the kernel is left to be refused call by call.
    """
    if kernel.split != "elements" or kernel.types is None or kernel.push_of is not None:
        return None
    types = kernel.types[: kernel.inputs]
    shapes: list[Shape] = []
    like: Arrays | None = None
    shape, own_bytes, nbytes = None, 0, 0
    for arrays in calls:
        if like is None or not _are_like(arrays, like):  # they nearly always are
            like, shape = arrays, _shape_of(arrays, types)
            if shape is None:
                return None
            own_bytes = sum(each.nbytes for each in arrays)
        assert shape is not None
        shapes.append(shape)
        nbytes += own_bytes
    if nbytes > MOST_BYTES:
        return None
    columns = zip(*calls, strict=True)
    return tuple(
        np.concatenate([each.reshape(-1, *type_.shape) for each in column])
        for column, type_ in zip(columns, types, strict=True)
    ), shapes


def split_results(kernel: Kernel, result: Any, shapes: Sequence[Shape]) -> list[Any]:
    """Each call's own result."""
    assert kernel.types is not None
    types = kernel.types[kernel.inputs :]
    if not isinstance(result, tuple):
        return _parts(result, shapes, types[0])
    wholes = zip(result, types, strict=True)
    return list(zip(*(_parts(whole, shapes, type_) for whole, type_ in wholes), strict=True))


def _parts(whole: Array, shapes: Sequence[Shape], type_: ElementType) -> list[Array]:
    """Copies: else one of them would keep all of them."""
    parts, first = [], 0
    for shape in shapes:
        end = first + math.prod(shape)
        parts.append(whole[first:end].reshape(shape + type_.shape).copy())
        first = end
    return parts


def _are_like(arrays: Arrays, others: Arrays) -> bool:
    """Whether what holds of those arrays holds of these."""
    if len(arrays) != len(others):
        return False
    for array, other in zip(arrays, others, strict=True):
        if type(array) is not np.ndarray or type(other) is not np.ndarray:
            return False
        if array.shape != other.shape or array.dtype != other.dtype:
            return False
    return True


def _shape_of(arrays: Arrays, types: Sequence[ElementType]) -> Shape | None:
    """The shape of elements that all arrays of a call have, if they are what the kernel takes."""
    if len(arrays) != len(types):
        return None
    first = _elements(arrays[0], types[0])
    for array, type_ in zip(arrays[1:], types[1:], strict=True):
        if _elements(array, type_) != first:
            return None
    return first


def _elements(array: Array, type_: ElementType) -> Shape | None:
    if not isinstance(array, np.ndarray) or array.dtype != type_.dtype:
        return None
    if is_masked(array):
        return None  # which a call of its own refuses
    own = len(type_.shape)
    leading: Shape = array.shape[: array.ndim - own]
    return leading if array.shape[array.ndim - own :] == type_.shape else None
