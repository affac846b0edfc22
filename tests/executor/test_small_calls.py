"""Small calls on the CPU: measurements that fail, and many kernels."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.executor import device_pool
from gpu_executor.executor.device_pool import ROUNDS
from gpu_executor.kernel import Shape
from tests.support.executors import (
    Array,
    HeldKernel,
    held,
    make_addition,
    make_kernel,
    total,
    words,
)
from tests.support.threads import PATIENCE

__all__ = ["held"]


def test_the_device_runs_calls_whose_reference_fails() -> None:
    tried: list[int] = []

    def broken(a: Array, _b: Array) -> Array:
        tried.append(len(a))
        raise IndexError("the reference has a bug")

    kernel, jobs = make_kernel(broken), [words(3), words(4)]
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as executor:
        for _ in range(3):
            np.testing.assert_array_equal(executor.run(kernel, *words(3)), total(words(3)))
        assert tried == [3], "measured once"
        for found, job in zip(executor.run_batch(kernel, jobs), jobs, strict=True):
            np.testing.assert_array_equal(found, total(job))
        future = executor.submit(kernel, *words(100))
        np.testing.assert_array_equal(future.result(PATIENCE), total(words(100)))
        assert [each.backend for each in executor.stats().devices if each.calls] == ["vulkan"]
        assert "none so far" in str(executor.explain(kernel, 10))


def test_an_error_in_a_measurement_fails_only_its_own_call(held: HeldKernel) -> None:
    def same(first: Shape, _second: Shape) -> Shape:
        if first == (3,):
            raise LookupError("no shape for three")
        return first

    kernel = make_kernel(lambda a, b: a + b, split="whole", out_shape=same)
    with gx.GpuExecutor("cpu", small_on_cpu=True) as executor:
        held.hold(executor)
        bad, good = (executor.submit(kernel, *words(count)) for count in (3, 4))
        held.released.set()
        assert "out_shape raised LookupError: no shape for three" in str(bad.exception(PATIENCE))
        np.testing.assert_array_equal(good.result(PATIENCE), total(words(4)))


def test_the_number_of_measurements_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_pool, "MAX_MEASUREMENTS", 8)
    seen: list[int] = []

    def kernel_number(number: int) -> gx.Kernel:
        return make_kernel(make_addition(lambda: seen.append(number)))

    with gx.GpuExecutor("cpu", small_on_cpu=True) as executor:
        known = []
        for number in range(20):
            kernel = kernel_number(number)
            executor.run(kernel, *words(3))
            known.append(weakref.ref(kernel))
        gc.collect()
        assert [each() is None for each in known] == [True] * 12 + [False] * 8
        seen.clear()
        executor.run(kernel, *words(3))
        assert seen == [19], "a kept measurement is not repeated"
        executor.run(kernel_number(20), *words(3))
        assert seen[1:] == [20] * (2 * (1 + ROUNDS) + 1)
