"""Checks of the additions that several benchmarks time."""

from __future__ import annotations

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernels import load

SAMPLE = 1_000
"""The number of elements of a result that are checked."""
KERNEL = "bls12_381_fq_add"


def check_sums(what: str, a: Array, b: Array, result: Array) -> None:
    """Compare evenly spaced elements, the first and last among them, with the reference."""
    kernel = load(KERNEL)
    assert kernel.reference is not None
    sample = np.linspace(0, len(a) - 1, min(SAMPLE, len(a)), dtype=np.intp)
    expected = kernel.reference(a[sample], b[sample])
    if len(result) != len(a) or not np.array_equal(result[sample], expected):
        raise AssertionError(f"{what}: wrong sums")
