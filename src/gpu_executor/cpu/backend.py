"""CpuBackend: runs the NumPy references of kernels, with the interface of the GPU backends."""

from __future__ import annotations

import inspect
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arguments import collect_jobs
from gpu_executor.call import (
    Array,
    Operand,
    Signature,
    as_arrays,
    check,
    iterate_params,
)
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
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
        compute_reference(
            signature,
            arrange_inputs(signature, given),
            arrange_outputs(signature, call.results),
            signature.parameters.as_keywords(params),
        )
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


def arrange_inputs(
    signature: Signature, arrays: Sequence[Array], elements: Array | None = None
) -> list[Array]:
    """Return the passed arrays as references take them: with the dtypes of the kernel, in native
    byte order, and with one axis of elements if the kernel works element by element. `elements`
    selects some of these."""
    flat = signature.kernel.split == "elements"
    selected = ... if elements is None else elements
    return [
        _arrange(array, operand, flat=flat)[selected].astype(operand.type.dtype, copy=False)
        for array, operand in zip(arrays, signature.inputs, strict=True)
    ]


def arrange_outputs(signature: Signature, results: Sequence[Array]) -> list[Array]:
    """Return views of the results with the same dtypes and axes."""
    flat = signature.kernel.split == "elements"
    return [
        _arrange(array, operand, flat=flat)
        for array, operand in zip(results, signature.outputs, strict=True)
    ]


def _arrange(array: Array, operand: Operand, *, flat: bool) -> Array:
    array = np.asarray(array)
    if operand.type.dtype.names is not None:
        array = array.view(operand.type.dtype)  # its fields may have other names
    return array.reshape(operand.count, *operand.type.shape) if flat else array


def compute_reference(
    signature: Signature,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    params: Mapping[str, Any],
) -> None:
    """Write the results of a kernel's reference to `outputs`; `params` are its keywords.

    The reference gets copies of in-out arguments, because it may compute in place, and views of
    inputs that it cannot write to.
    """
    kernel = signature.kernel
    if kernel.reference is None:
        raise KernelError(f"kernel {kernel.name!r} has no reference, so the CPU cannot run it")
    passed = [
        array.copy() if operand.is_output else _make_read_only(array)
        for array, operand in zip(inputs, signature.inputs, strict=True)
    ]
    computed = kernel.reference(*passed, **params, **find_shape(signature, kernel.reference))
    write_results(f"kernel {kernel.name!r}: its reference", computed, outputs)


def compute_elements(
    signature: Signature,
    indices: Sequence[Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    params: Mapping[str, Any],
) -> None:
    """Write single elements of the results to `outputs`, computed by a kernel's `reference_at`.

    `indices` has the indices of the elements of each output. `reference_at` gets them as one array
    if there is one output, and otherwise as a tuple.
    """
    kernel = signature.kernel
    assert kernel.reference_at is not None
    computed = kernel.reference_at(
        indices[0] if len(indices) == 1 else tuple(indices),
        *map(_make_read_only, inputs),
        **params,
        **find_shape(signature, kernel.reference_at),
    )
    write_results(f"kernel {kernel.name!r}: its reference_at", computed, outputs)


def find_shape(signature: Signature, reference: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword `out_shape` for a reference that has it: the shape of the kernel's output,
    or a tuple of shapes if it has several. In-out arguments do not count. A reference needs it
    where the passed arrays do not determine the shape."""
    if signature.kernel.split == "elements" or not _takes_out_shape(reference):
        return {}
    shapes = tuple(
        shape
        for (shape, _), operand in zip(signature.results, signature.outputs, strict=True)
        if not operand.is_input
    )
    return {"out_shape": shapes[0] if len(shapes) == 1 else shapes}


def _takes_out_shape(reference: Callable[..., Any]) -> bool:
    try:
        return "out_shape" in inspect.signature(reference).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def write_results(what: str, computed: Any, outputs: Sequence[Array]) -> None:
    """Copy what a reference returned to `outputs`.

    Results are cast to the dtypes of the outputs: integers wrap around, floats are rounded. A
    single value is repeated over its output.
    """
    results = computed if isinstance(computed, tuple | list) else (computed,)
    if len(results) != len(outputs):
        raise KernelError(f"{what} returned {len(results)} results for {len(outputs)} outputs")
    for output, result in zip(outputs, results, strict=True):
        np.copyto(output, result, casting="same_kind")


def _make_read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
