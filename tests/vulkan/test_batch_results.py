"""Small results of a batch share blocks of recycled memory, and never overwrite each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import mapped_arrays
from gpu_executor.vulkan.mapped_arrays import MIN_SHARED_BYTES, RESULT_ALIGNMENT
from tests.conftest import OpenGpu, on_both_paths
from tests.support.jobs import ADD_U32, check_sums, word_jobs

Gpu = gx.PersistentVulkanBackend
COUNT = 10_001
"""Elements of a job: 40,004 bytes are no multiple of the alignment."""
BLOCK_BYTES = 1 << 20
"""Less than by default, so that fewer jobs fill blocks."""
JOBS = 70
"""They fill two blocks and a part of a third."""


@pytest.fixture(autouse=True)
def smaller_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_arrays, "BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr(mapped_arrays, "MIN_BLOCK_BYTES", BLOCK_BYTES // 4)


def find_owner(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


@on_both_paths
def test_results_share_blocks_and_are_right(fresh_gpu: OpenGpu, device_local: bool) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * JOBS)
    results = gpu.run_batch(ADD_U32, jobs, device_local=device_local)
    check_sums(results, jobs)
    assert len({id(find_owner(result)) for result in results}) == 3
    starts = [result.__array_interface__["data"][0] for result in results]
    assert all(start % RESULT_ALIGNMENT == 0 for start in starts)
    for result in results[::7]:
        result[...] = 5  # they are the caller's own
    check_sums(results[1:6], jobs[1:6])


def test_the_memory_of_dropped_results_serves_the_next_batch(fresh_gpu: OpenGpu) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * JOBS)
    results = gpu.run_batch(ADD_U32, jobs)
    owners = {id(find_owner(result)) for result in results}
    blocks = gpu.stats().memory.misses
    for _ in range(3):
        del results
        results = gpu.run_batch(ADD_U32, jobs)
        assert {id(find_owner(result)) for result in results} == owners
    assert gpu.stats().memory.misses == blocks
    check_sums(results, jobs)


def test_a_result_that_is_held_keeps_its_elements(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(idle_memory=1)
    first, second = word_jobs(*[COUNT] * JOBS), word_jobs(*[COUNT + 3] * JOBS)
    held = gpu.run_batch(ADD_U32, first)[43]
    part = held[100:200]
    for _ in range(3):
        check_sums(gpu.run_batch(ADD_U32, second), second)
        gpu.trim()
    check_sums([held], [first[43]])
    gpu.close()
    check_sums([part], [(first[43][0][100:200], first[43][1][100:200])])


def test_jobs_of_any_size_are_mixed(fresh_gpu: OpenGpu) -> None:
    """Results that share blocks, others that are recycled alone, small ones, and none."""
    gpu = fresh_gpu()
    jobs = word_jobs(*[5, COUNT, 0, 70_000, MIN_SHARED_BYTES // 4, 4095, 65_535, 65_536, 1] * 5)
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    out = [np.empty_like(job[0]) for job in jobs]
    assert all(a is b for a, b in zip(gpu.run_batch(ADD_U32, jobs, out=out), out, strict=True))
    check_sums(out, jobs)


@pytest.mark.parametrize("count", [1, 5])
def test_few_results_get_memory_of_their_own(fresh_gpu: OpenGpu, count: int) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * count)
    results = gpu.run_batch(ADD_U32, jobs)
    check_sums(results, jobs)
    assert all(result.base is None for result in results)


def test_without_memory_for_blocks_results_come_from_the_heap(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_arrays.RecycledResults, "make_one", lambda *_: None)
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * JOBS)
    results = gpu.run_batch(ADD_U32, jobs)
    check_sums(results, jobs)
    assert all(result.base is None for result in results)


def test_blocks_are_idle_memory(fresh_gpu: OpenGpu) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * JOBS)
    results = gpu.run_batch(ADD_U32, jobs)
    assert gpu.stats().memory_use.idle["results"] == 0
    del results
    use = gpu.stats().memory_use
    assert use.idle["results"] >= 2 * BLOCK_BYTES
    assert use.bytes_idle <= use.idle_limit
    gpu.trim()
    assert gpu.stats().memory_use.idle["results"] == 0
