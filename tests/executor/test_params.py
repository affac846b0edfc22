"""Parameters of a kernel in every way of calling an executor: each call gets its own values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.executor import jobs as jobs_module
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.jobs import CallArguments
from tests.support.contract_kernels import expect_scaled, scale
from tests.support.custom_kernels import BODY, buffer, kernel
from tests.support.executors import (
    Array,
    HeldKernel,
    cpu,
    executor,
    held,
    synchronize_devices,
)
from tests.support.threads import PATIENCE

__all__ = ["cpu", "executor", "held"]  # the fixtures

SCALE = scale()
SIZES = (1, 3, 64, 65, 200, 5)
JOBS = [(np.arange(size, dtype=np.uint32) + 7 * size,) for size in SIZES]
OWN = [{"factor": 3 + index, "offset": 100 * index} for index in range(len(JOBS))]


def run_async(gpu: gx.GpuExecutor, params: list[Any]) -> list[Any]:
    async def gather() -> list[Any]:
        calls = zip(JOBS, params, strict=True)
        return await asyncio.gather(*(gpu.run_async(SCALE, *job, params=own) for job, own in calls))

    return asyncio.run(gather())


WAYS: dict[str, Callable[[gx.GpuExecutor, list[Any]], list[Any]]] = {
    "run": lambda gpu, params: [
        gpu.run(SCALE, *job, params=own) for job, own in zip(JOBS, params, strict=True)
    ],
    "submit": lambda gpu, params: [
        future.result(PATIENCE)
        for future in [
            gpu.submit(SCALE, *job, params=own) for job, own in zip(JOBS, params, strict=True)
        ]
    ],
    "run_async": run_async,
    "map": lambda gpu, params: list(gpu.map(SCALE, *zip(*JOBS, strict=True), params=params)),
    "run_batch": lambda gpu, params: gpu.run_batch(SCALE, JOBS, params=params),
}
"""The jobs with the parameters of each, by each way of calling."""
by_every_way = pytest.mark.parametrize("way", WAYS)


def check_scaled(results: list[Array], params: list[Any]) -> None:
    for result, (x,), own in zip(results, JOBS, params, strict=True):
        np.testing.assert_array_equal(result, expect_scaled(x, **own))


@by_every_way
def test_each_call_has_its_own_parameters(executor: gx.GpuExecutor, way: str) -> None:
    check_scaled(WAYS[way](executor, OWN), OWN)
    check_scaled(WAYS[way](executor, OWN[::-1]), OWN[::-1])


@by_every_way
def test_parameters_may_be_positional_and_have_defaults(executor: gx.GpuExecutor, way: str) -> None:
    given = [(3,), (4, 7), {"factor": 5}, {"factor": 6, "offset": 1}, (0,), (1, 2)]
    meant = [{"factor": each[0], "offset": (*each, 0)[1]} if isinstance(each, tuple) else each
             for each in given]  # fmt: skip
    check_scaled(WAYS[way](executor, given), meant)


def test_one_set_of_parameters_serves_all_jobs(executor: gx.GpuExecutor) -> None:
    same = {"factor": 11, "offset": 5}
    check_scaled(executor.run_batch(SCALE, JOBS, params=same), [same] * len(JOBS))
    columns = zip(*JOBS, strict=True)
    check_scaled(list(executor.map(SCALE, *columns, params=same)), [same] * len(JOBS))


def test_a_dict_may_be_changed_after_submit(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    params, vector = {"factor": 0}, {"v": np.zeros(2, np.uint32)}
    takes_vector = kernel(
        BODY + "y[i] = x[i] * v.x + v.y;",
        buffer(0, "x"),
        buffer(1, "y"),
        pushed="layout(push_constant) uniform Push { uint count; uvec2 v; };",
        reference=lambda x, v: x * v[0] + v[1],
    )
    (x,) = JOBS[2]
    futures, vectors = [], []
    for factor in range(5):
        params["factor"] = factor
        vector["v"][:] = factor, 1
        futures.append(cpu.submit(SCALE, x, params=params))
        vectors.append(cpu.submit(takes_vector, x, params=vector))
    mapped = cpu.map(SCALE, [x] * 3, params=params)
    params["factor"], vector["v"][:] = 1000, 1000
    held.released.set()
    for factor, (future, other) in enumerate(zip(futures, vectors, strict=True)):
        np.testing.assert_array_equal(future.result(PATIENCE), factor * x)
        np.testing.assert_array_equal(other.result(PATIENCE), factor * x + 1)
    assert all(np.array_equal(each, 4 * x) for each in mapped)


# --- coalescing ---


def count_calls(gpu: gx.GpuExecutor, held: HeldKernel, params: list[Any]) -> list[int]:
    """Submit the jobs while the device is busy; return the sizes of the calls that then ran."""
    seen: list[int] = []

    def compute(x: Array, factor: int, offset: int) -> Array:
        seen.append(len(x))
        return expect_scaled(x, factor, offset)

    logged = scale(reference=compute)
    held.hold(gpu)
    futures = [gpu.submit(logged, *job, params=own) for job, own in zip(JOBS, params, strict=True)]
    held.released.set()
    results = [future.result(PATIENCE) for future in futures]
    meant = [{"factor": own[0]} if isinstance(own, tuple) else own for own in params]
    check_scaled(results, meant)
    return seen


def test_calls_with_equal_parameters_are_coalesced(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    same = [{"factor": 9}, (9,), {"factor": 9, "offset": 0}] * 2
    assert count_calls(cpu, held, same) == [sum(SIZES)]


def test_calls_with_different_parameters_are_not_coalesced(
    cpu: gx.GpuExecutor, held: HeldKernel
) -> None:
    assert count_calls(cpu, held, [{"factor": 9}] * 5 + [{"factor": 8}]) == list(SIZES)


def test_zeros_of_different_sign_are_different_parameters() -> None:
    quotient = kernel(
        BODY + "y[i] = x[i] / by;",
        buffer(0, "x", "float"),
        buffer(1, "y", "float"),
        pushed="layout(push_constant) uniform Push { uint count; float by; };",
    )
    ones = (np.ones(3, np.float32),)
    calls = [CallArguments(ones, params={"by": by}) for by in (0.0, -0.0)]
    assert coalesce(quotient, calls) is None
    assert coalesce(quotient, [calls[0], CallArguments(ones, params=(0.0,))]) is not None


def test_a_call_with_wrong_parameters_fails_alone(executor: gx.GpuExecutor) -> None:
    (x,) = JOBS[3]
    wrong: list[Any] = [
        None, {"factor": -1}, {"factor": 1, "other": 2}, [{"factor": 1}], (1, 2, 3), {"factor": 1.5}
    ]  # fmt: skip
    futures = [executor.submit(SCALE, x, params=own) for own in [*wrong, {"factor": 4}]]
    for future in futures[:-1]:
        assert isinstance(future.exception(PATIENCE), ArgumentTypeError)
    np.testing.assert_array_equal(futures[-1].result(PATIENCE), 4 * x)
    with pytest.raises(ArgumentTypeError, match="job 1: scale: params has 'other'"):
        executor.run_batch(SCALE, JOBS[:2], params=[{"factor": 1}, {"other": 2}])


# --- one entry for each job ---


def test_a_list_has_an_entry_for_each_job(executor: gx.GpuExecutor) -> None:
    with pytest.raises(ArgumentTypeError, match="params lists 2 entries for 6 jobs"):
        executor.run_batch(SCALE, JOBS, params=OWN[:2])
    results = executor.map(SCALE, *zip(*JOBS, strict=True), params=OWN[:4])
    for (x,), own in zip(JOBS[:4], OWN, strict=False):
        np.testing.assert_array_equal(next(results), expect_scaled(x, **own))
    with pytest.raises(ArgumentTypeError, match="job 4: params has no entry for it"):
        next(results)
    with pytest.raises(ArgumentTypeError, match=r"params is a list; .* one entry per job"):
        executor.run(SCALE, *JOBS[0], params=[{"factor": 1}])


# --- several devices ---


def test_the_parts_of_a_large_call_have_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "UNIT_BYTES", 1024)
    x = np.arange(10_000, dtype=np.uint32)
    with gx.GpuExecutor("vulkan", devices=[0, 0], check=1.0) as gpu:
        synchronize_devices(gpu)
        for call in (gpu.run, lambda *a, **o: gpu.submit(*a, **o).result(PATIENCE)):
            result = call(SCALE, x, params={"factor": 5, "offset": 2})
            np.testing.assert_array_equal(result, expect_scaled(x, 5, 2))
        assert all(device.calls for device in gpu.stats().devices)
