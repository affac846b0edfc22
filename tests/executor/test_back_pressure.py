"""Room in line: who waits for it is let in, in turn, whenever and however it becomes free."""

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
from tests.support.executors import ADD, HeldKernel, held, kernel_of, total, watched, words
from tests.support.jobs import check_sums
from tests.support.threads import PATIENCE, in_background

__all__ = ["held"]  # the fixture

JOB = 80
"""Bytes of two arrays of ten words."""


@pytest.fixture
def two_held() -> Iterator[tuple[gx.GpuExecutor, list[HeldKernel]]]:
    """Two devices that are busy, and room for two jobs."""
    with gx.GpuExecutor("cpu", devices=[0, 0], queued_bytes=2 * JOB) as executor:
        kernels = [HeldKernel(), HeldKernel()]
        for kernel in kernels:
            kernel.hold(executor)
        try:
            yield executor, kernels
        finally:
            for kernel in kernels:
                kernel.let_go.set()


def test_a_map_that_is_left_makes_room_for_who_waits(
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
        kernel.let_go.set()
    thread.join(PATIENCE)
    check_sums(late, [(a, b)])


@pytest.mark.parametrize("when_full", ["block", "raise"])
def test_a_cancelled_job_takes_no_room(held: HeldKernel, when_full: Any) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB, when_full=when_full) as executor:
        held.hold(executor)
        assert executor.submit(ADD, *words(10)).cancel()
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 1)))
        thread.join(PATIENCE)
        assert executor.stats().waiting_bytes == JOB
        held.let_go.set()
        check_sums([submitted[0].result(PATIENCE)], [words(10, 1)])


def test_cancelling_lets_in_who_waits_already(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        held.hold(executor)
        first = executor.submit(ADD, *words(10))
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 1)))
        thread.join(0.05)
        assert thread.is_alive()
        assert first.cancel()
        thread.join(PATIENCE)
        held.let_go.set()
        check_sums([submitted[0].result(PATIENCE)], [words(10, 1)])


def test_nobody_passes_a_large_job_that_waits(held: HeldKernel) -> None:
    ran: list[int] = []
    kernels = [kernel_of(watched(partial(ran.append, n))) for n in range(3)]  # not gathered
    with gx.GpuExecutor("cpu", queued_bytes=3 * JOB) as executor:
        held.hold(executor)
        futures = [executor.submit(kernels[0], *words(10))]
        waiting = []
        for number, size in ((1, 30), (2, 10)):  # the second would fit
            submit = partial(executor.submit, kernels[number], *words(size))
            waiting.append(in_background(submit))
            while len(executor._queue._pending.overflow) < number:
                time.sleep(0.001)
        held.let_go.set()
        for thread, submitted in waiting:
            thread.join(PATIENCE)
            futures += submitted
        for future in futures:
            future.result(PATIENCE)
    assert ran == [0, 1, 2]


def test_a_large_job_does_not_starve_among_small_ones() -> None:
    with gx.GpuExecutor("cpu", queued_bytes=10 * JOB) as executor:
        over = threading.Event()
        kernels = [kernel_of(watched(lambda: None)) for _ in range(8)]

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


def test_an_event_loop_that_waits_for_room_goes_on_with_all_its_threads(held: HeldKernel) -> None:
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
            held.let_go.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

        results = asyncio.run(ask())
    assert all(isinstance(each, asyncio.CancelledError) for each in results[1::2])
    check_sums(results[::2], [words(10, n) for n in range(0, 60, 2)])


def test_what_is_awaited_at_the_shutdown_is_run(held: HeldKernel) -> None:
    executor = gx.GpuExecutor("cpu", queued_bytes=JOB)
    held.hold(executor)

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(executor.run_async(ADD, *words(10, n))) for n in range(4)]
        await asyncio.sleep(0)
        executor.shutdown(wait=False)
        held.let_go.set()
        return await asyncio.gather(*tasks)

    check_sums(asyncio.run(ask()), [words(10, n) for n in range(4)])


@pytest.mark.parametrize("cancel", [True, False])
def test_who_blocks_for_room_at_the_shutdown_is_refused(held: HeldKernel, cancel: bool) -> None:
    executor = gx.GpuExecutor("cpu", queued_bytes=JOB)
    held.hold(executor)
    inside = executor.submit(ADD, *words(10))
    blocked = [in_background(lambda: executor.submit(ADD, *words(10))) for _ in range(3)]
    while len(executor._queue._pending.overflow) < 3:
        time.sleep(0.001)
    executor.shutdown(wait=False, cancel_futures=cancel)
    held.let_go.set()
    for thread, refused in blocked:
        thread.join(PATIENCE)
        assert isinstance(refused[0], ClosedError)
    assert inside.cancelled() == cancel
    executor.shutdown()
    assert executor.stats().devices[0].calls == (1 if cancel else 2)


def test_a_job_that_is_cancelled_by_somebody_in_the_line_leaves_it_later(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=2 * JOB) as executor:
        held.hold(executor)
        futures = [executor.submit(ADD, *words(10, n)) for n in range(2)]
        with executor._queue._lock:  # as the collector may, wherever a thread is
            assert futures[0].cancel()
            assert len(executor._queue) == 2
        thread, submitted = in_background(lambda: executor.submit(ADD, *words(10, 2)))
        thread.join(PATIENCE)
        assert len(executor._queue) == 2
        held.let_go.set()
        results = [future.result(PATIENCE) for future in [futures[1], *submitted]]
        check_sums(results, [words(10, n) for n in (1, 2)])


def test_a_maps_time_counts_also_while_there_is_no_room(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        held.hold(executor)
        executor.submit(ADD, *words(10))
        a, b = words(10)
        results = executor.map(ADD, [a] * 5, [b] * 5, timeout=0.05)
        with pytest.raises(TimeoutError):
            next(results)
        assert not executor._queue._pending.overflow
        held.let_go.set()


def test_a_large_call_in_its_callers_thread_waits_for_no_room(
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
        kernel.let_go.set()
    thread.join(PATIENCE)
    np.testing.assert_array_equal(results[0], total(arrays))
