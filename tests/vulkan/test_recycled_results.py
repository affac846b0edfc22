"""Recycled results: memory is used again when nobody holds the result, and never before."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.result_memory import MAX_PROBES, MIN_RECYCLED_BYTES
from gpu_executor.vulkan import binding, device_memory, mapped_arrays
from gpu_executor.vulkan.mapped_arrays import RecycledResults
from tests.conftest import OpenGpu, on_both_paths
from tests.support.custom_kernels import sum_and_difference
from tests.support.interrupts import LONG, interrupt_waits
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, Array, check_sums, word_jobs
from tests.support.results import (
    COUNT,
    HOLDS,
    RECYCLED_BYTES,
    ZEROS,
    address,
    filled,
    lies_in_mapped_memory,
    numbers_in,
)
from tests.support.ring_backends import watch_submissions
from tests.support.threads import in_threads

Gpu = gx.PersistentVulkanBackend


@pytest.fixture(autouse=True)
def recycle_smaller_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mapped_arrays, device_memory):
        monkeypatch.setattr(module, "MIN_RECYCLED_BYTES", RECYCLED_BYTES)


def make_result(gpu: Gpu, number: int, **more: Any) -> Any:
    """An array full of `number`, computed by the device."""
    return gpu.run(ADD_U32, filled(number), ZEROS, **more)


def count_allocations(gpu: Gpu) -> int:
    """How many allocations were requested from the pool."""
    stats = gpu.stats().memory
    return stats.hits + stats.misses


@on_both_paths
def test_large_results_lie_in_mapped_memory(fresh_gpu: OpenGpu, device_local: bool) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(COUNT, COUNT + 1, RECYCLED_BYTES // 4)
    runs = [
        [gpu.run(ADD_U32, *job, device_local=device_local) for job in jobs],
        gpu.run_batch(ADD_U32, jobs, device_local=device_local, pipelined=False),
        gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=3),
        list(gpu.stream(ADD_U32, jobs, device_local=device_local)),
    ]
    for results in runs:
        check_sums(results, jobs)
        assert all(lies_in_mapped_memory(gpu, result) for result in results)
        assert all(result.flags.writeable for result in results)
    ranges = sorted((address(r), address(r) + r.nbytes) for results in runs for r in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def test_recycled_results_have_the_right_shape_and_dtype(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for shape in [(COUNT,), (2, COUNT // 2), (COUNT // 6, 2, 3), (1, COUNT, 1)]:
        x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
        for _ in range(2):
            result = gpu.run(ADD_U32, x, x)
            assert lies_in_mapped_memory(gpu, result)
            assert (result.shape, result.dtype) == (shape, np.uint32)
            np.testing.assert_array_equal(result, 2 * x)
            del result


@on_both_paths
@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_a_result_held_in_any_way_is_never_overwritten(
    gpu: Gpu, hold: Callable[[Any], Any], device_local: bool
) -> None:
    held = hold(make_result(gpu, 0x07070707, device_local=device_local))
    for number in range(20, 20 + 2 * MAX_PROBES):
        make_result(gpu, number, device_local=device_local)
    gpu.run_batch(ADD_U32, [(filled(50), ZEROS)] * 3, device_local=device_local)
    assert numbers_in(held) == {7}
    gpu.trim()
    make_result(gpu, 60)
    assert numbers_in(held) == {7}


def test_a_dropped_result_is_reused_without_an_allocation(
    fresh_gpu: OpenGpu,
) -> None:
    gpu = fresh_gpu()
    result = make_result(gpu, 1)
    place = address(result)
    del result
    asked = count_allocations(gpu)
    for number in range(2, 12):
        result = make_result(gpu, number)
        assert (address(result), set(result.tolist())) == (place, {number})
        del result
    assert count_allocations(gpu) == asked
    held = make_result(gpu, 30)
    assert address(held) == place
    assert address(make_result(gpu, 31)) != place
    assert set(held.tolist()) == {30}
    assert count_allocations(gpu) == asked + 1


@pytest.mark.parametrize("depth", [1, 3])
def test_batches_and_streams_reuse_dropped_results(fresh_gpu: OpenGpu, depth: int) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[COUNT] * 4)
    results = gpu.run_batch(ADD_U32, jobs, depth=depth)
    addresses = {address(result) for result in results}
    assert len(addresses) == 4
    del results
    asked = count_allocations(gpu)
    for _ in range(3):
        results = gpu.run_batch(ADD_U32, jobs, depth=depth)
        check_sums(results, jobs)
        assert {address(result) for result in results} == addresses
        del results
    assert count_allocations(gpu) == asked
    for job, one in zip(jobs * 3, gpu.stream(ADD_U32, jobs * 3, depth=3), strict=True):
        check_sums([one], [job])
    assert gpu.stats().memory.bytes_in_arrays <= 8 * 2 * 4 * COUNT


def test_a_result_used_as_input_is_not_the_output(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(), np.arange(COUNT, dtype=np.uint32)
    result = x
    for _ in range(10):
        result = gpu.run(ADD_U32, result, result)
    np.testing.assert_array_equal(result, x << 10)
    assert gpu.stats().memory.bytes_in_arrays <= 2 * 2 * x.nbytes


def test_many_held_results_need_no_extra_memory(fresh_gpu: OpenGpu) -> None:
    gpu, held = fresh_gpu(), list[Array]()
    for number in range(60):
        held.append(make_result(gpu, number))
        held = held[-8:]
    assert [set(each.tolist()) for each in held] == [{number} for number in range(52, 60)]
    assert gpu.stats().memory.bytes_in_arrays <= 2 * 10 * held[0].nbytes


def test_results_of_several_threads_never_share_memory(fresh_gpu: OpenGpu) -> None:
    gpu, lock = fresh_gpu(), threading.Lock()
    live: dict[int, tuple[int, int]] = {}
    """Addresses of held results, by the number that fills them."""

    def work(thread: int) -> None:
        held: dict[int, Any] = {}
        for number in range(100 * thread, 100 * thread + 12):
            held[number] = make_result(gpu, number)
            start = address(held[number])
            end = start + held[number].nbytes
            with lock:
                overlapping = [of for of, (at, to) in live.items() if at < end and start < to]
                live[number] = start, end
            assert overlapping == []
            assert all((held[each] == each).all() for each in held)
            if len(held) > 2:
                oldest = min(held)
                with lock:
                    del live[oldest]
                del held[oldest]
        with lock:
            for each in held:
                del live[each]

    in_threads(work)
    assert live == {}


def test_trim_releases_recycled_memory(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    held, dropped = make_result(gpu, 1), make_result(gpu, 2)
    one = gpu.stats().memory.bytes_in_arrays // 2
    del dropped
    assert gpu.stats().memory.bytes_in_arrays == 2 * one  # for the next result
    gpu.trim()
    assert gpu.stats().memory.bytes_in_arrays == one
    assert set(held.tolist()) == {1}
    del held
    gpu.trim()
    assert gpu.stats().memory.bytes_held == 0


def test_recycled_memory_is_released_when_memory_is_short(fresh_gpu: OpenGpu) -> None:
    limit = 30 * ZEROS.nbytes
    gpu = fresh_gpu(memory_limit=limit)
    results = [make_result(gpu, number) for number in range(8)]
    assert all(lies_in_mapped_memory(gpu, result) for result in results)
    del results
    held_bytes = gpu.stats().memory.bytes_in_arrays
    assert held_bytes >= 8 * ZEROS.nbytes
    large = gpu.empty(limit * 2 // 3, np.uint8)  # some of it must be released for this
    stats = gpu.stats().memory
    assert stats.bytes_in_arrays < held_bytes + large.nbytes
    assert stats.bytes_held <= limit
    large[...] = 3
    assert set(make_result(gpu, 5).tolist()) == {5}
    assert (large == 3).all()


def test_results_are_plain_arrays_when_memory_is_short(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(memory_limit=12 * ZEROS.nbytes)
    held = [make_result(gpu, number) for number in range(20)]
    assert {lies_in_mapped_memory(gpu, result) for result in held} == {True, False}
    assert [set(each.tolist()) for each in held] == [{number} for number in range(20)]


def test_held_results_stay_valid_after_close() -> None:
    before = binding.count_live_objects()
    gpu = gx.PersistentVulkanBackend()
    held, dropped = make_result(gpu, 9), make_result(gpu, 8)
    part = held[5:7]
    del held, dropped
    gpu.close()
    assert part.tolist() == [9, 9]
    part[0] = 4
    assert part.tolist() == [4, 9]
    assert binding.count_live_objects()["Memory"] == before.get("Memory", 0) + 1
    del part
    assert binding.count_live_objects() == before


def test_close_frees_results_that_nobody_holds() -> None:
    before = binding.count_live_objects()
    with gx.PersistentVulkanBackend() as gpu:
        for number in range(3):
            make_result(gpu, number)
        assert gpu.stats().memory.bytes_in_arrays > 0
    assert binding.count_live_objects() == before
    assert gpu.stats().memory.bytes_in_arrays == 0


def test_small_results_and_the_first_very_large_one_are_plain_arrays(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_arrays, "MIN_RECYCLED_BYTES", MIN_RECYCLED_BYTES)
    monkeypatch.setattr(mapped_arrays, "LARGE_RESULT", MIN_RECYCLED_BYTES + 400)
    words = MIN_RECYCLED_BYTES // 4
    jobs = word_jobs(9, words - 1, words, words + 100, words + 101)
    runs: list[Callable[[Gpu], list[Array]]] = [
        lambda gpu: [gpu.run(ADD_U32, *job) for job in jobs],
        lambda gpu: gpu.run_batch(ADD_U32, jobs),
        lambda gpu: list(gpu.stream(ADD_U32, jobs)),
    ]
    for run in runs:
        gpu = fresh_gpu()
        for again in (False, True, True):
            results = run(gpu)
            check_sums(results, jobs)
            mapped = [lies_in_mapped_memory(gpu, result) for result in results]
            assert mapped == [False, False, True, True, again]


def test_results_above_the_byte_limit_are_plain_arrays(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4 * ZEROS.nbytes
    monkeypatch.setattr(mapped_arrays, "MAX_ARRAY_BYTES", most)
    monkeypatch.setattr(mapped_arrays, "HOST_MEMORY_DIVISOR", 1 << 60)
    gpu = fresh_gpu()
    held = [make_result(gpu, number) for number in range(8)]
    mapped = [lies_in_mapped_memory(gpu, result) for result in held]
    assert mapped == sorted(mapped, reverse=True)
    assert 2 <= sum(mapped) <= 4
    assert [set(each.tolist()) for each in held] == [{number} for number in range(8)]
    del held
    assert lies_in_mapped_memory(gpu, make_result(gpu, 9))
    # Results of other sizes are released for the sizes that are needed now.
    for more in range(1, 9):
        x = np.full(COUNT + 100 * more, more, np.uint32)
        assert lies_in_mapped_memory(gpu, gpu.run(ADD_U32, x, x))
    assert gpu.stats().memory.bytes_in_arrays <= 1.25 * most


@on_both_paths
def test_several_results_are_recycled_independently(fresh_gpu: OpenGpu, device_local: bool) -> None:
    gpu, kernel = fresh_gpu(), sum_and_difference()

    def run(a: int, b: int) -> Any:
        return gpu.run(kernel, filled(a), filled(b), device_local=device_local)

    total, difference = run(5, 3)
    assert lies_in_mapped_memory(gpu, total) and lies_in_mapped_memory(gpu, difference)
    assert not np.shares_memory(total, difference)
    free = address(difference)
    del difference
    for number in range(10, 14):
        other, another = run(2 * number, number)
        assert free in (address(other), address(another))
        assert set(other.tolist()) == {3 * number}
        assert set(another.tolist()) == {number}
        del other, another
    assert set(total.tolist()) == {8}


def test_out_arrays_of_the_caller_are_used_unchanged(fresh_gpu: OpenGpu) -> None:
    gpu, out = fresh_gpu(), np.empty_like(ZEROS)
    assert make_result(gpu, 3, out=out) is out
    assert set(out.tolist()) == {3}
    assert gpu.stats().memory.bytes_in_arrays == 0


def test_the_memory_of_a_failed_call_serves_the_next(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    good = np.ones((RECYCLED_BYTES // 48 + 70, 6), np.uint64)
    bad = good.copy()
    bad[-1] = TOO_LARGE
    place = address(gpu.run(FQ_ADD, good, good))
    for _ in range(3):
        with pytest.raises(gx.ElementRangeError):
            gpu.run(FQ_ADD, good, bad)
        gc.collect()
        with pytest.raises(gx.ElementRangeError):
            gpu.run_batch(FQ_ADD, [(good, good), (good, bad)])
        gc.collect()
    result = gpu.run(FQ_ADD, good, good)
    assert (result == 2).all()
    assert gpu.stats().memory.bytes_in_arrays <= 4 * 2 * result.nbytes
    assert place in {address(gpu.run(FQ_ADD, good, good)), address(result)}


def test_memory_that_the_device_still_writes_to_is_not_reused(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was interrupted twice leaves its work in flight."""
    gpu = fresh_gpu()
    device, make = gpu._session.resources.device.handle, RecycledResults.make
    made: list[int] = []
    running: list[bool] = []
    submitted = watch_submissions(monkeypatch)

    def watched_make(results: RecycledResults, signature: Any) -> Any:
        arrays = make(results, signature)
        made.append(address(arrays[0][0]))
        running.append(any(each.is_running(device) for each in submitted))
        return arrays

    monkeypatch.setattr(RecycledResults, "make", watched_make)
    a = np.ones((MIN_RECYCLED_BYTES // 48 + 70, 6), np.uint64)
    with monkeypatch.context() as patch:
        interrupt_waits(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            gpu.run(LONG, a, a)
    assert (gpu.run(FQ_ADD, a, a) == 2).all()
    assert not (running[1] and made[1] == made[0])
