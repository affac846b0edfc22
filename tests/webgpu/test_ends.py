"""The WebGPU executor under stress: threads, injected errors, eviction, leaks, and close."""

from __future__ import annotations

import gc
import random
import re
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.call import Call
from gpu_executor.plan import ElementRange
from gpu_executor.webgpu import device_queue, native_queue, scheduler
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.buffer_set_caches import MAX_EXACT_SETS, BucketCache, ExactSizeCache
from tests.conftest import OpenWebGpu, RunPython
from tests.support.jobs import (
    ADD_U32,
    FQ_ADD,
    TOO_LARGE,
    Job,
    check_sums,
    field_jobs,
    make_cases,
    word_jobs,
)
from tests.support.threads import THREADS, in_threads
from tests.support.webgpu import InjectedError, count_made, fail_once, finish_compiling, is_idle

MIXED = (5, 20_000, 300, 40_000, 7, 16_385)


def check_it_still_works(gpu: gx.WgpuExecutor, jobs: list[Job]) -> None:
    assert is_idle(gpu)
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
    assert is_idle(gpu)


def test_mixed_calls_from_many_threads_give_correct_results(open_webgpu: OpenWebGpu) -> None:
    gpu, cases = open_webgpu(), make_cases(20_000)

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(15):
            kernel, a, b, expected = draw.choice(cases)
            if draw.random() < 0.5:
                np.testing.assert_array_equal(gpu.run(kernel, a, b), expected)
                continue
            jobs = [(a, b)] * draw.randrange(1, 4)
            for result in gpu.run_batch(kernel, jobs):
                np.testing.assert_array_equal(result, expected)

    in_threads(work)
    assert is_idle(gpu)
    finish_compiling(gpu)


@pytest.mark.parametrize("private", [True, False])
def test_one_size_from_many_threads_gives_correct_results(
    open_webgpu: OpenWebGpu, private: bool
) -> None:
    gpu = open_webgpu(private=private)

    def work(number: int) -> None:
        x = np.full(5000, number, np.uint32)
        for _ in range(40):
            assert (gpu.run(ADD_U32, x, x) == 2 * number).all()

    in_threads(work)
    stats = gpu.stats()
    assert is_idle(gpu)
    assert stats.pipelines == 1
    assert stats.exact_entries <= MAX_EXACT_SETS
    assert stats.buffer_sets <= 2 * 8, "one or two sets for each thread"


def test_a_bad_element_is_reported_only_to_its_own_thread(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    good = field_jobs(130)[0]

    def work(number: int) -> None:
        bad = good[1].copy()
        bad[number] = TOO_LARGE
        for _ in range(15):
            check_sums([gpu.run(FQ_ADD, *good)], [good])
            with pytest.raises(gx.ElementRangeError) as caught:
                gpu.run(FQ_ADD, good[0], bad)
            assert (caught.value.argument, caught.value.index) == (1, number)

    in_threads(work)
    assert is_idle(gpu)


def test_a_bad_element_in_one_job_leaves_the_executor_working(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs = field_jobs(5, 20_000, 300, 40_000)
    for job in (0, 0, 1, 2, 3, 3):
        wrong = [list(each) for each in jobs]
        wrong[job][0] = wrong[job][0].copy()
        wrong[job][0][3] = TOO_LARGE
        with pytest.raises(gx.ElementRangeError) as caught:
            gpu.run_batch(FQ_ADD, wrong)
        assert (caught.value.job, caught.value.argument, caught.value.index) == (job, 0, 3)
        assert is_idle(gpu)
        check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
        check_sums([gpu.run(FQ_ADD, *each) for each in jobs], jobs)


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param(
            (9, 9, 9),
            id="one group",
        ),
        pytest.param(
            (9, 9, 20_000, 20_001, 40_000, 40_001),
            id="several groups",
        ),
    ],
)
def test_bad_elements_do_not_affect_the_next_batch(
    open_webgpu: OpenWebGpu, counts: tuple[int, ...]
) -> None:
    gpu = open_webgpu()
    jobs = field_jobs(*counts)
    wrong = [(a, b.copy()) for a, b in jobs]
    for _, b in wrong:
        b[3] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        gpu.run_batch(FQ_ADD, wrong)
    assert (caught.value.argument, caught.value.index) == (1, 3)
    assert is_idle(gpu)
    check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)


@pytest.mark.parametrize("name", ["prepare", "write", "make_dispatch", "read"])
@pytest.mark.parametrize("at", [1, 2, 4, 6])
def test_an_error_at_any_step_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    with monkeypatch.context() as patch:
        calls = fail_once(patch, BufferSet, name, at=at)
        with pytest.raises(InjectedError, match=name):
            gpu.run_batch(ADD_U32, jobs)
        assert calls[0] >= at
    check_it_still_works(gpu, jobs)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failed_submission_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, at: int, private: bool
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(*MIXED)
    with monkeypatch.context() as patch:
        fail_once(patch, gpu._queue, "submit", at=at)
        with pytest.raises(InjectedError):
            gpu.run_batch(ADD_U32, jobs)
    check_it_still_works(gpu, jobs)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_failed_mapping_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, at: int, private: bool
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(*MIXED)
    gpu.run_batch(ADD_U32, jobs)
    reader = gpu._scheduler.buckets.get_or_create(16_384, ADD_U32).idle[0].reader
    with monkeypatch.context() as patch:
        fail_once(patch, type(reader), "begin_map", at=at)
        with pytest.raises(InjectedError):
            gpu.run_batch(ADD_U32, jobs)
    check_it_still_works(gpu, jobs)


def test_a_failed_allocation_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    with monkeypatch.context() as patch:
        fail_once(patch, BufferPool, "acquire", error=gx.OutOfMemoryError("no more"))
        with pytest.raises(gx.OutOfMemoryError):
            gpu.run_batch(ADD_U32, jobs)
    check_it_still_works(gpu, jobs)


@pytest.mark.parametrize("at", [2, 3, 5, 6])
def test_a_batch_continues_with_fewer_buffers_after_a_failed_allocation(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    with monkeypatch.context() as patch:
        asked = fail_once(patch, BufferPool, "acquire", at=at, error=gx.OutOfMemoryError("no more"))
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert asked[0] >= at
    check_it_still_works(gpu, jobs)


def test_an_error_with_several_groups_in_flight_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MAX_IN_FLIGHT_BYTES", 1)
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    for at in range(1, len(jobs) + 1):
        with monkeypatch.context() as patch:
            fail_once(patch, BufferSet, "read", at=at)
            with pytest.raises(InjectedError):
                gpu.run_batch(ADD_U32, jobs)
        assert is_idle(gpu)
    check_it_still_works(gpu, jobs)


def test_an_interrupt_while_reading_leaves_no_set_busy(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    with monkeypatch.context() as patch:
        fail_once(patch, BufferSet, "read", at=2, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            gpu.run_batch(ADD_U32, jobs)
    check_it_still_works(gpu, jobs)


# In its own process: WebGPU aborts the process when a mapped buffer is used in a submission.
@pytest.mark.parametrize(("private", "at"), [(True, 1), (False, 2), (True, 4), (False, 4)])
def test_an_interrupt_while_waiting_leaves_the_executor_working(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, private: bool, at: int
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(5, 20_000, 300, 20_001)
    kind = native_queue._BufferMapping if private else device_queue._PromiseReader
    fail_once(monkeypatch, kind, "wait", at=at, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        gpu.run_batch(ADD_U32, jobs)
    check_it_still_works(gpu, jobs)


def limit_buckets(gpu: gx.WgpuExecutor, most: int) -> BucketCache:
    gpu._scheduler.buckets._max_buckets = most
    return gpu._scheduler.buckets


def test_an_interrupt_while_a_set_is_taken_leaves_the_cache_usable(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, (job,) = open_webgpu(), word_jobs(1000)
    for _ in range(3):
        gpu.run(ADD_U32, *job)
    with monkeypatch.context() as patch:
        fail_once(patch, ExactSizeCache, "_remove", error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            gpu.run(ADD_U32, *job)
    for _ in range(2):
        check_sums([gpu.run(ADD_U32, *job)], [job])
    assert gpu.stats().exact_entries == 1


def test_results_are_correct_when_buckets_are_evicted_during_a_batch(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    buckets = limit_buckets(gpu, 1)
    jobs = word_jobs(*MIXED, 70_000, 140_000)
    for _ in range(4):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        assert len(gpu.stats().buckets) <= 1
    assert buckets.evictions > 4
    assert is_idle(gpu)


def test_results_are_correct_when_many_threads_evict_buckets(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    buckets = limit_buckets(gpu, 2)
    jobs = word_jobs(5, 20_000, 40_000, 70_000)

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(12):
            some = draw.sample(jobs, 3)
            check_sums(gpu.run_batch(ADD_U32, some), some)

    in_threads(work)
    assert buckets.evictions
    assert len(gpu.stats().buckets) <= 2
    assert is_idle(gpu)


def test_buffers_of_evicted_buckets_count_as_idle(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu(settings=gx.Settings(idle_memory=300_000))
    limit_buckets(gpu, 1)
    jobs = word_jobs(*MIXED)
    for _ in range(5):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        use = gpu.stats().memory_use
        assert use.bytes_idle <= use.idle_limit == max(300_000, 2 * use.largest_call)
        assert use.in_use == {"buffer sets": 0, "device arrays": 0}


def count_buffers(gpu: gx.WgpuExecutor, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts the live buffers the executor makes from now on."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    device = gpu._device.device
    create = device.create_buffer

    def counted(**options: Any) -> Any:
        buffer = create(**options)
        alive.add(buffer)
        return buffer

    monkeypatch.setattr(device, "create_buffer", counted)

    def count() -> int:
        gc.collect()
        return len(alive)

    return count


def test_hundreds_of_small_calls_do_not_leak_buffers(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_webgpu()
    alive = count_buffers(gpu, monkeypatch)
    jobs = word_jobs(*range(1, 41))

    def many(calls: int) -> None:
        for number in range(calls):
            a, b = jobs[number % len(jobs)]
            assert (gpu.run(ADD_U32, a, b) == a + b).all()

    many(100)
    before, buffers = gpu.stats(), alive()
    many(300)
    after = gpu.stats()
    assert alive() <= buffers
    assert after.pool.misses == before.pool.misses
    assert after.pool.bytes_idle <= before.pool.bytes_idle + (1 << 20)
    assert (after.pipelines, after.exact_entries) == (before.pipelines, before.exact_entries)


def test_batches_of_ever_changing_sizes_do_not_leak_buffers(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_webgpu()
    alive = count_buffers(gpu, monkeypatch)
    draw = random.Random(1)
    jobs = word_jobs(*(draw.randrange(1, 16_000) for _ in range(200)))
    check_sums(gpu.run_batch(ADD_U32, jobs[:4]), jobs[:4])
    before, buffers = count_made(gpu.stats()), alive()
    for start in range(0, len(jobs), 4):
        check_sums(gpu.run_batch(ADD_U32, jobs[start : start + 4]), jobs[start : start + 4])
    assert count_made(gpu.stats()) == before
    assert alive() == buffers


def test_close_destroys_all_buffers(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_webgpu()
    alive = count_buffers(gpu, monkeypatch)
    jobs = word_jobs(*MIXED)
    gpu.run_batch(ADD_U32, jobs)
    gpu.run(ADD_U32, *jobs[0])
    assert alive() > 0
    gpu.close()
    assert alive() == 0
    assert gpu.stats().pool.bytes_idle == 0


def test_a_second_close_returns_when_the_first_is_done(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, begun, go_on = open_webgpu(), threading.Event(), threading.Event()
    gpu.run(ADD_U32, *word_jobs(1000)[0])
    clear, lost = gpu._scheduler.clear, gpu._device.is_lost

    def clear_slowly() -> None:
        begun.set()
        assert go_on.wait(60)
        assert not lost(), "the other thread closed the device"
        clear()

    monkeypatch.setattr(gpu._scheduler, "clear", clear_slowly)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gpu.close)
        assert begun.wait(60)
        second = threads.submit(gpu.close)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        go_on.set()
        first.result()
        second.result()


def test_an_executor_that_was_not_closed_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = gx.WgpuExecutor(settings=gx.Settings())
    alive = count_buffers(gpu, monkeypatch)
    (job,) = word_jobs(100)
    check_sums([gpu.run(ADD_U32, *job)], [job])
    monkeypatch.undo()
    gone, finalizer = weakref.ref(gpu), gpu._finalizer
    del gpu
    gc.collect()
    assert gone() is None
    assert not finalizer.alive
    assert alive() == 0


def test_counters_of_many_threads_add_up(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    (job,) = word_jobs(10)

    def work(_: int) -> None:
        for _ in range(50):
            gpu.run(ADD_U32, *job)

    in_threads(work)
    stats = gpu.stats()
    assert stats.calls == stats.chunks == stats.submissions == THREADS * 50
    assert stats.elements == THREADS * 50 * 10


def test_each_chunk_reads_its_own_range_of_the_results(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-storage-buffer-binding-size"] = 4 * 16_384
    seen: list[tuple[int, int]] = []
    read = BufferSet.read

    def noted(
        self: BufferSet, view: memoryview, call: Call, chunk: ElementRange, **more: Any
    ) -> None:
        seen.append((chunk.start, chunk.count))
        read(self, view, call, chunk, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BufferSet, "read", noted)
        (job,) = word_jobs(40_000)
        check_sums([gpu.run(ADD_U32, *job)], [job])
    assert sorted(seen) == [(0, 16_384), (16_384, 16_384), (32_768, 7232)]


def test_jobs_of_one_bucket_stay_within_the_in_flight_limit(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MAX_IN_FLIGHT_BYTES", 4 << 20)
    gpu, jobs = open_webgpu(), word_jobs(*[1000] * 200)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    (bucket,) = gpu.bucket_cache_stats()
    assert bucket.bytes_held <= 8 << 20


def test_a_set_that_cannot_be_made_releases_its_buffers(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, (job,) = open_webgpu(), word_jobs(10)
    with monkeypatch.context() as patch:
        fail_once(patch, gpu._queue, "make_reader")
        with pytest.raises(InjectedError):
            gpu.run(ADD_U32, *job)
    assert is_idle(gpu)
    pool = gpu.stats().pool
    assert pool.misses >= 2 and pool.bytes_idle >= 3 * 4 * 16_384
    check_sums([gpu.run(ADD_U32, *job)], [job])


def test_a_bind_group_that_cannot_be_created_leaves_the_set_usable(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, (job, other) = open_webgpu(), word_jobs(10, 11)
    with monkeypatch.context() as patch:
        fail_once(patch, gpu._device.device, "create_bind_group")
        with pytest.raises(InjectedError):
            gpu.run(ADD_U32, *job)
    assert is_idle(gpu)
    check_sums([gpu.run(ADD_U32, *other)], [other])
    assert gpu.stats().buffer_sets == 1


# In its own process: WebGPU aborts the process when a submission is invalid. The device is opened
# with a low limit, which wgpu enforces as it does the adapter's: 65,535 work-groups take seconds.
TALL_PRODUCT = """
import numpy as np, gpu_executor as gx
from gpu_executor.webgpu import device
list_adapters = device._list_adapters
def list_limited_adapters(wgpu):
    adapters = list_adapters(wgpu)
    for adapter in adapters:
        adapter.limits["max-compute-workgroups-per-dimension"] = 64
    return adapters
device._list_adapters = list_limited_adapters
kernel = gx.kernels.load("matmul_u32")
one, tall = np.ones((1, 1), np.uint32), np.ones((256 * 64 + 1, 1), np.uint32)
with gx.WgpuExecutor(settings=gx.Settings()) as gpu:
    assert gpu.device.limits.max_work_group_count[0] == 64
    for a, b in ((tall, one), (one, tall.T)):
        assert (gpu.run(kernel, a[:256], b[:, :256]) == 1).all()
        try:
            gpu.run(kernel, a, b)
        except gx.GpuError as error:
            print(error)
print("alive")
"""


def test_a_grid_over_the_device_limit_does_not_crash_the_process(run_python: RunPython) -> None:
    ran = run_python(TALL_PRODUCT)
    assert ran.returncode == 0, ran.stderr
    *refused, last = ran.stdout.splitlines()
    assert last == "alive"
    message = r"matmul_u32: grid has 65 work-groups in x; .* takes at most 64"
    assert len(refused) == 2 and all(re.fullmatch(message, each) for each in refused)


CLOSED_WHILE_THREADS_RUN = """
import threading, time
import numpy as np, gpu_executor as gx
gpu, kernel = gx.WgpuExecutor(settings=gx.Settings()), gx.kernels.load("vector_add_u32")
x = np.arange(1000, dtype=np.uint32)
ends = []
def work():
    try:
        while True:
            assert (gpu.run(kernel, x, x) == 2 * x).all()
    except BaseException as error:
        ends.append(type(error).__name__)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
while gpu.stats().calls < 100:
    time.sleep(0.001)
gpu.close()
for thread in threads:
    thread.join()
print(*ends)
"""
ENDS_WITHOUT_CLOSE = """
gpu = gx.WgpuExecutor(settings=gx.Settings())
assert (gpu.run(kernel, x, x) == 2 * x).all()
print("right")
"""


def test_close_waits_for_active_calls_and_the_interpreter_may_exit_without_it(
    run_python: RunPython,
) -> None:
    """A closed executor refuses later calls. Another one is open when the interpreter exits."""
    ran = run_python(CLOSED_WHILE_THREADS_RUN + ENDS_WITHOUT_CLOSE)
    assert (ran.returncode, ran.stdout.split()) == (0, [*["ClosedError"] * 4, "right"]), ran.stderr
