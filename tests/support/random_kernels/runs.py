"""Runs the calls of random kernels on a backend in every way it has, and compares the results."""

from __future__ import annotations

import functools
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from tests.support.random_kernels.calls import (
    Expected,
    compute_expected,
    describe_difference,
    lay_out,
    make_arrays,
    make_options,
    make_outputs,
    make_params,
)
from tests.support.random_kernels.description import Call, Description

Array = npt.NDArray[Any]
TIMEOUT = 120.0
GATHERED = 3
"""How often a call is submitted with other data and the same parameters."""


@dataclass
class Tally:
    """What ran, what the device refused, and what was wrong."""

    kernels: int = 0
    calls: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Kernels that the device lacks something for, by the message."""
    failures: list[str] = field(default_factory=list)

    def check(self, *, kernels: int, calls: int) -> None:
        """Fail for wrong results, and for fewer kernels or calls than expected. A kernel that the
        device refuses counts as a kernel."""
        assert not self.failures, f"{len(self.failures)} failures:\n" + "\n".join(self.failures)
        refused = sum(self.refused.values())
        assert self.kernels + refused >= kernels, self
        assert self.calls >= calls * self.kernels // (self.kernels + refused), self


class PreparedCall:
    """A call with its arrays, and what to compare the results with."""

    def __init__(self, kernel: Description, call: Call, empty: Callable[..., Array]) -> None:
        """`empty` makes mapped arrays."""
        self._kernel, self._call = kernel, call
        self._before, self._expected = _compute_expected(Hashable(kernel, call))
        self.arrays = [lay_out(array.copy(), call.layout, empty) for array in self._before]
        self.out = make_outputs(kernel, call, self.arrays, empty)
        self.options = make_options(kernel, call)
        self.params = make_params(kernel, call)

    def describe_fault(self, result: Any) -> str:
        """What is wrong with the result or with the arrays; "" if nothing is."""
        if self.out is not None:
            given = self.out if isinstance(self.out, tuple) else (self.out,)
            results = result if isinstance(result, tuple) else (result,)
            if any(one is not other for one, other in zip(given, results, strict=True)):
                return "the results are not the arrays of out="
        elif self._shares_memory(result):
            return "a result shares memory with an argument"
        changed = [
            number
            for number, (array, before) in enumerate(zip(self.arrays, self._before, strict=True))
            if not _are_equal(array, before)
        ]
        if changed and self._call.out != "same":
            return f"argument {changed[0]} was changed"
        return describe_difference(self._kernel, self._expected, result)

    def _shares_memory(self, result: Any) -> bool:
        results = result if isinstance(result, tuple) else (result,)
        passed = [array for array in self.arrays if isinstance(array, np.ndarray)]
        return any(np.may_share_memory(one, other) for one in results for other in passed)


class Hashable:
    """A kernel and a call of it, as a key: equal if they are described by the same words."""

    def __init__(self, kernel: Description, call: Call) -> None:
        self.kernel, self.call = kernel, call
        self._key = kernel, call

    def __hash__(self) -> int:
        return hash((self.kernel.name, self.call.seed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashable) and self._key == other._key


@functools.lru_cache(maxsize=10_000)
def _compute_expected(of: Hashable) -> tuple[list[Array], Expected]:
    """The passed arrays and the expected results of a call, which every backend shares."""
    arrays = make_arrays(of.kernel, of.call)
    return arrays, compute_expected(of.kernel, of.call, arrays)


def _are_equal(one: Any, other: Array) -> bool:
    """Whether two arrays hold the same numbers; the padding of structs does not count."""
    names = other.dtype.names
    if names is None:
        return np.array_equal(one, other)
    return all(np.array_equal(one[name], other[name]) for name in names)


class Method(Protocol):
    """Runs calls on a backend and returns their results. It may leave out some of the calls."""

    __name__: str

    def __call__(
        self, backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
    ) -> Sequence[Any]: ...


def run_single(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """One call after the other."""
    return [
        backend.run(kernel, *each.arrays, out=each.out, **each.options, **options) for each in calls
    ]


def run_batch(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """All calls as a batch; the results go to new arrays."""
    _drop_outputs(calls)
    jobs = _list_jobs(calls)
    results: Sequence[Any] = backend.run_batch(kernel, jobs, **_list_params(calls), **options)
    return results


def run_batch_to_outputs(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """The calls that have arrays for their results, as a batch."""
    calls[:] = [each for each in calls if each.out is not None]
    outputs = [each.out for each in calls]
    results: Sequence[Any] = backend.run_batch(
        kernel, _list_jobs(calls), out=outputs, **_list_params(calls), **options
    )
    return results


def run_stream(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """All calls as a stream."""
    _drop_outputs(calls)
    jobs = iter(_list_jobs(calls))
    return list(backend.stream(kernel, jobs, **_list_params(calls), **options))


def submit_calls(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """All calls at once, so that an executor may gather them."""
    futures = [
        backend.submit(kernel, *each.arrays, out=each.out, **each.options, **options)
        for each in calls
    ]
    return [future.result(TIMEOUT) for future in futures]


def _drop_outputs(calls: list[PreparedCall]) -> None:
    """Results in new arrays, also where the call would write to its arguments."""
    for each in calls:
        each.out = None


def _list_jobs(calls: list[PreparedCall]) -> list[tuple[Array, ...]]:
    return [tuple(each.arrays) for each in calls]


def _list_params(calls: list[PreparedCall]) -> dict[str, Any]:
    params = [each.params for each in calls]
    return {} if all(each is None for each in params) else {"params": params}


TAKES_OUT_SHAPE: tuple[Method, ...] = (run_single, submit_calls)


def needs_halves(described: Description) -> bool:
    """Whether a buffer has numbers of 16 bits with a fraction."""
    parts = (part for buffer in described.buffers for part in buffer.parts())
    return any(kind.name == "float16_t" for _, kind, _ in parts)


@functools.cache
def is_lavapipe_on_arm64() -> bool:
    """There LLVM 15 ends the process at some conversions of float16: "Cannot select: v4f32 =
    fp_extend"."""
    return platform.machine() == "aarch64" and gx.VulkanSpirvBackend().device.kind == "cpu"


def run_kernel(
    tally: Tally,
    backend: Any,
    described: Description,
    kernel: gx.Kernel,
    *methods: Method,
    **options: Any,
) -> None:
    """Run all calls of a kernel with each of the methods, and add what happened to the tally.
    `options` are keyword arguments of the backend's methods."""
    if (
        needs_halves(described)
        and is_lavapipe_on_arm64()
        and not isinstance(backend, gx.CpuBackend)
    ):
        tally.refused["float16"] += 1
        return
    ran = False
    empty = backend.empty if isinstance(backend, gx.PersistentVulkanBackend) else np.empty
    for method in methods:
        if described.out_shape == "call" and method not in TAKES_OUT_SHAPE:
            continue
        calls = list(described.calls)
        if method is submit_calls:
            calls = [replace(each, seed=each.seed + n) for each in calls for n in range(GATHERED)]
        prepared = [PreparedCall(described, each, empty) for each in calls]
        where = f"{described.name}, {method.__name__}"
        try:
            results = method(backend, kernel, prepared, **options)
        except DeviceLacksError as error:
            names = [name for name in kernel.interface.capability_names() if name in str(error)]
            if names and "lacks" in str(error):
                tally.refused[names[0]] += 1
            else:
                tally.failures.append(f"{where}: {error}")
            return
        except Exception as error:
            tally.failures.append(f"{where}: {type(error).__name__}: {error}")
            continue
        for number, (call, result) in enumerate(zip(prepared, results, strict=True)):
            fault = call.describe_fault(result)
            if fault:
                tally.failures.append(f"{where}, call {number}: {fault}")
        ran = True
        tally.calls += len(prepared)
    tally.kernels += ran
