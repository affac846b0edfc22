"""Device queues, kinds of memory, parameters, and the selection of adapters."""

from __future__ import annotations

import re
from typing import cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.webgpu import device as device_module
from gpu_executor.webgpu import native_queue
from gpu_executor.webgpu.device import WebGpuDevice, _list_adapters, _select_adapter
from gpu_executor.webgpu.device_queue import PublicQueue
from gpu_executor.webgpu.native_queue import NativeQueue, open_queue
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, word_jobs
from tests.support.webgpu import MATMUL, make_wgsl_kernel


@pytest.mark.parametrize("shares", [True, False], ids=["shared memory", "device memory"])
def test_native_and_public_queue_give_the_same_results(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    if not shares:
        monkeypatch.setattr(device_module, "SHARING_KINDS", ())
    jobs, fields = word_jobs(5, 20_000, 7, 70_000, 0), field_jobs(3, 300, 20_000)
    stats = []
    for private, kind in ((True, NativeQueue), (False, PublicQueue)):
        gpu = open_webgpu(private=private)
        assert isinstance(gpu._queue, kind)
        for _ in range(3):
            check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
            check_sums(gpu.run_batch(FQ_ADD, fields), fields)
            check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
        stats.append(gpu.stats())
    assert (stats[0].submissions, stats[0].chunks) == (stats[1].submissions, stats[1].chunks)


def test_only_a_device_that_shares_the_hosts_memory_binds_mappable_buffers(
    open_webgpu: OpenWebGpu,
) -> None:
    device = open_webgpu()._device
    assert device.shares_memory == (device.kind in ("CPU", "IntegratedGPU"))


def test_parameters_in_a_uniform_buffer_give_the_same_results(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_device = WebGpuDevice.__init__

    def without_immediates(self: WebGpuDevice, wanted: str | int | None = None) -> None:
        open_device(self, wanted)
        self.immediates = False

    monkeypatch.setattr(WebGpuDevice, "__init__", without_immediates)
    gpu = open_webgpu()
    jobs, fields = word_jobs(5, 20_000, 7, 70_000), field_jobs(3, 300)
    for _ in range(3):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        check_sums(gpu.run_batch(FQ_ADD, fields), fields)
        check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
    a, b = np.ones((5, 6), np.uint32), np.ones((6, 7), np.uint32)
    np.testing.assert_array_equal(gpu.run(MATMUL, a, b), a @ b)
    np.testing.assert_array_equal(gpu.run(make_wgsl_kernel(step=9), jobs[0][0]), jobs[0][0] + 9)
    bad = fields[0][0].copy()
    bad[2] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError):
        gpu.run(FQ_ADD, fields[0][0], bad)
    there = gpu.to_device(jobs[0][0])
    for step in (9, 10):
        kept = gpu.run(make_wgsl_kernel(step=step), there)
        np.testing.assert_array_equal(kept.numpy(), jobs[0][0] + step)
    babybear = gx.fields.BABYBEAR
    x = gpu.to_device(babybear.arange(8))
    assert (babybear.ntt(x) * 3 + x**2).tolist() == (
        babybear.ntt(babybear.arange(8)) * 3 + babybear.arange(8) ** 2
    ).tolist()


def test_another_version_of_wgpu_uses_the_public_queue(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_queue, "WGPU_VERSION", "0.1.0")
    gpu = open_webgpu()
    assert isinstance(gpu._queue, PublicQueue)
    check_sums([gpu.run(ADD_U32, *word_jobs(50)[0])], word_jobs(50))


def test_another_implementation_of_webgpu_uses_the_public_queue() -> None:
    class Other:
        queue = None

    class Device:
        device = Other()

        class wgpu:  # noqa: N801
            __version__ = native_queue.WGPU_VERSION

    assert isinstance(open_queue(cast(WebGpuDevice, Device())), PublicQueue)


def test_an_adapter_is_selected_by_index_or_part_of_its_name(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    assert open_webgpu(device=0).device_name == gpu.device_name
    part = gpu.device_name[1:6].upper()
    assert open_webgpu(device=part).device_name == gpu.device_name
    assert open_webgpu(device=gpu.stats().backend).stats().backend == gpu.stats().backend


@pytest.mark.parametrize("wanted", [-1, 99, "no such adapter"])
def test_the_error_for_an_unknown_adapter_lists_the_known_ones(wanted: str | int) -> None:
    with pytest.raises(gx.NoDeviceError, match=re.escape(str(wanted))) as caught:
        gx.WgpuExecutor(wanted, settings=gx.Settings())
    assert "there are " in str(caught.value)


def test_the_settings_select_an_adapter_where_none_is_given(open_webgpu: OpenWebGpu) -> None:
    best = open_webgpu()
    part = best.device_name[1:6].upper()
    for wanted in ("0", part, f"{best.device_name} ({best.stats().backend})"):
        gpu = open_webgpu(settings=gx.Settings(device=wanted))
        assert gpu.device_name == best.device_name
        assert gpu.stats().backend == best.stats().backend
        check_sums([gpu.run(ADD_U32, *word_jobs(9)[0])], word_jobs(9))
    given = open_webgpu(device=0, settings=gx.Settings(device="no such adapter"))
    assert given.device_name == best.device_name


@pytest.mark.parametrize("wanted", ["99", "no such adapter"])
def test_the_error_for_an_unknown_adapter_in_the_settings_lists_the_known_ones(wanted: str) -> None:
    with pytest.raises(gx.NoDeviceError, match=rf"{wanted}.*; there are "):
        gx.WgpuExecutor(settings=gx.Settings(device=wanted))


def test_the_environment_selects_an_adapter(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = open_webgpu().device_name
    monkeypatch.setenv("GPU_DEVICE", name[1:6].lower())
    assert open_webgpu(settings=None).device_name == name
    monkeypatch.setenv("GPU_DEVICE", "no such adapter")
    with pytest.raises(gx.NoDeviceError, match="no such adapter"):
        gx.WgpuExecutor()


class FakeAdapter:
    def __init__(self, device: str, kind: str, backend: str) -> None:
        self.info = {"device": device, "adapter_type": kind, "backend_type": backend}


def test_adapters_are_ranked_best_first() -> None:
    adapters = [
        FakeAdapter("soft", "CPU", "Vulkan"),
        FakeAdapter("card", "DiscreteGPU", "OpenGL"),
        FakeAdapter("odd", "Toaster", "Steam"),
        FakeAdapter("card", "DiscreteGPU", "Vulkan"),
        FakeAdapter("chip", "IntegratedGPU", "Metal"),
    ]

    class Gpu:
        @staticmethod
        def enumerate_adapters_sync() -> list[FakeAdapter]:
            return adapters

    class Wgpu:
        gpu = Gpu

    ranked = _list_adapters(Wgpu)
    assert ranked == [adapters[index] for index in (3, 1, 4, 0, 2)]
    assert _select_adapter(ranked, None) is adapters[3]
    assert _select_adapter(ranked, "CARD (opengl)") is adapters[1]
    assert _select_adapter(ranked, 2) is adapters[4]
    with pytest.raises(gx.NoDeviceError, match="finds no adapter"):
        _select_adapter([], None)
