"""Kernels that go over many elements each: running products, sums, inverses."""

from __future__ import annotations

import functools

from gpu_executor.kernel import Kernel
from gpu_executor.kernels.dispatched import dispatched_kernel
from gpu_executor.kernels.families import module_family
from gpu_executor.primes import Prime

_ARRAYS = {
    "partial_products": (1, 2),
    "inverses": (3, 1),
    "partial_sums": (1, 1),
    "chunk_products": (1, 1),
    "running_products": (2, 1),
    "resize": (1, 1),
    "evaluate": (2, 1),
}
"""Inputs and outputs. What each is told stands in its source, as KERNEL_PUSH."""


@functools.cache
def scan_kernel(prime: Prime, name: str, *, doubles: bool = False) -> Kernel:
    """The kernel of glsl/scans of that name; with `doubles`, products are made of them."""
    inputs, outputs = _ARRAYS[name]
    kind = module_family(prime, name, doubles=doubles)
    return dispatched_kernel(prime, kind, name, inputs=inputs, outputs=outputs)
