"""The kernels of reductions: the sum, the minimum or the maximum of all elements.

The order of the operations depends only on the number of elements, and the references use the same
order, so float sums agree to the last bit on every device:

- Work-group g of G combines the blocks g, g + G, ... of 4,096 elements; G is the number of blocks,
  at most 1,024. Invocation l of 256 combines elements l, l + 256, ... of each of these blocks, in
  order. Then the results of the invocations are combined by halves: 0 with 128, 1 with 129, ...;
  0 with 64, ...; until one is left.
- The results of the work-groups are combined like the elements of a block: invocation l combines
  those of work-groups l, l + 256, ..., and the results of the invocations are combined by halves.

Kernels with names that end with `_by_block` reduce each block by itself, with the same order inside
the block, and return one value per block.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.kernel import Grid, Kernel, Reference, Shape
from gpu_executor.kernels import wgsl_texts
from gpu_executor.kernels.modules import SpecId, load_spirv
from gpu_executor.kernels.wgsl_texts import REDUCTION_BLOCK, REDUCTION_INVOCATIONS

Array = npt.NDArray[Any]

BY_BLOCK_SUFFIX = "_by_block"
MAX_WORK_GROUPS = 1_024
"""Most work-groups of a reduction: 262,144 invocations. The number is part of the order of the
operations, so it is the same on every device: float sums would differ otherwise. It fills large
GPUs, and small ones run the work-groups one after the other, each of which has 4,096 elements at
least."""
MAX_GRID = 65_535
"""Most work-groups of a reduction by blocks, which every device accepts in one dimension."""
_COMBINE: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@functools.cache
def reduction_kernel(operation: str, type_: str, *, by_block: bool = False) -> Kernel:
    """Return the kernel of a reduction, whose result has the shape (); or with `by_block` of one
    result per block of `REDUCTION_BLOCK` elements.

    `operation` is "sum", "min" or "max" and `type_` "u32", with sums modulo 2^32, or "f32". Minimum
    and maximum are NaN if any element is NaN, and order -0.0 below 0.0.
    """
    dtype = {"u32": np.uint32, "f32": np.float32}[type_]
    name = f"reduce_{operation}_{type_}"
    return Kernel.from_spirv(
        load_spirv(name),
        count=True,
        buffers=[
            ("in", dtype),
            ("out", dtype),
            ("scratch", _count_no_scratch_words if by_block else _count_scratch_words),
        ],
        split="whole",
        out_shape=_count_blocks if by_block else _get_scalar_shape,
        init=None,
        grid=_compute_block_grid if by_block else _compute_grid,
        constants={SpecId.BY_BLOCK: by_block},
        name=name + BY_BLOCK_SUFFIX * by_block,
        reference=Reference(
            functools.partial(_reduce_blocks if by_block else _reduce, operation, dtype),
            at=functools.partial(_reduce_some_blocks if by_block else _reduce_at, operation, dtype),
        ),
        wgsl=wgsl_texts.render_reduction(operation, dtype, by_block=by_block),
    )


def _get_scalar_shape(_shape: Shape) -> Shape:
    return ()


def _count_blocks(shape: Shape) -> int:
    return -(-math.prod(shape) // REDUCTION_BLOCK)


def _compute_grid(shape: Shape) -> Grid:
    return min(_count_blocks(shape), MAX_WORK_GROUPS), 1, 1


def _compute_block_grid(shape: Shape) -> Grid:
    return min(_count_blocks(shape), MAX_GRID), 1, 1


def _count_scratch_words(shape: Shape) -> int:
    """The counter of finished work-groups and their results."""
    return 1 + _compute_grid(shape)[0]


def _count_no_scratch_words(_shape: Shape) -> int:
    return 0


# --- references ---


def _reduce(operation: str, dtype: Any, array: Array) -> Array:
    flat = np.asarray(array, dtype).reshape(-1)
    groups = _compute_grid(flat.shape)[0]
    # Row r of a work-group holds the elements that its invocations combine in iteration r.
    rows = _pad(operation, flat, groups * REDUCTION_BLOCK)
    rows = rows.reshape(-1, groups, REDUCTION_BLOCK // REDUCTION_INVOCATIONS, REDUCTION_INVOCATIONS)
    rows = rows.swapaxes(0, 1).reshape(groups, -1, REDUCTION_INVOCATIONS)
    results = _pad(operation, _reduce_rows(operation, rows), REDUCTION_INVOCATIONS)
    return _reduce_rows(operation, results.reshape(1, -1, REDUCTION_INVOCATIONS)).reshape(())


def _reduce_at(operation: str, dtype: Any, indices: Array, array: Array) -> Array:
    return np.full(len(indices), _reduce(operation, dtype, array))


def _reduce_blocks(operation: str, dtype: Any, array: Array) -> Array:
    padded = _pad(operation, np.asarray(array, dtype).reshape(-1), REDUCTION_BLOCK)
    rows = padded.reshape(-1, REDUCTION_BLOCK // REDUCTION_INVOCATIONS, REDUCTION_INVOCATIONS)
    return _reduce_rows(operation, rows)


def _reduce_some_blocks(operation: str, dtype: Any, indices: Array, array: Array) -> Array:
    flat = np.asarray(array, dtype).reshape(-1)
    results = [
        _reduce_blocks(operation, dtype, flat[index * REDUCTION_BLOCK :][:REDUCTION_BLOCK])
        for index in map(int, indices)
    ]
    return np.concatenate(results)


def _reduce_rows(operation: str, rows: Array) -> Array:
    """Reduce an array of shape (results, iterations, invocations) to one of shape (results,)."""
    combine = _COMBINE[operation]
    with np.errstate(all="ignore"):
        values = rows[:, 0]
        for iteration in range(1, rows.shape[1]):
            values = combine(values, rows[:, iteration])
        while values.shape[1] > 1:
            half = values.shape[1] // 2
            values = combine(values[:, :half], values[:, half:])
    return np.ascontiguousarray(values[:, 0])


def _pad(operation: str, flat: Array, unit: int) -> Array:
    """Return a copy with a multiple of `unit` elements; those at the end change no result."""
    padded = np.full(-(-flat.size // unit) * unit, _get_identity(operation, flat.dtype), flat.dtype)
    padded[: flat.size] = flat
    return padded


def _get_identity(operation: str, dtype: np.dtype[Any]) -> Any:
    if operation == "sum":
        return 0 if dtype.kind == "u" else -0.0  # adding 0.0 would turn -0.0 into 0.0
    ends = (0, np.iinfo(np.uint32).max) if dtype.kind == "u" else (-np.inf, np.inf)
    return ends[operation == "min"]
