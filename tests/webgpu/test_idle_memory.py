"""Idle memory of the WebGPU executor: never more than its budget, and never what a repeated call
needs."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.idle_memory import MemoryUse
from gpu_executor.arrays.result_memory import MIN_RECYCLED_BYTES
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.threads import in_threads
from tests.support.webgpu import count_made, finish_compiling

MIB = 1 << 20
SMALL_BUDGET = MIB
LARGE = 300_000
RECYCLED = MIN_RECYCLED_BYTES // 4


def open_small(open_webgpu: OpenWebGpu) -> gx.WgpuExecutor:
    return open_webgpu(settings=gx.Settings(idle_memory=SMALL_BUDGET))


def check_idle(gpu: gx.WgpuExecutor, minimum: int) -> MemoryUse:
    """Check the budget while no call runs; return what holds the memory."""
    stats = gpu.stats()
    use, pool = stats.memory_use, stats.pool
    assert use.idle_limit == max(minimum, 2 * use.largest_call)
    assert use.bytes_idle <= use.idle_limit
    assert not any(use.in_use.values())
    assert use.bytes_idle == pool.bytes_idle + pool.bytes_in_use + use.idle["results"]
    return use


def test_everything_stays_within_the_budget_over_many_calls_of_random_sizes(
    open_webgpu: OpenWebGpu,
) -> None:
    minimum, most, draw = 8 * MIB, 100_000, np.random.default_rng(1)
    gpu = open_webgpu(settings=gx.Settings(idle_memory=minimum))
    x = draw.integers(0, 1 << 32, most, np.uint32)
    twice = 2 * x
    for count in draw.integers(1, most, 250).tolist():
        result = gpu.run(ADD_U32, x[:count], x[:count])
        assert np.array_equal(result, twice[:count])
        del result
        use = check_idle(gpu, minimum)
    assert use.idle_limit == minimum
    assert min(use.idle["buckets"], use.idle["results"]) > 0
    assert gpu.stats().buffer_sets < 60


@pytest.mark.parametrize("jobs", [1, 6])
def test_a_repeated_large_call_keeps_its_buffer_sets(open_webgpu: OpenWebGpu, jobs: int) -> None:
    gpu, work = open_small(open_webgpu), word_jobs(*[LARGE] * jobs)
    results: list[Any] = []
    for _ in range(3):  # the results of one round are held during the next
        results = [gpu.run(ADD_U32, *work[0])] if jobs == 1 else gpu.run_batch(ADD_U32, work)
    finish_compiling(gpu)
    before, remembered = count_made(gpu.stats()), gpu._outputs.bytes_recycled
    for _ in range(3):
        results = [gpu.run(ADD_U32, *work[0])] if jobs == 1 else gpu.run_batch(ADD_U32, work)
        assert gpu._outputs.bytes_recycled == remembered
    assert count_made(gpu.stats()) == before
    check_sums(results, work)
    del results
    assert check_idle(gpu, SMALL_BUDGET).bytes_idle > SMALL_BUDGET


def test_a_warmed_up_buffer_set_is_kept(open_webgpu: OpenWebGpu) -> None:
    gpu, (job,) = open_small(open_webgpu), word_jobs(LARGE)
    gpu.prepare(ADD_U32, [LARGE])
    made = gpu.stats().buffer_sets
    check_sums([gpu.run(ADD_U32, *job)], [job])
    assert gpu.stats().buffer_sets == made
    check_idle(gpu, SMALL_BUDGET)


def test_threads_leave_no_more_than_the_budget(open_webgpu: OpenWebGpu) -> None:
    gpu = open_small(open_webgpu)

    def work(thread: int) -> None:
        draw = random.Random(thread)
        jobs = word_jobs(*(draw.randrange(1, 3 * RECYCLED) for _ in range(6)))
        held: list[tuple[Any, Any]] = []
        for _ in range(8):
            some = draw.sample(jobs, draw.choice([1, 3]))
            held += zip(gpu.run_batch(ADD_U32, some), some, strict=True)
            held = held[-4:]
            check_sums([result for result, _ in held], [job for _, job in held])

    in_threads(work)
    check_idle(gpu, SMALL_BUDGET)


def test_trim_releases_all_idle_memory(open_webgpu: OpenWebGpu) -> None:
    gpu, jobs = open_webgpu(), word_jobs(LARGE, 10, LARGE)
    for _ in range(2):
        gpu.run_batch(ADD_U32, jobs)
        gpu.run(ADD_U32, *jobs[0])
    use = check_idle(gpu, gx.Settings().idle_memory)
    assert min(use.idle["buckets"], use.idle["exact sizes"], use.idle["results"]) > 0
    gpu.trim()
    assert check_idle(gpu, gx.Settings().idle_memory).bytes_idle == 0
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)


def test_the_buffer_of_an_array_in_a_reference_cycle_is_used_again(open_webgpu: OpenWebGpu) -> None:
    gpu, words = open_webgpu(), np.arange(1000, dtype=np.uint32)
    cycle: list[Any] = [gpu.to_device(words)]
    buffer = cycle[0].storage.buffer
    number = id(buffer)
    del buffer
    cycle.append(cycle)
    del cycle
    gc.collect()
    found: Any = gpu.to_device(words)
    assert id(found.storage.buffer) == number
    assert gpu.run(ADD_U32, found, found).tolist() == (2 * words).tolist()
