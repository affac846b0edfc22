"""Small calls of one kernel as a single call: their elements one behind the other.

A call of a few elements costs what submitting and waiting cost. Eight of them in one cost it once,
where a batch has a submission for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.ma import MaskedArray  # once: `np.ma` is an import, and takes a lock, each time

from gpu_executor.call import Array
from gpu_executor.executor.jobs import Arrays
from gpu_executor.kernel import ElementType, Kernel, Shape

MOST_BYTES = 1 << 20
"""Of all inputs: more is copied faster by those who overlap copies and computing."""


def joined(kernel: Kernel, calls: Sequence[Arrays]) -> tuple[Arrays, list[Shape]] | None:
    """Inputs of one call, and the shape of elements in each; None where they cannot be joined.

    What does not fit the kernel is left to be refused call by call.
    """
    if kernel.split != "elements" or kernel.types is None or kernel.push_of is not None:
        return None
    types = kernel.types[: kernel.inputs]
    shapes: list[Shape] = []
    nbytes = 0
    for arrays in calls:
        shape = _shape_of(arrays, types)
        if shape is None:
            return None
        shapes.append(shape)
        nbytes += sum(each.nbytes for each in arrays)
    if nbytes > MOST_BYTES:
        return None
    columns = zip(*calls, strict=True)
    return tuple(
        np.concatenate([each.reshape(-1, *type_.shape) for each in column])
        for column, type_ in zip(columns, types, strict=True)
    ), shapes


def parted(kernel: Kernel, result: Any, shapes: Sequence[Shape]) -> list[Any]:
    """Each call's own result."""
    assert kernel.types is not None
    types = kernel.types[kernel.inputs :]
    wholes = result if isinstance(result, tuple) else (result,)
    parts, first = [], 0
    for shape in shapes:
        end = first + math.prod(shape)
        own = tuple(
            whole[first:end].reshape(shape + type_.shape).copy()  # else one keeps all of them
            for whole, type_ in zip(wholes, types, strict=True)
        )
        parts.append(own if isinstance(result, tuple) else own[0])
        first = end
    return parts


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
    if isinstance(array, MaskedArray):
        return None  # which a call of its own refuses
    own = len(type_.shape)
    leading: Shape = array.shape[: array.ndim - own]
    return leading if array.shape[array.ndim - own :] == type_.shape else None
