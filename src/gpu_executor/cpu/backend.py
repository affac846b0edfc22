"""CpuBackend: runs the NumPy references of kernels, with the interface of the GPU backends."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arguments import collect_jobs
from gpu_executor.call import Array, as_arrays, check, iterate_params
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel, to_native
from gpu_executor.kernels import load


@dataclass(frozen=True, slots=True)
class CpuStats:
    """Counters since the backend was opened."""

    calls: int
    elements: int
    seconds: float
    """Time spent in references."""


class CpuBackend:
    """Runs any kernel that has a `reference`, without a GPU.

    The references of field kernels are exact, and vectorised over the elements.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats = CpuStats(0, 0, 0.0)

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike,
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run the kernel's reference on the arrays; returns its output, or a tuple of several."""
        given = as_arrays(kernel, arrays)
        signature = check(kernel, given, on_device=False, out_shape=out_shape)
        call = signature.make_call(given, params)
        if out is not None:
            call.use_outputs(out)
        call.make_outputs()
        begun = time.perf_counter()
        whole = kernel.split == "whole"
        inputs = given if whole else list(map(_to_native_order, call.inputs))
        keywords = signature.parameters.as_keywords(params)
        compute_reference(kernel, inputs, call.results if whole else call.outputs, keywords)
        self._count(signature.count, time.perf_counter() - begun)
        return call.result()

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Sequence[Sequence[Array]],
        *,
        out: Sequence[Any] | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays, one after the other."""
        calls, outs = collect_jobs(jobs, out)
        targets = outs or [None] * len(calls)
        given = itertools.islice(iterate_params(params, len(calls)), len(calls))
        return [
            self.run(kernel, *call, out=each, params=own)
            for call, each, own in zip(calls, targets, given, strict=True)
        ]

    def run_field_add(self, a: Array, b: Array) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        result: Array = self.run(load("bls12_381_fq_add"), a, b)
        return result

    def stats(self) -> CpuStats:
        """Return the number of calls and elements, and the time they took."""
        return self._stats

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def __enter__(self) -> CpuBackend:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    def _count(self, elements: int, seconds: float) -> None:
        with self._lock:
            old = self._stats
            self._stats = CpuStats(old.calls + 1, old.elements + elements, old.seconds + seconds)


def compute_reference(
    kernel: Kernel,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    params: Mapping[str, Any] | None = None,
) -> None:
    """Write the results of a kernel's reference to `outputs`; `params` are keywords.

    The reference gets copies of in-out arguments, because it may compute in place. Results are cast
    to the dtypes of the outputs: integers wrap around, floats are rounded. A single value is
    repeated over its output.
    """
    if kernel.reference is None:
        raise KernelError(f"kernel {kernel.name!r} has no reference, so the CPU cannot run it")
    passed = [argument for argument in kernel.arguments if argument.is_input]
    given = [
        np.array(array) if argument.is_output else array
        for array, argument in zip(inputs, passed, strict=True)
    ]
    computed = kernel.reference(*given, **(params or {}))
    results = computed if isinstance(computed, tuple | list) else (computed,)
    if len(results) != len(outputs):
        raise KernelError(
            f"kernel {kernel.name!r}: its reference returned {len(results)} results for "
            f"{len(outputs)} outputs"
        )
    for output, result in zip(outputs, results, strict=True):
        np.copyto(output, result, casting="same_kind")


def _to_native_order(array: Array) -> Array:
    return array.astype(to_native(array.dtype), copy=False)
