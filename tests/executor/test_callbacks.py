"""Callbacks of futures: what they may call in a worker thread, and what they may raise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed, wait
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.work_stealing import DeviceRates
from tests.conftest import RunPython
from tests.support.executor_scripts import check_script
from tests.support.executors import ADD, HeldKernel, make_addition, make_kernel, total, words
from tests.support.jobs import check_sums
from tests.support.threads import PATIENCE, in_background

Ask = Callable[[gx.GpuExecutor], list[Any]]
JOBS = [words(5, n) for n in range(6)]


def several(executor: gx.GpuExecutor) -> list[Any]:
    """Wait for the last job first, while no thread runs the jobs before it."""
    futures = [executor.submit(ADD, *job) for job in JOBS]
    return [each.result() for each in reversed(futures)][::-1]


WAYS: dict[str, Ask] = {
    "run": lambda executor: [executor.run(ADD, *job) for job in JOBS],
    "submit": lambda executor: [executor.submit(ADD, *job).result() for job in JOBS],
    "in time": lambda executor: [executor.submit(ADD, *job).result(PATIENCE) for job in JOBS],
    "several": several,
    "run_batch": lambda executor: executor.run_batch(ADD, JOBS),
    "map": lambda executor: list(executor.map(ADD, *zip(*JOBS, strict=True), chunksize=2)),
}


@pytest.fixture(params=[None, [0, 0]], ids=["one device", "two"])
def executor(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu", devices=request.param) as opened:
        yield opened


def call_in_callbacks(executor: gx.GpuExecutor, ask: Ask) -> list[Any]:
    """The results of calls in callbacks that run in the worker threads of all devices at once."""
    holding = [HeldKernel() for _ in executor._devices]
    found: list[Any] = []
    done = [threading.Event() for _ in holding]

    def called(ended: threading.Event) -> Callable[[Future[Any]], None]:
        def ask_and_wait(_future: Future[Any]) -> None:
            try:
                found.append(ask(executor))
            finally:
                ended.set()

        return ask_and_wait

    for kernel, ended in zip(holding, done, strict=True):
        kernel.hold(executor).add_done_callback(called(ended))
    for kernel in holding:
        kernel.released.set()
    assert all(ended.wait(PATIENCE) for ended in done)
    return found


def test_callbacks_that_wait_for_each_others_devices_run_the_jobs_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker waits for a batch whose units are left to the other device, which is faster."""
    slow = [make_kernel(make_addition(lambda: None)) for _ in range(2)]
    """For each device, the kernel that only the other device runs fast."""
    monkeypatch.setattr(
        DeviceRates,
        "compute_shares",
        lambda _, kernel: [1e-3, 1 - 1e-3] if kernel is slow[0] else [1 - 1e-3, 1e-3],
    )

    def ask(executor: gx.GpuExecutor) -> list[Any]:
        device = executor._queue.get_worker_device()
        assert device is not None
        return executor.run_batch(slow[device], JOBS)

    with gx.GpuExecutor("cpu", devices=[0, 0]) as executor:
        for results in call_in_callbacks(executor, ask):
            check_sums(results, JOBS)


@pytest.mark.parametrize("way", WAYS)
def test_a_callback_may_submit_and_wait_in_every_way(executor: gx.GpuExecutor, way: str) -> None:
    found = call_in_callbacks(executor, WAYS[way])
    assert len(found) == len(executor._devices)
    for results in found:
        check_sums(results, JOBS)


@pytest.mark.parametrize("fast", [0, 1])
def test_a_callback_runs_the_job_that_its_device_would_run(fast: int) -> None:
    with gx.GpuExecutor("cpu", devices=[0, 0]) as executor:
        for index in (0, 1):
            seconds = 0.01 if index == fast else 1.0
            for _ in range(5):
                executor._pool.rates.record(index, ADD, 1, 1 << 30, seconds)
        assert max(executor._pool.rates.compute_shares(ADD)) > 0.98
        for results in call_in_callbacks(executor, WAYS["run_batch"]):
            check_sums(results, JOBS)


def test_a_timeout_in_a_callback_ends_the_wait() -> None:
    held = HeldKernel()

    def impatient(executor: gx.GpuExecutor) -> list[Any]:
        other, _ = in_background(lambda: executor.submit(held.kernel, *words(1)).result())
        assert held.begun.wait(PATIENCE)  # that thread runs a job on the device
        waiting = executor.submit(ADD, *words(1))
        with pytest.raises(TimeoutError):
            waiting.result(0.01)
        held.released.set()
        other.join(PATIENCE)
        return [waiting.result(PATIENCE)]

    with gx.GpuExecutor("cpu") as executor:
        (results,) = call_in_callbacks(executor, impatient)
    check_sums(results, [words(1)])


def test_a_callback_may_wait_for_a_job_of_its_own_batch() -> None:
    held, found, done = HeldKernel(), list[Any](), threading.Event()
    with gx.GpuExecutor("cpu") as executor:
        held.hold(executor)
        futures = [executor.submit(ADD, *job) for job in JOBS]

        def wait_for_all(_future: Future[Any]) -> None:
            found.extend(each.result() for each in futures)
            done.set()

        futures[0].add_done_callback(wait_for_all)
        held.released.set()
        assert done.wait(PATIENCE)
    check_sums(found, JOBS)


def test_any_number_of_callbacks_may_wait() -> None:
    kernels = [
        make_kernel(make_addition(lambda: None)) for _ in range(2)
    ]  # two kernels: small batches
    held, left, done = HeldKernel(), list(range(300)), threading.Event()
    with gx.GpuExecutor("cpu") as executor:
        held.hold(executor)

        def ask_and_wait(_future: Future[Any]) -> None:
            check_sums([executor.submit(ADD, *words(3)).result()], [words(3)])
            left.pop()
            if not left:
                done.set()

        for number in range(len(left)):
            executor.submit(kernels[number % 2], *words(3)).add_done_callback(ask_and_wait)
        held.released.set()
        assert done.wait(PATIENCE)


def test_a_waiting_callback_gets_its_result_though_another_callback_exits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("gpu_executor.executor"), "disabled", True)
    first, second, done = HeldKernel(), HeldKernel(), threading.Event()
    with gx.GpuExecutor("cpu", devices=[0, 0]) as executor:
        one, other = first.hold(executor), second.hold(executor)
        other.add_done_callback(lambda _: sys.exit("not here"))

        def wait_for_other(_future: Future[Any]) -> None:
            other.result()
            done.set()

        one.add_done_callback(wait_for_other)
        first.released.set()
        assert not done.wait(0.02)
        second.released.set()
        assert done.wait(PATIENCE)


@pytest.mark.parametrize("wait", [True, False])
def test_a_callback_may_shut_the_executor_down(executor: gx.GpuExecutor, wait: bool) -> None:
    def shut_down(executor: gx.GpuExecutor) -> list[Any]:
        futures = []
        with contextlib.suppress(gx.errors.ClosedError):  # the other callback has shut it down
            futures = [executor.submit(ADD, *job) for job in JOBS]
        executor.shutdown(wait)
        return futures

    found = call_in_callbacks(executor, shut_down)
    assert len(JOBS) in map(len, found), "the first callback came before any shutdown"
    for futures in found:
        check_sums([each.result(PATIENCE) for each in futures], JOBS[: len(futures)])
    executor.shutdown()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_an_exception_in_a_callback_does_not_end_the_worker(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def leave(_future: object) -> None:
        raise error("from a callback")

    called = threading.Semaphore(0)
    held = HeldKernel()
    with gx.GpuExecutor("cpu") as executor, caplog.at_level(logging.CRITICAL):
        first = held.hold(executor)
        jobs = [words(10, number) for number in range(20)]
        futures = [executor.submit(ADD, *job) for job in jobs]
        for number, future in enumerate(futures):
            future.add_done_callback(leave if number % 3 else lambda _: called.release())
        held.released.set()
        for future, job in zip(futures, jobs, strict=True):
            np.testing.assert_array_equal(future.result(PATIENCE), total(job))
        for _ in range(7):
            assert called.acquire(timeout=PATIENCE)
        job = words(5)
        np.testing.assert_array_equal(executor.submit(ADD, *job).result(PATIENCE), total(job))
        assert first.done()
    if error is not ValueError:  # logged by concurrent.futures
        assert "callback of a finished job raised" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_all_jobs_are_cancelled_though_a_callback_raises(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def leave(_future: object) -> None:
        raise error("from a callback")

    held = HeldKernel()
    executor = gx.GpuExecutor("cpu")
    first = held.hold(executor)
    futures = [executor.submit(ADD, *words(5)) for _ in range(6)]
    for future in futures[::2]:
        future.add_done_callback(leave)
    pressed = (
        pytest.raises(KeyboardInterrupt) if error is KeyboardInterrupt else contextlib.nullcontext()
    )
    with pressed, caplog.at_level(logging.CRITICAL):
        executor.shutdown(wait=False, cancel_futures=True)
    assert ("callback of a finished job raised" in caplog.text) == (error is SystemExit)
    assert all(future.cancelled() for future in futures)
    held.released.set()
    executor.shutdown()
    assert first.done()


EXITS_IN_A_CALLBACK = """
with gx.GpuExecutor("vulkan") as executor:
    futures = [executor.submit(ADD, X, X) for _ in range(50)]
    for future in futures[::5]:
        future.add_done_callback(lambda _: sys.exit(3))
    wait(futures)
    assert right([future.result() for future in futures])
    assert (executor.submit(ADD, X, X).result(10) == 2 * X).all()
print("right")
"""


def test_sys_exit_in_a_callback_ends_neither_worker_nor_process(run_python: RunPython) -> None:
    check_script(run_python, EXITS_IN_A_CALLBACK, "right")


def test_sys_exit_in_a_callback_is_not_raised_in_the_waiting_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        JobQueue, "_notify_workers", lambda _queue: None
    )  # the waiting thread runs the job
    ran: list[threading.Thread] = []
    kernel = make_kernel(make_addition(lambda: ran.append(threading.current_thread())))
    with gx.GpuExecutor("cpu") as executor, caplog.at_level(logging.CRITICAL):
        future = executor.submit(kernel, *words(3))
        future.add_done_callback(lambda _: sys.exit("not here"))
        np.testing.assert_array_equal(future.result(), total(words(3)))
    assert ran == [threading.current_thread()]
    assert "the callback of a finished job raised" in caplog.text and "not here" in caplog.text


def test_ctrl_c_in_a_callback_is_raised_in_the_waiting_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(JobQueue, "_notify_workers", lambda _queue: None)

    def press(_future: Future[Any]) -> None:
        raise KeyboardInterrupt

    with gx.GpuExecutor("cpu") as executor:
        future = executor.submit(ADD, *words(3))
        future.add_done_callback(press)
        with pytest.raises(KeyboardInterrupt):
            future.result()
        np.testing.assert_array_equal(future.result(), total(words(3)))


@pytest.mark.parametrize("cancelled", [False, True])
def test_callbacks_are_called_once_and_in_order(cancelled: bool) -> None:
    held, called, done = HeldKernel(), list[str](), threading.Event()
    with gx.GpuExecutor("cpu") as executor:
        running = held.hold(executor)
        future = executor.submit(ADD, *words(3)) if cancelled else running
        for name in "abc":
            future.add_done_callback(partial(lambda name, _: called.append(name), name))
        future.add_done_callback(lambda _: done.set())
        if cancelled:
            assert future.cancel() and future.cancel()
        held.released.set()
        assert done.wait(PATIENCE)
    assert called == ["a", "b", "c"]


def test_a_callback_of_a_finished_future_is_called_at_once(executor: gx.GpuExecutor) -> None:
    for job in JOBS * 10:
        future = executor.submit(ADD, *job)
        assert wait([future], PATIENCE).done
        called: list[Future[Any]] = []
        future.add_done_callback(called.append)
        assert called == [future]


def test_a_future_works_with_the_standard_library(executor: gx.GpuExecutor) -> None:
    futures = [executor.submit(ADD, *job) for job in JOBS]
    assert wait(futures, PATIENCE).not_done == set()
    assert set(as_completed(futures, PATIENCE)) == set(futures)

    async def ask() -> list[Any]:
        again = [asyncio.wrap_future(executor.submit(ADD, *job)) for job in JOBS]
        return await asyncio.wait_for(asyncio.gather(*again), PATIENCE)

    check_sums(asyncio.run(ask()), JOBS)
