"""Inputs that the host fills in device memory: the device copies nothing in."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import calibration, memory
from gpu_executor.vulkan.device import find_large_types
from gpu_executor.vulkan.memory import (
    DEVICE_LOCAL,
    HOST_CACHED,
    HOST_COHERENT,
    HOST_VISIBLE,
    Block,
    Purpose,
    find_input_purpose,
)
from gpu_executor.vulkan.transfers import SEGMENT_BYTES
from tests.conftest import OpenGpu, on_both_paths
from tests.support.contract_kernels import expect_step, step
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, watch, word_jobs

MAPPED = HOST_VISIBLE | HOST_COHERENT
GIB = 1 << 30
H200 = [
    (0, 94 * GIB),
    (DEVICE_LOCAL, 140 * GIB),
    (MAPPED, 94 * GIB),
    (MAPPED | HOST_CACHED, 94 * GIB),
    (DEVICE_LOCAL | MAPPED, 140 * GIB),
]
SMALL_WINDOW = [*H200[:4], (DEVICE_LOCAL | MAPPED, GIB // 4)]
UNIFIED = [(DEVICE_LOCAL | MAPPED, 16 * GIB), (DEVICE_LOCAL | MAPPED | HOST_CACHED, 16 * GIB)]


@pytest.fixture
def direct_gpu(direct_inputs: None, fresh_gpu: OpenGpu) -> gx.PersistentVulkanBackend:
    return fresh_gpu()


@pytest.mark.parametrize(
    ("kinds", "kind", "purpose"),
    [
        (H200, "discrete", Purpose.INPUT),
        (SMALL_WINDOW, "discrete", Purpose.UPLOAD),
        (H200[:4], "discrete", Purpose.UPLOAD),
        (UNIFIED, "integrated", Purpose.UPLOAD),
        (UNIFIED, "cpu", Purpose.UPLOAD),
    ],
    ids=["H200", "small window", "no window", "integrated", "software"],
)
def test_inputs_are_in_device_memory_where_the_host_can_write_all_of_it(
    kinds: list[tuple[int, int]], kind: str, purpose: Purpose
) -> None:
    device: Any = types.SimpleNamespace(
        info=types.SimpleNamespace(kind=kind),
        memory_flags=[flags for flags, _ in kinds],
        large_memory_types=find_large_types(kinds),
    )
    assert find_input_purpose(device) is purpose


@on_both_paths
def test_nothing_that_the_host_fills_is_copied_in(
    direct_gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, device_local: bool
) -> None:
    copies = watch(monkeypatch, "vkCmdCopyBuffer")
    jobs = word_jobs(5000, 300, 5000, 100_000)
    results = [direct_gpu.run(ADD_U32, *job, device_local=device_local) for job in jobs]
    check_sums(results, jobs)
    copies_out = 3 if device_local else 0  # the third call is recorded already
    assert [copy[3] for copy in copies] == [1] * copies_out


def test_mapped_inputs_are_copied_in_beside_plain_ones(
    direct_gpu: gx.PersistentVulkanBackend,
) -> None:
    jobs = word_jobs(900, 900)
    mixed = [(direct_gpu.asarray(a), b) for a, b in jobs]
    for _ in range(2):
        check_sums(direct_gpu.run_batch(ADD_U32, mixed, device_local=True), jobs)
        check_sums(direct_gpu.run_batch(ADD_U32, jobs, device_local=True), jobs)


@on_both_paths
def test_in_out_arguments_are_read_back(
    direct_gpu: gx.PersistentVulkanBackend, device_local: bool
) -> None:
    kernel, ((x, c),) = step(), word_jobs(1000)
    for _ in range(2):
        found = direct_gpu.run(kernel, x, c, device_local=device_local)
        np.testing.assert_array_equal(found, expect_step(x, c))


@on_both_paths
def test_batches_overlap_and_invalid_elements_are_found(
    direct_gpu: gx.PersistentVulkanBackend, device_local: bool
) -> None:
    jobs = field_jobs(5, 100, 0, 250, 64, 101)
    for depth in (2, 5):
        results = direct_gpu.run_batch(FQ_ADD, jobs, device_local=device_local, depth=depth)
        check_sums(results, jobs)
    jobs[3][1][207] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        direct_gpu.run_batch(FQ_ADD, jobs, device_local=device_local)
    assert (caught.value.job, caught.value.index) == (3, 207)


@on_both_paths
def test_host_memory_stands_in_where_the_device_has_none_left(
    direct_gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, device_local: bool
) -> None:
    make, refused = memory._make_block, list[int]()

    def make_others(device: Any, purpose: Purpose, nbytes: int) -> Block:
        if purpose is Purpose.INPUT:
            refused.append(nbytes)
            raise gx.OutOfMemoryError("no device memory")
        return make(device, purpose, nbytes)

    monkeypatch.setattr(memory, "_make_block", make_others)
    jobs = word_jobs(5000, 70_000)
    check_sums([direct_gpu.run(ADD_U32, *job, device_local=device_local) for job in jobs], jobs)
    x = jobs[1][0]
    np.testing.assert_array_equal(direct_gpu.to_device(x).numpy(), x)
    assert refused


@pytest.mark.parametrize("count", [20_000, SEGMENT_BYTES // 4 + 1])
def test_device_arrays_of_any_size_have_their_elements(
    direct_gpu: gx.PersistentVulkanBackend, count: int
) -> None:
    for x, y in word_jobs(count, count):
        made = [direct_gpu.to_device(each) for each in (x, y)]
        np.add(x, 1, out=x)  # the caller may change an array as soon as it is copied
        np.testing.assert_array_equal(made[0].numpy(), x - 1)
        np.testing.assert_array_equal(made[1].numpy(), y)


def test_a_calibration_avoids_slow_writes_to_device_memory(
    direct_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibration, "find_input_purpose", lambda _device: Purpose.INPUT)
    monkeypatch.setattr(calibration, "SLOWEST_DIRECT_FILL", 1e9)
    gpu = fresh_gpu(cache_dir=tmp_path, calibrate=True)
    assert gpu.calibrate().direct_fill
    assert gpu._session.resources.memory.input_purpose is Purpose.INPUT
    monkeypatch.setattr(calibration, "SLOWEST_DIRECT_FILL", 0.0)
    assert not gpu.calibrate().direct_fill
    for each in (
        gpu,
        fresh_gpu(cache_dir=tmp_path, calibrate=True),
    ):  # the second one reads the file
        assert each._session.resources.memory.input_purpose is Purpose.UPLOAD
        assert each.calibration is not None
        check_sums([each.run(ADD_U32, *job) for job in word_jobs(5000)], word_jobs(5000))


def test_a_calibration_of_direct_fills_needs_a_device_that_allows_them(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as context:
        for module in (calibration, memory):
            context.setattr(module, "find_input_purpose", lambda _device: Purpose.INPUT)
        context.setattr(calibration, "SLOWEST_DIRECT_FILL", 1e9)
        assert fresh_gpu(cache_dir=tmp_path, calibrate=True).calibrate().direct_fill
        assert fresh_gpu(cache_dir=tmp_path, calibrate=True).calibration is not None
    monkeypatch.setattr(memory, "find_input_purpose", lambda _device: Purpose.UPLOAD)
    assert fresh_gpu(cache_dir=tmp_path, calibrate=True).calibration is None
