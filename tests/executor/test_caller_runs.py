"""Helping: whoever waits for a job that nobody runs yet runs it, and nothing else changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import make_job
from gpu_executor.executor.work_stealing import DeviceRates
from tests.support.executors import ADD, HeldKernel, kernel_of, total, watched, words
from tests.support.threads import PATIENCE, in_background


@pytest.fixture
def executor() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu") as opened:
        yield opened


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device's thread is told of a job: who waits for it has to run it."""
    monkeypatch.setattr(JobQueue, "_notify_workers", lambda _queue: None)


def test_the_waiting_thread_runs_its_job(executor: gx.GpuExecutor, asleep: None) -> None:
    ran: list[threading.Thread] = []
    kernel = kernel_of(watched(lambda: ran.append(threading.current_thread())))
    for arrays in (words(3), words(4)):
        np.testing.assert_array_equal(executor.submit(kernel, *arrays).result(), total(arrays))
    assert executor.submit(kernel, *words(2)).exception() is None
    assert ran == [threading.current_thread()] * 3
    assert executor.stats().devices[0].calls == 3


def test_its_own_error_is_raised(executor: gx.GpuExecutor, asleep: None) -> None:
    future = executor.submit(kernel_of(watched(lambda: 1 // 0)), *words(3))
    with pytest.raises(ZeroDivisionError):
        future.result()
    assert isinstance(future.exception(), ZeroDivisionError)


def test_with_a_time_limit_nobody_helps(executor: gx.GpuExecutor, asleep: None) -> None:
    future = executor.submit(kernel_of(watched(lambda: None)), *words(3))
    with pytest.raises(TimeoutError):
        future.result(0.05)
    np.testing.assert_array_equal(future.result(), total(words(3)))


def test_a_job_behind_others_is_left_to_the_device(executor: gx.GpuExecutor) -> None:
    held, ran = HeldKernel(), []
    first = held.hold(executor)
    kernel = kernel_of(watched(lambda: ran.append(threading.current_thread())))
    second = executor.submit(kernel, *words(5))
    threading.Timer(0.05, held.let_go.set).start()
    np.testing.assert_array_equal(second.result(), total(words(5)))
    assert ran != [threading.current_thread()] and first.done()


def test_a_cancelled_job_is_not_run(executor: gx.GpuExecutor, asleep: None) -> None:
    ran: list[int] = []
    future = executor.submit(kernel_of(watched(lambda: ran.append(1))), *words(3))
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert not ran


@pytest.mark.parametrize("told", [True, False], ids=["by its thread", "by who waits"])
def test_a_callback_may_ask_for_more_and_wait_for_it(
    executor: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    if not told:
        monkeypatch.setattr(JobQueue, "_notify_workers", lambda _queue: None)
    kernel, found = kernel_of(watched(lambda: None)), []
    done = threading.Event()

    def more(future: Future[Any]) -> None:
        found.append(executor.submit(kernel, future.result(), words(3)[1]).result())
        done.set()

    future = executor.submit(kernel, *words(3))
    future.add_done_callback(more)
    if not told:
        future.result()
    assert done.wait(PATIENCE)
    np.testing.assert_array_equal(found[0], total(words(3)) + words(3)[1])


def test_a_future_does_not_keep_the_arrays(executor: gx.GpuExecutor) -> None:
    a, b = words(1000)
    gone = weakref.ref(a)
    future = executor.submit(kernel_of(watched(lambda: None)), a, b)
    result = future.result()
    del a, b
    assert gone() is None and len(result) == 1000


def test_many_threads_get_each_its_own(executor: gx.GpuExecutor) -> None:
    wrong: list[int] = []
    kernel = kernel_of(watched(lambda: None))

    def work(start: int) -> None:
        for n in range(start, start + 40):
            if not np.array_equal(
                executor.submit(kernel, *words(3, n)).result(), total(words(3, n))
            ):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_who_is_interrupted_while_it_rests_leaves_nobody_waiting() -> None:
    queue = JobQueue(DeviceRates([None]))
    own, other = (make_job(ADD, words(3), None, Future()) for _ in range(2))
    queue.put(own)
    assert queue.take_in_caller(own)
    worker, taken = in_background(queue.take)
    worker.join(0.1)
    queue.put(other)  # nobody is told: whoever is at work will be done soon
    with queue._lock:
        queue._mark_idle(0)  # as far as `mark_idle` came
    assert queue.release_interrupted(own)
    worker.join(PATIENCE)
    assert taken == [[other]]


def test_a_call_without_arrays_is_not_joined_with_others() -> None:
    assert coalesce(ADD, [(), words(3)]) is None
    assert coalesce(ADD, [words(3), ()]) is None
