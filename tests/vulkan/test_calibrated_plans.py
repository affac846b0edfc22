"""Calls under a calibrated plan: results are exact at every size, and empty calls return empty
results.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.plan.calibration import Calibration
from gpu_executor.vulkan.disk_cache import write_calibration
from tests.conftest import OpenGpu
from tests.support.calibrations import EAGER, H200, LAVAPIPE
from tests.support.jobs import ADD_U32, FQ_ADD, Array, check_sums, field_jobs, word_jobs
from tests.support.threads import PATIENCE

NOTHING = np.zeros(0, np.uint32)
NO_ROWS = np.zeros((3, 0), np.uint32)
SEVERAL_CHUNKS = 524_309  # under the EAGER calibration; a prime number
SIZES = (0, 1, 2, 61, 64, 4099, 0, SEVERAL_CHUNKS, 65_537, 0)


@pytest.fixture(params=[LAVAPIPE, H200, EAGER], ids=["slow", "fast", "eager"])
def calibration(request: pytest.FixtureRequest, tmp_path: Path) -> Calibration:
    """The calibration that every backend with this cache folder plans with."""
    stored: Calibration = request.param
    write_calibration(tmp_path, gx.devices()[0], stored)
    return stored


@pytest.fixture
def measured(
    fresh_gpu: OpenGpu, calibration: Calibration, tmp_path: Path
) -> gx.PersistentVulkanBackend:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    assert gpu.calibration == calibration
    return gpu


@pytest.fixture(params=[1, 2], ids=["one device", "two"])
def executor(
    request: pytest.FixtureRequest, calibration: Calibration, tmp_path: Path
) -> Iterator[gx.GpuExecutor]:
    settings = dataclasses.replace(
        gx.Settings.from_environment(), calibrate=True, cache_dir=tmp_path
    )
    with gx.GpuExecutor("vulkan", devices=[0] * request.param, settings=settings) as opened:
        assert "GB/s as calibrated" in str(opened.explain(ADD_U32, 1))
        yield opened


def is_empty(found: Any, like: Array) -> bool:
    return bool(found.shape == like.shape and found.dtype == like.dtype)


@pytest.mark.parametrize("empty", [NOTHING, NO_ROWS], ids=["no elements", "no rows of any"])
def test_empty_calls_of_a_backend_return_empty_results(
    measured: gx.PersistentVulkanBackend, empty: Array
) -> None:
    for device_local in (None, True, False):
        assert is_empty(measured.run(ADD_U32, empty, empty, device_local=device_local), empty)
        for pipelined in (None, True, False):
            found = measured.run_batch(
                ADD_U32, [(empty, empty)] * 3, device_local=device_local, pipelined=pipelined
            )
            assert len(found) == 3
            assert all(is_empty(each, empty) for each in found)
        streamed = measured.stream(ADD_U32, [(empty, empty)] * 3, device_local=device_local)
        assert [is_empty(each, empty) for each in streamed] == [True] * 3
    out = np.empty_like(empty)
    assert measured.run(ADD_U32, empty, empty, out=out) is out
    mapped = measured.asarray(empty)
    assert is_empty(measured.run(ADD_U32, mapped, mapped), empty)
    there = measured.to_device(empty)
    assert is_empty(measured.run(ADD_U32, there, there, keep=True).numpy(), empty)
    assert is_empty(measured.run(ADD_U32, there, empty), empty)
    plan = measured.explain(ADD_U32, empty, empty)
    assert plan.foreseen is not None and 0 < plan.foreseen < 1e-3
    assert (plan.chunk, plan.slots) == (1, 1)


@pytest.mark.parametrize("empty", [NOTHING, NO_ROWS], ids=["no elements", "no rows of any"])
def test_empty_calls_of_an_executor_return_empty_results(
    executor: gx.GpuExecutor, empty: Array
) -> None:
    pair = (empty, empty)
    assert is_empty(executor.run(ADD_U32, *pair), empty)
    assert is_empty(executor.submit(ADD_U32, *pair).result(PATIENCE), empty)
    assert is_empty(asyncio.run(executor.run_async(ADD_U32, *pair)), empty)
    mapped = executor.map(ADD_U32, [empty] * 3, [empty] * 3)
    for found in (executor.run_batch(ADD_U32, [pair] * 3), mapped):
        assert [is_empty(each, empty) for each in found] == [True] * 3
    assert executor.run_batch(ADD_U32, []) == list(executor.map(ADD_U32, [], [])) == []
    assert "work-groups of" in str(executor.explain(ADD_U32, 0))


def test_a_backend_is_exact_at_every_size(
    measured: gx.PersistentVulkanBackend,
) -> None:
    for kernel, jobs in ((ADD_U32, word_jobs(*SIZES)), (FQ_ADD, field_jobs(0, 1, 61, 4099, 0))):
        check_sums([measured.run(kernel, *job) for job in jobs], jobs)
        for pipelined in (None, True, False):
            check_sums(measured.run_batch(kernel, jobs, pipelined=pipelined), jobs)
        check_sums(list(measured.stream(kernel, jobs)), jobs)
    chunks = list(measured.explain(ADD_U32, SEVERAL_CHUNKS).chunks())
    assert (len(chunks) > 1) == (measured.calibration == EAGER)


def test_an_executor_is_exact_at_every_size(executor: gx.GpuExecutor) -> None:
    jobs = word_jobs(*SIZES)
    firsts, seconds = zip(*jobs, strict=True)
    check_sums([executor.run(ADD_U32, *job) for job in jobs], jobs)
    futures = [executor.submit(ADD_U32, *job) for job in jobs]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    check_sums(executor.run_batch(ADD_U32, jobs), jobs)
    check_sums(list(executor.map(ADD_U32, firsts, seconds)), jobs)
