"""A kernel's reference, into arrays that are there: what the CPU takes for the kernel's result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpu_executor.call import Array
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel


def compute(kernel: Kernel, inputs: Iterable[Array], outputs: Sequence[Array]) -> None:
    """What the reference gives is brought into the outputs' dtypes, wrapped around or rounded, and
    repeated where it is one value for many."""
    if kernel.reference is None:
        raise KernelError(f"kernel {kernel.name!r} has no reference, so the CPU cannot run it")
    computed = kernel.reference(*inputs)
    results = computed if isinstance(computed, tuple | list) else (computed,)
    if len(results) != len(outputs):
        raise KernelError(
            f"kernel {kernel.name!r}: its reference gave {len(results)} results for "
            f"{len(outputs)} outputs"
        )
    for output, result in zip(outputs, results, strict=True):
        np.copyto(output, result, casting="same_kind")
