"""Reductions: each block of 4,096 elements to one, in an order that its number alone decides.

Applied again and again they leave a single value. The reference takes the same order, so that float
sums agree to the last bit.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels.modules import spirv
from gpu_executor.kernels.wgsl_texts import (
    REDUCTION_BLOCK,
    REDUCTION_INVOCATIONS,
    REDUCTIONS,
    reduction,
)

Array = npt.NDArray[Any]
TYPES: dict[str, Any] = {"u32": np.uint32, "f32": np.float32}
COMBINE: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
NAMES = tuple(f"reduce_{operation}_{type_}" for operation in REDUCTIONS for type_ in TYPES)


@functools.cache
def reduction_kernel(operation: str, type_: str) -> Kernel:
    """One pass: as many results as there are blocks."""
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        spirv(f"reduce_{operation}_{type_}"),
        inputs=1,
        outputs=1,
        split="whole",
        dtypes=[dtype] * 2,
        out_shape=_blocks,
        name=f"reduce_{operation}_{type_}",
        reference=functools.partial(_reference, operation, dtype),
        wgsl=reduction(operation, dtype),
    )


def _blocks(shape: Shape) -> int:
    return -(-math.prod(shape) // REDUCTION_BLOCK)


def _identity(operation: str, dtype: Any) -> Any:
    if operation == "sum":
        return 0 if dtype is np.uint32 else -0.0  # 0.0 would change the sign of -0.0
    limits: Any = np.iinfo(np.uint32)
    ends = (limits.min, limits.max) if dtype is np.uint32 else (-np.inf, np.inf)
    return ends[operation == "min"]


def _reference(operation: str, dtype: Any, array: Array) -> Array:
    flat = np.asarray(array, dtype).reshape(-1)
    combine, blocks = COMBINE[operation], _blocks(flat.shape)
    padded = np.full(blocks * REDUCTION_BLOCK, _identity(operation, dtype), dtype)
    padded[: flat.size] = flat
    # Row r of a block holds what the invocations take in their turn r.
    rows = padded.reshape(blocks, -1, REDUCTION_INVOCATIONS)
    with np.errstate(all="ignore"):
        partials = np.full((blocks, REDUCTION_INVOCATIONS), _identity(operation, dtype), dtype)
        for turn in range(rows.shape[1]):
            partials = combine(partials, rows[:, turn])
        half = REDUCTION_INVOCATIONS // 2
        while half:
            partials = combine(partials[:, :half], partials[:, half : 2 * half])
            half //= 2
    return np.ascontiguousarray(partials[:, 0])
