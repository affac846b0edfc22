"""Calls that are too large for the device: chunked if their kernel can be, else refused."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from gpu_executor.webgpu import scheduler
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, word_jobs
from tests.support.webgpu import MATMUL, REDUCE, is_idle, make_wgsl_kernel


def limit_bindings(gpu: gx.WgpuExecutor, nbytes: int) -> None:
    """Limit what the device can bind."""
    gpu._device.limits["max-storage-buffer-binding-size"] = nbytes


def limit_buffers(gpu: gx.WgpuExecutor, nbytes: int) -> None:
    """Limit the size of the device's buffers."""
    gpu._device.limits["max-buffer-size"] = nbytes


def test_a_batch_over_the_in_flight_limit_is_read_group_by_group(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MAX_IN_FLIGHT_BYTES", 200_000)
    gpu = open_webgpu()
    jobs = word_jobs(*[1000, 20_000, 40_000, 70_000] * 3, 140_000)
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert gpu.stats().chunks >= 2 * len(jobs)
    assert is_idle(gpu)


@pytest.mark.parametrize("count", [65_536, 65_537, 131_072, 200_001])
def test_a_call_larger_than_the_largest_binding_is_chunked(
    open_webgpu: OpenWebGpu, count: int
) -> None:
    gpu = open_webgpu()
    limit_bindings(gpu, 4 * 65_536)
    jobs = word_jobs(count)
    for _ in range(3):
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    chunks = -(-count // 65_536)
    assert gpu.stats().chunks == 3 * chunks
    assert gpu.stats().calls == 3
    assert max(gpu.stats().bucket_sizes) <= 65_536


def test_a_call_that_can_be_bound_gets_a_bucket_that_can_be_bound(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    limit_bindings(gpu, 4 * 100_000)
    jobs = word_jobs(90_000)
    gpu.prepare(ADD_U32, [90_000])
    for _ in range(3):
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    assert gpu.stats().bucket_sizes == (100_000,)


def test_chunks_are_as_large_as_the_largest_binding(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    limit_bindings(gpu, 4 * 100_000)
    jobs = word_jobs(150_000)
    check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    assert gpu.stats().bucket_sizes == (65_536, 100_000)
    assert gpu.stats().chunks == 2


@pytest.mark.parametrize(
    ("count", "chunks", "submissions"),
    [(32_768, 1, 1), (32_769, 2, 2), (60_000, 2, 1), (65_536, 2, 1), (70_000, 3, 2)],
)
@pytest.mark.parametrize("private", [True, False])
def test_arrays_that_fit_a_buffer_only_singly_are_chunked(
    open_webgpu: OpenWebGpu, count: int, chunks: int, submissions: int, private: bool
) -> None:
    gpu = open_webgpu(private=private)
    limit_buffers(gpu, 2 * 4 * 32_768)
    (job,) = word_jobs(count)
    assert job[0].nbytes <= gpu._device.max_binding_bytes
    for calls in (1, 2, 3):
        check_sums([gpu.run(ADD_U32, *job)], [job])
        stats = gpu.stats()
        assert (stats.calls, stats.chunks) == (calls, calls * chunks)
        assert stats.submissions == calls * submissions
    assert max(stats.bucket_sizes) == 32_768
    assert is_idle(gpu)


def test_each_job_of_a_batch_is_chunked_separately(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    limit_buffers(gpu, 2 * 48 * 16_384)
    jobs = field_jobs(40_000, 5, 16_384, 16_385)
    check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
    assert (gpu.stats().chunks, gpu.stats().submissions) == (3 + 1 + 1 + 2, 1)
    bad = [(a, b.copy()) for a, b in jobs]
    bad[3][1][16_384] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        gpu.run_batch(FQ_ADD, bad)
    assert (caught.value.job, caught.value.argument, caught.value.index) == (3, 1, 16_384)
    assert is_idle(gpu)


def test_a_whole_kernel_whose_inputs_do_not_fit_one_buffer_is_refused(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    limit_buffers(gpu, 2 * 4 * 100 * 128)
    a, b = np.ones((100, 128), np.uint32), np.ones((128, 101), np.uint32)
    said = r"matmul_u32: .* the 102,400 bytes that one .* and this kernel cannot be chunked"
    for _ in range(2):
        with pytest.raises(DeviceLacksError, match=said):
            gpu.run(MATMUL, a, b)
        with pytest.raises(DeviceLacksError, match=said):
            gpu.run_batch(MATMUL, [(a, b[:, :5]), (a, b)])
    assert gpu.stats().submissions == 0
    np.testing.assert_array_equal(gpu.run(MATMUL, a, b[:, :100]), a @ b[:, :100])
    assert is_idle(gpu)


def test_a_bad_element_in_a_later_chunk_is_named_by_its_index_in_the_call(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    limit_bindings(gpu, 48 * 16_384)
    a = np.zeros((40_000, 6), np.uint64)
    b = a.copy()
    b[39_000, 5] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        gpu.run(FQ_ADD, a, b)
    assert (caught.value.argument, caught.value.index) == (1, 39_000)
    assert not gpu.run(FQ_ADD, a, a).any()


def test_a_whole_kernel_larger_than_the_largest_binding_is_refused(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    limit_bindings(gpu, 4 * 65_536)
    with pytest.raises(
        gx.errors.KernelError, match=r"more than the 262,144 bytes .* cannot be chunked"
    ):
        gpu.run(REDUCE, np.ones(65_537, np.uint32))
    assert gpu.run(REDUCE, np.ones(65_536, np.uint32)).sum() == 65_536


def test_a_grid_over_the_limit_of_one_dimension_uses_two(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-compute-workgroups-per-dimension"] = 7
    for count in (448, 449, 5000, 30_000):
        x = np.arange(count, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(make_wgsl_kernel(), x), x + np.uint32(1))
