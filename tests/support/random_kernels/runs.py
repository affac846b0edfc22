"""Runs the calls of random kernels on a backend in every way it has, and compares the results."""

from __future__ import annotations

import functools
import platform
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.errors import DeviceLacksError
from tests.support.random_kernels.calls import (
    Expected,
    compute_expected,
    describe_difference,
    make_arrays,
    make_options,
)
from tests.support.random_kernels.description import Call, Description
from tests.support.random_kernels.memory import (
    Memory,
    download,
    find_aliased,
    find_original,
    get_layout,
    make_outputs,
)
from tests.support.random_kernels.outcomes import (
    is_refusal,
    may_refuse,
    predict_call,
    predict_kernel,
)
from tests.support.random_kernels.parameters import make_params

Array = npt.NDArray[Any]
TIMEOUT = 120.0
GATHERED = 3
"""How often a call is submitted with other data and the same parameters."""


@dataclass
class Tally:
    """What ran, what was refused, and what was wrong."""

    kernels: int = 0
    calls: int = 0
    predicted: Counter[str] = field(default_factory=Counter)
    """Kernels and calls that were refused as predicted, by what is wrong with them."""
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

    def __str__(self) -> str:
        predicted = sum(self.predicted.values())
        return f"{self.calls} calls, {len(self.failures)} wrong, {predicted} refused as predicted"


class PreparedCall:
    """A call with its arrays, and what to compare the results with."""

    def __init__(
        self, kernel: Description, call: Call, memory: Memory, *, is_refused: bool = False
    ) -> None:
        """`is_refused`: no results are expected."""
        self.kernel, self.call = kernel, call
        self._expected: Expected = [], []
        if is_refused:
            self.before = make_arrays(kernel, call)
        else:
            self.before, self._expected = _compute_expected(Hashable(kernel, call))
        self.arrays: list[Any] = []
        for number, array in enumerate(self.before):
            original = find_original(call, number)
            self.arrays.append(
                self.arrays[original]
                if original != number
                else memory.lay_out(array.copy(), get_layout(call, number))
            )
        self.out = make_outputs(kernel, call, self.arrays, memory)
        self.options = make_options(kernel, call)
        self.params = make_params(kernel, call)

    @property
    def has_inout(self) -> bool:
        return any(each.role == "inout" for each in self.kernel.buffers)

    def describe_fault(self, result: Any) -> str:
        """What is wrong with the result or with the arrays; "" if nothing is."""
        if self.out is not None:
            given = self.out if isinstance(self.out, tuple) else (self.out,)
            results = result if isinstance(result, tuple) else (result,)
            if any(one is not other for one, other in zip(given, results, strict=True)):
                return "the results are not the arrays of out="
        elif self._shares_memory(result):
            return "a result shares memory with an argument"
        return self.describe_changes() or describe_difference(
            self.kernel, self._expected, download(result)
        )

    def describe_changes(self, *, refused: bool = False) -> str:
        """Which argument was changed, apart from those that are results of a call that ran."""
        written = set() if refused else set(find_aliased(self.kernel, self.call).values())
        written = {find_original(self.call, number) for number in written}
        for number, (array, before) in enumerate(zip(self.arrays, self.before, strict=True)):
            kept = self.out is None or find_original(self.call, number) not in written
            if kept and not _are_equal(array, before):
                return f"argument {number} was changed"
        return ""

    def _shares_memory(self, result: Any) -> bool:
        results = result if isinstance(result, tuple) else (result,)
        results = tuple(each for each in results if isinstance(each, np.ndarray))
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


def forget_expected() -> None:
    """Free the expected results of kernels that do not run again."""
    _compute_expected.cache_clear()


def _are_equal(one: Any, other: Array) -> bool:
    """Whether two arrays hold the same numbers; the padding of structs does not count."""
    one = one.numpy() if isinstance(one, DeviceArray) else one
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


Step = tuple[Method, int]
"""A method, and how many calls it gets."""


def run_single(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """One call after the other."""
    return [
        backend.run(
            kernel,
            *each.arrays,
            out=each.out,
            **({"keep": True} if each.call.keep and _has_device_arrays(backend) else {}),
            **each.options,
            **options,
        )
        for each in calls
    ]


def _runs_spirv(backend: Any) -> bool:
    return not isinstance(backend, gx.CpuBackend | gx.WgpuExecutor)


def _has_device_arrays(backend: Any) -> bool:
    return isinstance(backend, gx.PersistentVulkanBackend | gx.CpuBackend | gx.GpuExecutor)


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


TAKES_OUT_SHAPE = ("run_single", "submit_calls", "run_in_graph", "replay_graph")
TAKES_DEVICE_ARRAYS = ("run_single", "submit_calls")


def needs_halves(described: Description) -> bool:
    """Whether a buffer has numbers of 16 bits with a fraction."""
    parts = (part for buffer in described.buffers for part in buffer.parts())
    return any(kind.name == "float16_t" for _, kind, _ in parts)


@functools.cache
def is_lavapipe_on_arm64() -> bool:
    """There LLVM 15 ends the process at some conversions of float16: "Cannot select: v4f32 =
    fp_extend"."""
    return platform.machine() == "aarch64" and gx.VulkanSpirvBackend().device.kind == "cpu"


class KernelRun:
    """Runs calls of one kernel on a backend, and adds what happened to a tally."""

    def __init__(
        self,
        tally: Tally,
        backend: Any,
        described: Description,
        make: Callable[[], gx.Kernel],
        **options: Any,
    ) -> None:
        """`make` makes the kernel, and `options` are keyword arguments of the backend's methods."""
        self._tally, self._backend, self._described = tally, backend, described
        self._make, self._options = make, options
        self._kernel: gx.Kernel | None = None
        self.is_over = False
        """Whether the kernel was refused, so that its calls cannot run."""
        on_device = not isinstance(backend, gx.CpuBackend)
        if needs_halves(described) and on_device and is_lavapipe_on_arm64():
            tally.refused["float16"] += 1
            self.is_over = True
        if not _runs_spirv(backend) and "size" in predict_kernel(described):
            self.is_over = True  # only the plan of a dispatch misses the size

    def run(self, method: Method, calls: Sequence[Call]) -> None:
        """Run calls with a method: together, but singly those that may be refused."""
        if self.is_over:
            return
        if self._described.out_shape == "call" and method.__name__ not in TAKES_OUT_SHAPE:
            return
        fault = predict_kernel(self._described)
        if fault:
            also = predict_call(self._described, calls[0])
            self._run(method, calls[:1], f"{fault} {also}".strip())
            self.is_over = True
            return
        for call in calls if method is run_single else ():
            if not self.is_over:
                fault = predict_call(self._described, call)
                self._run(method, [call], fault, may_refuse(self._described, call))
        if method is not run_single:
            right = [call for call in calls if not predict_call(self._described, call)]
            self._run(method, [c for c in right if not may_refuse(self._described, c)])

    def _run(
        self, method: Method, calls: Sequence[Call], fault: str = "", perhaps: str = ""
    ) -> None:
        """Run calls; `fault` is what they must be refused for, `perhaps` what they may be."""
        tally, where = self._tally, f"{self._described.name}, {method.__name__}"
        memory = Memory(self._backend, on_device=method.__name__ in TAKES_DEVICE_ARRAYS)
        prepared = [
            PreparedCall(self._described, each, memory, is_refused=bool(fault)) for each in calls
        ]
        try:
            if self._kernel is None:
                self._kernel = self._make()
            results = method(self._backend, self._kernel, prepared, **self._options)
        except DeviceLacksError as error:
            names = re.findall(r"lacks ([^(]*[^( ])", str(error))
            if names:
                tally.refused[names[0]] += 1
            else:
                tally.failures.append(f"{where}: {error}")
            self.is_over = True
            return
        except Exception as error:
            expected = fault or perhaps
            # Members that overlap have no values that could be compared.
            changed = [
                "" if "layout" in expected else each.describe_changes(refused=not perhaps)
                for each in prepared
            ]
            if not is_refusal(error, expected) or any(changed):
                words = " ".join([f"{type(error).__name__}: {error}", *changed])
                numbers = f", call {calls[0].number}" if len(calls) == 1 else ""
                tally.failures.append(f"{where}{numbers}: {words} (expected: {expected})")
            else:
                tally.predicted[expected] += 1
                tally.calls += len(calls)
            return
        tally.calls += len(prepared)
        for call, result in zip(prepared, results, strict=True):
            wrong = "not refused" if fault else call.describe_fault(result)
            if wrong:
                tally.failures.append(f"{where}, call {call.call.number}: {wrong} {fault}")

    @property
    def ran(self) -> bool:
        """Whether any call ran."""
        return self._kernel is not None


def run_kernel(
    tally: Tally,
    backend: Any,
    described: Description,
    make: Callable[[], gx.Kernel],
    calls: Sequence[Call],
    *steps: Step,
    **options: Any,
) -> None:
    """Run the first calls of a kernel with each of the methods, and add what happened to the
    tally."""
    run = KernelRun(tally, backend, described, make, **options)
    for method, count in steps:
        several = calls[:count]
        if method is submit_calls:
            several = [replace(one, seed=one.seed + n) for one in several for n in range(GATHERED)]
        run.run(method, several)
    tally.kernels += run.ran
