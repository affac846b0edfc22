"""The kernels that gather and scatter blocks of words by their positions.

Only a `Dispatch` runs them (`ops/indexing.py`), which guarantees that the positions are in the
array. A block consists of units of 1, 2 or 4 words, and an invocation moves one unit.
"""

from __future__ import annotations

import functools

import numpy as np

from gpu_executor.kernel import Kernel, Tuning
from gpu_executor.kernels.modules import SpecId, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel

SKIPPED = 0xFFFFFFFF
"""The position of a block that `scatter_kernel` does not write."""


@functools.cache
def gather_kernel() -> Kernel:
    """Return the kernel that copies blocks from positions. Inputs: source, positions; push words:
    the words of a unit, the units of a block.
    """
    return _make_kernel("gather")


@functools.cache
def scatter_kernel() -> Kernel:
    """Return the kernel that copies blocks to positions. Inputs: values, positions; the output
    keeps its other elements. Push words: the words of a unit, the units of a block, the units of
    the values, which are repeated.
    """
    return _make_kernel("scatter")


def _make_kernel(name: str) -> Kernel:
    return make_pass_kernel(
        load_spirv(name),
        name,
        2,
        [np.uint32] * 3,
        constants={SpecId.GRID_STRIDE: True},
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
    )
