"""Back-pressure: jobs over the byte limit are admitted in order, however room becomes free."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.executor import jobs
from tests.support.executors import ADD, HeldKernel, held, make_addition, make_kernel, total, words
from tests.support.jobs import check_sums
from tests.support.threads import PATIENCE, in_background

__all__ = ["held"]  # the fixture

JOB = 80
"""Bytes of two arrays of ten words."""


@pytest.fixture
def two_held() -> Iterator[tuple[gx.GpuExecutor, list[HeldKernel]]]:
    """An executor with two busy devices, and room for two jobs in its queue."""
    with gx.GpuExecutor("cpu", devices=[0, 0], queued_bytes=2 * JOB) as executor:
        kernels = [HeldKernel(), HeldKernel()]
        for kernel in kernels:
            kernel.hold(executor)
        try:
            yield executor, kernels
        finally:
            for kernel in kernels:
                kernel.released.set()


def test_closing_a_map_makes_room_for_a_blocked_thread(
    two_held: tuple[gx.GpuExecutor, list[HeldKernel]],
) -> None:
    executor, kernels = two_held
    a, b = words(10)
    results = executor.map(ADD, [a] * 8, [b] * 8, chunksize=8)
    thread, late = in_background(lambda: executor.submit(ADD, a, b).result(PATIENCE))
    thread.join(0.05)
    assert thread.is_alive() and executor._queue._pending.overflow
    del results
    for kernel in kernels:
        kernel.released.set()
    thread.join(PATIENCE)
    check_sums(late, [(a, b)])


@pytest.mark.parametrize("when_full", ["block", "raise"])
def test_a_cancelled_job_does_not_count_against_the_limit(held: HeldKernel, when_full: Any) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB, when_full=when_full) as executor:
        held.hold(executor)
        assert executor.submit(ADD, *words(10)).cancel()
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 1)))
        thread.join(PATIENCE)
        assert executor.stats().waiting_bytes == JOB
        held.released.set()
        check_sums([submitted[0].result(PATIENCE)], [words(10, 1)])


def test_cancelling_a_job_admits_a_blocked_one(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        held.hold(executor)
        first = executor.submit(ADD, *words(10))
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 1)))
        thread.join(0.05)
        assert thread.is_alive()
        assert first.cancel()
        thread.join(PATIENCE)
        held.released.set()
        check_sums([submitted[0].result(PATIENCE)], [words(10, 1)])


def test_small_jobs_do_not_overtake_a_large_one_that_is_blocked(held: HeldKernel) -> None:
    ran: list[int] = []
    kernels = [
        make_kernel(make_addition(partial(ran.append, n))) for n in range(3)
    ]  # not one batch
    with gx.GpuExecutor("cpu", queued_bytes=3 * JOB) as executor:
        held.hold(executor)
        futures = [executor.submit(kernels[0], *words(10))]
        waiting = []
        for number, size in ((1, 30), (2, 10)):  # the second would fit
            submit = partial(executor.submit, kernels[number], *words(size))
            waiting.append(in_background(submit))
            while len(executor._queue._pending.overflow) < number:
                time.sleep(0.001)
        held.released.set()
        for thread, submitted in waiting:
            thread.join(PATIENCE)
            futures += submitted
        for future in futures:
            future.result(PATIENCE)
    assert ran == [0, 1, 2]


def test_a_large_job_does_not_starve_among_small_ones() -> None:
    with gx.GpuExecutor("cpu", queued_bytes=10 * JOB) as executor:
        over = threading.Event()
        kernels = [make_kernel(make_addition(lambda: None)) for _ in range(8)]

        def small(kernel: gx.Kernel) -> None:
            while not over.is_set():
                executor.submit(kernel, *words(9))

        threads = [threading.Thread(target=small, args=(each,)) for each in kernels]
        for thread in threads:
            thread.start()
        thread, large = in_background(lambda: executor.submit(ADD, *words(95)))
        thread.join(PATIENCE)
        came_in = not thread.is_alive()
        over.set()
        for each in threads:
            each.join(PATIENCE)
        assert came_in
        check_sums([large[0].result(PATIENCE)], [words(95)])


def test_a_full_queue_blocks_neither_the_event_loop_nor_its_threads(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        held.hold(executor)

        async def ask() -> list[Any]:
            tasks = [asyncio.create_task(executor.run_async(ADD, *words(10, n))) for n in range(60)]
            await asyncio.sleep(0)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), PATIENCE) == "free"
            assert not any(task.done() for task in tasks)
            assert executor.stats().waiting_bytes == JOB
            for task in tasks[1::2]:
                task.cancel()
            await asyncio.sleep(0)
            held.released.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        results = asyncio.run(ask())
    assert all(isinstance(each, asyncio.CancelledError) for each in results[1::2])
    check_sums(results[::2], [words(10, n) for n in range(0, 60, 2)])


def test_awaited_jobs_run_at_the_shutdown(held: HeldKernel) -> None:
    executor = gx.GpuExecutor("cpu", queued_bytes=JOB)
    held.hold(executor)

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(executor.run_async(ADD, *words(10, n))) for n in range(4)]
        await asyncio.sleep(0)
        executor.shutdown(wait=False)
        held.released.set()
        return await asyncio.gather(*tasks)

    check_sums(asyncio.run(ask()), [words(10, n) for n in range(4)])


@pytest.mark.parametrize("cancel", [True, False])
def test_a_thread_that_is_blocked_at_the_shutdown_raises_closed_error(
    held: HeldKernel, cancel: bool
) -> None:
    executor = gx.GpuExecutor("cpu", queued_bytes=JOB)
    held.hold(executor)
    inside = executor.submit(ADD, *words(10))
    blocked = [in_background(lambda: executor.submit(ADD, *words(10))) for _ in range(3)]
    while len(executor._queue._pending.overflow) < 3:
        time.sleep(0.001)
    executor.shutdown(wait=False, cancel_futures=cancel)
    held.released.set()
    for thread, refused in blocked:
        thread.join(PATIENCE)
        assert isinstance(refused[0], ClosedError)
    assert inside.cancelled() == cancel
    executor.shutdown()
    assert executor.stats().devices[0].calls == (1 if cancel else 2)


def test_a_job_that_is_cancelled_under_the_queue_lock_is_removed_later(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=2 * JOB) as executor:
        held.hold(executor)
        futures = [executor.submit(ADD, *words(10, n)) for n in range(2)]
        with executor._queue._lock:  # garbage collection may run in any thread
            assert futures[0].cancel()
            assert len(executor._queue) == 2
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 2)))
        thread.join(PATIENCE)
        assert len(executor._queue) == 2
        held.released.set()
        results = [future.result(PATIENCE) for future in [futures[1], *submitted]]
        check_sums(results, [words(10, n) for n in (1, 2)])


def test_the_timeout_of_a_map_counts_while_the_queue_is_full(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        held.hold(executor)
        executor.submit(ADD, *words(10))
        a, b = words(10)
        results = executor.map(ADD, [a] * 5, [b] * 5, timeout=0.05)
        with pytest.raises(TimeoutError):
            next(results)
        assert not executor._queue._pending.overflow
        held.released.set()


def test_a_large_call_of_run_is_not_limited(
    two_held: tuple[gx.GpuExecutor, list[HeldKernel]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "UNIT_BYTES", 1 << 10)
    executor, kernels = two_held
    monkeypatch.setattr(executor._queue, "when_full", "raise")
    executor.submit(ADD, *words(20))
    with pytest.raises(QueueFullError):
        executor.submit(ADD, *words(1))
    arrays = words(5000)
    thread, results = in_background(lambda: executor.run(ADD, *arrays))
    for kernel in kernels:
        kernel.released.set()
    thread.join(PATIENCE)
    np.testing.assert_array_equal(results[0], total(arrays))
