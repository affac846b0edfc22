"""What executors are passed beside arrays of the right type: other dtypes, scalars and lists, no
inputs at all, and shapes of the results."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, KernelError
from gpu_executor.executor import device_pool
from gpu_executor.executor.device_pool import MAX_SMALL_BYTES
from gpu_executor.executor.jobs import CallArguments
from tests.support.contract_kernels import outer, ramp, reverse, scale, step
from tests.support.custom_kernels import BODY, buffer, kernel
from tests.support.executors import Array, HeldKernel, cpu, executor, held
from tests.support.fault_codes import run_as_batch
from tests.support.threads import PATIENCE

__all__ = ["cpu", "executor", "held"]  # the fixtures

COPY = kernel(
    BODY + "y[i] = x[i];", buffer(0, "x", "float"), buffer(1, "y", "float"), reference=np.copy
)
"""A kernel of floats that declares nothing: the types are those of its code."""
BITS = np.array([1016164991, 0x7F800001, 1 << 31, 1], np.uint32)
"""As floats: a number that no int32 converts to, a signalling NaN, -0.0 and a subnormal number."""


@pytest.fixture(scope="module", params=["vulkan", "cpu"])
def gpu(request: pytest.FixtureRequest) -> Any:
    with gx.GpuExecutor(request.param) as opened:
        yield opened


def as_bits(array: Array) -> Array:
    return array.view(np.uint32)


# --- dtypes ---


def test_arrays_of_another_dtype_in_a_batch_are_refused(gpu: gx.GpuExecutor) -> None:
    floats, integers = BITS.view(np.float32), BITS.view(np.int32)
    for jobs, job in (([(floats,), (integers,)], 1), ([(integers,), (floats,)], 0)):
        with pytest.raises(ArgumentTypeError, match=f"job {job}: .*has dtype int32; it takes floa"):
            gpu.run_batch(COPY, jobs)
    results = gpu.map(COPY, [floats, integers])
    np.testing.assert_array_equal(as_bits(next(results)), BITS)
    with pytest.raises(ArgumentTypeError, match="has dtype int32; it takes float32"):
        next(results)


def test_gathered_calls_of_another_dtype_fail_alone(gpu: gx.GpuExecutor) -> None:
    dtypes = [np.float32, np.int32, np.uint32, np.float32, np.int32, np.float32]
    calls = [(BITS.view(dtype),) for dtype in dtypes * 5]
    outcomes = run_as_batch(gpu, COPY, calls, [None] * len(calls))
    futures = [gpu.submit(COPY, *arrays) for arrays in calls]
    outcomes += [future.exception(PATIENCE) or future.result() for future in futures]
    for outcome, dtype in zip(outcomes, dtypes * 10, strict=True):
        if dtype is np.float32:
            np.testing.assert_array_equal(as_bits(outcome), BITS)
        else:
            assert isinstance(outcome, ArgumentTypeError)


def test_an_array_of_another_dtype_ends_a_stream() -> None:
    with gx.PersistentVulkanBackend() as backend:
        stream = backend.stream(COPY, ((BITS.view(dtype),) for dtype in (np.float32, np.int32)))
        with pytest.raises(ArgumentTypeError, match=r"job 1: .*has dtype int32; it takes float32"):
            list(stream)
        jobs = [(np.roll(BITS, n).view(np.float32),) for n in range(20)]
        for result, (x,) in zip(backend.stream(COPY, iter(jobs)), jobs, strict=True):
            np.testing.assert_array_equal(as_bits(result), as_bits(x))


def test_every_bit_pattern_of_a_float_survives(gpu: gx.GpuExecutor) -> None:
    jobs = [(np.roll(BITS, n).view(np.float32),) for n in range(20)]
    for results in (
        gpu.run_batch(COPY, jobs),
        list(gpu.map(COPY, *zip(*jobs, strict=True))),
        [future.result(PATIENCE) for future in [gpu.submit(COPY, *job) for job in jobs]],
    ):
        for result, (x,) in zip(results, jobs, strict=True):
            np.testing.assert_array_equal(as_bits(result), as_bits(x))


# --- scalars and lists ---


def test_scalars_and_lists_become_arrays(executor: gx.GpuExecutor) -> None:
    x, c = np.array([5, 6, 7], np.uint32), np.array([1, 2, 3], np.uint32)
    expected = x * np.uint32(1664525) + c
    numbers = [5, 6, 7]
    for call in (executor.run, lambda *a: executor.submit(*a).result(PATIENCE)):
        np.testing.assert_array_equal(call(step(), numbers, c), expected)
    for result in executor.run_batch(step(), [([5, 6, 7], c), (x, (1, 2, 3))]):
        np.testing.assert_array_equal(result, expected)
    (mapped,) = executor.map(step(), [[5, 6, 7]], [c])
    np.testing.assert_array_equal(mapped, expected)
    np.testing.assert_array_equal(asyncio.run(executor.run_async(step(), numbers, c)), expected)
    assert numbers == [5, 6, 7]
    with pytest.raises(ArgumentTypeError, match=r"argument 0 .*uint32 cannot hold"):
        executor.run(step(), [-1, 0, 1], c)


def test_a_list_may_be_changed_after_submit(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    numbers, futures = [0, 0, 0], []
    for number in range(4):
        numbers[1] = number
        futures.append(cpu.submit(scale(), numbers, params=(2,)))
    assert cpu.stats().waiting_bytes == 4 * 12
    held.released.set()
    for number, future in enumerate(futures):
        assert future.result(PATIENCE).tolist() == [0, 2 * number, 0]


# --- no inputs, and out_shape ---

RAMP = ramp()


def expect_ramp(first: int, slope: int, shape: Any) -> Array:
    return (first + slope * np.arange(np.prod(shape))).astype(np.uint32).reshape(shape)


def test_kernels_without_inputs_run_in_every_way(gpu: gx.GpuExecutor) -> None:
    for shape in (1, (1000,), (20, 30)):
        for call in (
            gpu.run,
            lambda *a, **o: gpu.submit(*a, **o).result(PATIENCE),
            lambda *a, **o: asyncio.run(gpu.run_async(*a, **o)),
        ):
            result = call(RAMP, params={"first": 3, "slope": 2}, out_shape=shape)
            np.testing.assert_array_equal(result, expect_ramp(3, 2, shape))
    fixed = ramp(out_shape=(50,))
    params = [{"first": n} for n in range(30)]
    results = gpu.run_batch(fixed, [()] * 30, params=params)
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, expect_ramp(n, 1, 50))
    for n, result in enumerate(gpu.map(fixed, params=params)):
        np.testing.assert_array_equal(result, expect_ramp(n, 1, 50))
    assert n == 29
    with pytest.raises(ArgumentShapeError, match=r"job 0: ramp has no inputs.*give out_shape="):
        gpu.run_batch(RAMP, [()], params=(1,))


def test_calls_with_out_shapes_of_their_own_are_queued_together(gpu: gx.GpuExecutor) -> None:
    shape, futures = [5], []
    for n in range(1, 40):
        shape[0] = n
        futures.append(gpu.submit(RAMP, params=(n,), out_shape=shape))
    for n, future in enumerate(futures, 1):
        np.testing.assert_array_equal(future.result(PATIENCE), expect_ramp(n, 1, n))


def test_gathered_calls_keep_their_out_shapes(gpu: gx.GpuExecutor) -> None:
    """The kernel has an out_shape that serves the other calls."""
    flexible = ramp(out_shape=(6,))
    shapes = [None, (2, 3), (4,), None, (1, 5)]
    calls = [CallArguments((), params=(7,), out_shape=shape) for shape in shapes]
    results = gpu._devices[0].run_calls(flexible, calls)
    for shape, result in zip(shapes, results, strict=True):
        np.testing.assert_array_equal(result, expect_ramp(7, 1, shape or (6,)))


def test_an_out_shape_replaces_that_of_the_kernel(gpu: gx.GpuExecutor) -> None:
    a, b = np.arange(1, 9, dtype=np.uint32), np.arange(1, 5, dtype=np.uint32)
    table = np.multiply.outer(a, b)
    np.testing.assert_array_equal(gpu.run(outer(), a, b), table)
    flat = outer(reference=lambda a, b, out_shape: np.multiply.outer(a, b).reshape(out_shape))
    np.testing.assert_array_equal(gpu.run(flat, a, b, out_shape=(32,)), table.reshape(-1))
    with pytest.raises(ArgumentShapeError, match="out_shape is for kernels with split='whole'"):
        gpu.run(scale(), a, params=(1,), out_shape=(3,))


def test_executors_count_calls_without_inputs() -> None:
    with gx.GpuExecutor("cpu", devices=[0, 0], queued_bytes=100) as gpu:
        futures = [gpu.submit(RAMP, params=(n,), out_shape=(100,)) for n in range(50)]
        for n, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(PATIENCE), expect_ramp(n, 1, 100))
        stats = gpu.stats()
        assert sum(each.calls for each in stats.devices) == 50
        assert sum(each.inside.elements for each in stats.devices) == 5000
        assert sum(each.nbytes for each in stats.devices) == 0
        assert "shares of a large call" in str(gpu.explain(scale(params=(1, 2)), 10))


# --- small calls on the CPU ---


def test_small_calls_have_their_parameters_on_the_cpu_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_pool, "_measure_seconds", _prefer_the_cpu)
    x = np.arange(10, dtype=np.uint32)
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as gpu:
        for factor in (3, 4):
            result = gpu.run(scale(), x, params={"factor": factor, "offset": 1})
            np.testing.assert_array_equal(result, factor * x + 1)
        np.testing.assert_array_equal(gpu.run(reverse(), x), x[::-1])
        assert gpu.run(reverse(), x, out=x) is x
        np.testing.assert_array_equal(x, np.arange(10)[::-1])
        result = gpu.run(RAMP, params=(5,), out_shape=(4, 4))
        np.testing.assert_array_equal(result, expect_ramp(5, 1, (4, 4)))
        assert [each.calls for each in gpu.stats().devices] == [0, 5]


def _prefer_the_cpu(backend: Any, *_arguments: Any) -> float:
    return 0.0 if isinstance(backend, gx.CpuBackend) else 1.0


def test_a_call_with_large_outputs_is_not_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_pool, "_measure_seconds", _prefer_the_cpu)
    side = int(np.sqrt(MAX_SMALL_BYTES / 4)) + 1
    a = np.arange(side, dtype=np.uint32)
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as gpu:
        np.testing.assert_array_equal(gpu.run(outer(), a, a), np.multiply.outer(a, a))
        gpu.run(RAMP, params=(5,), out_shape=(MAX_SMALL_BYTES,))
        assert [(each.backend, each.calls) for each in gpu.stats().devices] == [("vulkan", 2)]
        gpu.run(outer(), a[:3], a[:3])
        assert [each.calls for each in gpu.stats().devices] == [2, 1]


def test_a_measurement_has_the_parameters_of_the_call() -> None:
    x = np.arange(10, dtype=np.uint32)
    seen: list[int] = []

    def compute(x: Array, factor: int, offset: int) -> Array:
        seen.append(factor)
        return x * np.uint32(factor) + np.uint32(offset)

    with gx.GpuExecutor("vulkan", small_on_cpu=True) as gpu:
        np.testing.assert_array_equal(
            gpu.run(scale(reference=compute), x, params=(7, 1)), 7 * x + 1
        )
    assert set(seen) == {7}


def test_a_kernel_without_a_reference_is_refused_by_the_cpu(cpu: gx.GpuExecutor) -> None:
    with pytest.raises(KernelError, match="has no reference"):
        cpu.run(ramp(reference=None), params=(1,), out_shape=(3,))
