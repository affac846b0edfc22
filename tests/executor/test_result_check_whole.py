"""The result check of kernels with parameters, in-out arguments, structs and whole outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import KernelError, WrongResultError
from gpu_executor.executor.result_check import ResultChecker
from tests.support.contract_kernels import (
    PARTICLE,
    make_particles,
    move,
    outer,
    ramp,
    reverse,
    scale,
    step,
)
from tests.support.custom_kernels import buffer, kernel
from tests.support.executors import Array
from tests.support.threads import PATIENCE

X = np.arange(200, dtype=np.uint32)


def compare(
    checker: ResultChecker, kernel_: gx.Kernel, arrays: Any, result: Any, **options: Any
) -> None:
    """Check a result as if a device had computed it."""
    sample = checker.sample(kernel_, arrays, **options)
    assert sample is not None
    sample.compare(result, "a device")


def find_wrong(*arguments: Any, **options: Any) -> tuple[int, int]:
    """The output and the index of the wrong element that the check finds."""
    with pytest.raises(WrongResultError) as raised:
        compare(*arguments, **options)
    return raised.value.output, raised.value.index


# --- parameters ---


def test_references_get_the_parameters() -> None:
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        for params in ({"factor": 3}, {"factor": 4, "offset": 5}, (6, 7)):
            gpu.run(scale(), X, params=params)
            gpu.submit(scale(), X, params=params).result(PATIENCE)
            gpu.run_batch(scale(), [(X,)] * 3, params=[params, (1,), (2, 2)])
        assert gpu.stats().checked == 3 * 5 * 200
        assert gpu.stats().devices[0].failed is None
    right = 3 * X + 5
    right[77] += 1
    assert find_wrong(ResultChecker(1.0), scale(), (X,), right, params=(3, 5)) == (0, 77)


# --- several outputs, in-out arguments ---


def make_accumulator() -> gx.Kernel:
    """Outputs in binding order: an output, an in-out argument, another output of another size."""
    return kernel(
        "uint i = gl_GlobalInvocationID.x; if (i >= x.length()) return;"
        "doubled[i] = 2 * x[i]; sums[i] += x[i]; if (i == 0) last[0] = x[x.length() - 1];",
        buffer(0, "doubled"),
        buffer(1, "sums"),
        buffer(2, "x", qualifier="readonly"),
        buffer(3, "last"),
        pushed="",
        split="whole",
        out_shape=lambda sums, x: [x, (1,)],
        buffers="out, inout, in, out",
        reference=lambda sums, x: (2 * x, sums + x, x[-1:]),
    )


def test_outputs_and_in_outs_are_checked_in_binding_order() -> None:
    accumulate, sums = make_accumulator(), X[::-1].copy()
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        doubled, new_sums, last = gpu.run(accumulate, sums, X)
        np.testing.assert_array_equal(doubled, 2 * X)
        np.testing.assert_array_equal(new_sums, np.full(200, 199))
        assert last.tolist() == [199]
        np.testing.assert_array_equal(sums, X[::-1])
        outs = np.empty_like(X), sums, np.empty(1, np.uint32)
        gpu.run(accumulate, sums, X, out=outs)  # checked with the inputs as they were
        np.testing.assert_array_equal(sums, np.full(200, 199))
        assert (gpu.stats().checked, gpu.stats().devices[0].failed) == (2, None)
    for output, index in ((0, 3), (1, 199), (2, 0)):
        results = (2 * X, X + X, X[-1:].copy())
        results[output][index] += 1
        assert find_wrong(ResultChecker(1.0), accumulate, (X, X), results) == (output, index)


def test_calls_in_place_are_checked_with_the_inputs_as_they_were() -> None:
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        for kernel_ in (
            step(),
            reverse(),
            reverse(reference=gx.Reference(np.flip, at=lambda at, x: x[::-1][at])),
        ):
            x = X.copy()
            arrays = (x, X) if kernel_.inputs == 2 else (x,)
            expected = X * np.uint32(1664525) + X if kernel_.inputs == 2 else X[::-1]
            np.testing.assert_array_equal(gpu.run(kernel_, *arrays, out=x), expected)
        assert gpu.stats().devices[0].failed is None


def test_a_reference_cannot_change_the_passed_arrays() -> None:
    def sort_in_place(x: Array) -> Array:
        x.sort()
        return x

    def spoil_inputs(a: Array, b: Array) -> Array:
        a[0] = 1
        return np.multiply.outer(a, b)

    def spoil_at(indices: Array, x: Array) -> Array:
        x[0] = 1
        return x[::-1][indices]

    x = X[::-1].copy()
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        gpu.run(reverse(reference=sort_in_place), x)
        for kernel_ in (
            outer(reference=spoil_inputs),
            reverse(reference=gx.Reference(np.flip, at=spoil_at)),
        ):
            with pytest.raises(ValueError, match="read-only"):
                gpu.run(kernel_, *[x] * kernel_.inputs)
        np.testing.assert_array_equal(x, X[::-1])
        assert gpu.stats().devices[0].failed is None


def test_scalars_and_lists_are_checked() -> None:
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        assert gpu.run(scale(), [1, 2, 3], params=(2,)).tolist() == [2, 4, 6]
        assert gpu.run(outer(), [2], [3, 4]).tolist() == [[6, 8]]
        assert gpu.stats().checked == 3 + 1


# --- structs ---


def test_structs_are_compared_field_by_field() -> None:
    particles = make_particles(50)
    right = make_particles(50)
    right["at"] += [1, 2, 3]
    right["id"] += 1
    right.view(np.uint8).reshape(50, 32)[:, 20:] = 99  # the padding is not compared
    compare(ResultChecker(1.0), move(), (particles,), right)
    right["at"][20, 1] *= np.float32(1 + 1e-6)  # a float may differ in its last digits
    compare(ResultChecker(1.0), move(), (particles,), right)
    for field, index, value in (("id", 31, 7), ("at", 5, [1, 2, 1e6]), ("mass", 49, 0)):
        wrong = right.copy()
        wrong[field][index] = value
        assert find_wrong(ResultChecker(1.0), move(), (particles,), wrong) == (0, index)
    with gx.GpuExecutor("vulkan", check=1.0) as gpu:
        assert gpu.run(move(), particles).dtype == PARTICLE
        assert gpu.run_batch(move(), [(particles[:n],) for n in (3, 4)])[1].shape == (4,)
        assert (gpu.stats().checked, gpu.stats().devices[0].failed) == (57, None)


# --- whole kernels ---


def make_table_at(calls: list[int]) -> Any:
    def compute_at(indices: Array, a: Array, b: Array) -> Array:
        calls.append(len(indices))
        return np.asarray(a[indices // len(b)] * b[indices % len(b)])

    return compute_at


def test_a_reference_at_indices_computes_a_fraction_of_the_elements() -> None:
    calls: list[int] = []

    def refuse(*_arrays: Array) -> Array:
        raise AssertionError("the whole table is not computed")

    sampled = outer(reference=gx.Reference(refuse, at=make_table_at(calls)))
    with gx.GpuExecutor("vulkan", check=0.1) as gpu:
        for _ in range(3):
            gpu.run(sampled, X, X)
        gpu.run(sampled, X[:2], X[:2])
        assert calls == [4000, 4000, 4000, 1], "at least one element of each call"
        assert gpu.stats().checked == sum(calls)


def test_a_reference_at_indices_finds_a_wrong_element_with_its_probability() -> None:
    sampled = outer(reference=gx.Reference(None, at=make_table_at([])))
    a, found = X[:20], 0
    wrong = np.multiply.outer(a, a)
    wrong[7, 9] ^= 1
    checker = ResultChecker(0.1, seed=1)
    for _ in range(200):
        sample = checker.sample(sampled, (a, a))
        assert sample is not None
        try:
            sample.compare(wrong, "a device")
        except WrongResultError as error:
            assert error.index == 7 * 20 + 9
            found += 1
    assert 8 < found < 35


def test_a_reference_at_indices_has_indices_for_each_of_several_outputs() -> None:
    def compute_at(indices: tuple[Array, ...], sums: Array, x: Array) -> tuple[Array, ...]:
        doubled, own, last = indices
        assert set(last.tolist()) == {0} and set(own) <= set(range(200))
        return 2 * x[doubled], (sums + x)[own], x[[-1]]

    accumulate = make_accumulator()
    sampled = kernel_with(accumulate, reference=gx.Reference(None, at=compute_at))
    results = (2 * X, 2 * X, X[-1:].copy())
    compare(ResultChecker(0.2, seed=1), sampled, (X, X), results)
    for output, index in ((0, 3), (1, 199), (2, 0)):
        wrong = [each.copy() for each in results]
        wrong[output][index] += 1
        assert find_wrong(ResultChecker(1.0), sampled, (X, X), tuple(wrong)) == (output, index)
    with pytest.raises(KernelError, match="at of its reference returned 2 results for 3 outputs"):
        broken = kernel_with(accumulate, reference=gx.Reference(None, at=lambda *_: (X, X)))
        compare(ResultChecker(0.2), broken, (X, X), results)


def kernel_with(kernel_: gx.Kernel, **changes: Any) -> gx.Kernel:
    return gx.Kernel.from_spirv(
        kernel_.spirv,
        count=kernel_.count is not None,
        buffers=[argument.access for argument in kernel_.arguments],
        out_shape=kernel_.out_shape,
        **changes,
    )


def test_the_first_call_of_each_signature_is_checked_as_a_whole() -> None:
    calls: list[tuple[int, ...]] = []

    def compute(a: Array, b: Array) -> Array:
        calls.append((len(a), len(b)))
        return np.multiply.outer(a, b)

    checked = outer(reference=compute)
    with gx.GpuExecutor("vulkan", check=1e-9) as gpu:
        for shape in [(3, 4), (4, 3), (3, 4), (5, 5), (4, 3), (5, 5)] * 5:
            gpu.run(checked, X[: shape[0]], X[: shape[1]])
        gpu.run_batch(checked, [(X[:6], X[:6])] * 10)
        assert calls == [(3, 4), (4, 3), (5, 5), (6, 6)]
        assert gpu.stats().checked == 4


def test_kernels_without_inputs_are_checked() -> None:
    by_reference = dataclasses.replace(ramp(), reference_at=None)
    with gx.GpuExecutor("vulkan", check=0.5) as gpu:
        for kernel_ in (ramp(), by_reference):
            gpu.run(kernel_, params=(3,), out_shape=(10, 10))
        assert gpu.stats().checked == 50 + 1
        assert gpu.stats().devices[0].failed is None
    wrong = np.arange(3, 103, dtype=np.uint32).reshape(10, 10)
    wrong[4, 2] += 1
    for kernel_ in (ramp(), by_reference):
        options = {"params": (3,), "out_shape": (10, 10)}
        assert find_wrong(ResultChecker(1.0), kernel_, (), wrong, **options) == (0, 42)
