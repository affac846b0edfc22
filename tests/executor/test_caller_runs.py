"""Caller-runs: a thread that waits for a queued job runs it if the device is idle."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import CallArguments, make_job
from gpu_executor.executor.work_stealing import DeviceRates
from tests.support.executors import ADD, HeldKernel, make_addition, make_kernel, total, words
from tests.support.threads import PATIENCE, in_background


@pytest.fixture
def executor() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu") as opened:
        yield opened


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is notified of a job: the waiting thread has to run it."""
    monkeypatch.setattr(JobQueue, "_notify_workers", lambda _queue: None)


def test_the_waiting_thread_runs_its_job(executor: gx.GpuExecutor, asleep: None) -> None:
    ran: list[threading.Thread] = []
    kernel = make_kernel(make_addition(lambda: ran.append(threading.current_thread())))
    for arrays in (words(3), words(4)):
        np.testing.assert_array_equal(executor.submit(kernel, *arrays).result(), total(arrays))
    assert executor.submit(kernel, *words(2)).exception() is None
    assert ran == [threading.current_thread()] * 3
    counted = executor.stats().devices[0]
    assert counted.calls == counted.job_seconds.count == counted.batch_calls.count == 3
    assert counted.nbytes == sum(each.nbytes for size in (3, 4, 2) for each in words(size))


def test_the_waiting_thread_gets_the_error_of_its_job(
    executor: gx.GpuExecutor, asleep: None
) -> None:
    future = executor.submit(make_kernel(make_addition(lambda: 1 // 0)), *words(3))
    with pytest.raises(ZeroDivisionError):
        future.result()
    assert isinstance(future.exception(), ZeroDivisionError)


def test_a_wait_with_a_timeout_does_not_run_the_job(executor: gx.GpuExecutor, asleep: None) -> None:
    future = executor.submit(make_kernel(make_addition(lambda: None)), *words(3))
    with pytest.raises(TimeoutError):
        future.result(0.05)
    np.testing.assert_array_equal(future.result(), total(words(3)))


def test_a_job_behind_others_is_left_to_the_worker(executor: gx.GpuExecutor) -> None:
    held, ran = HeldKernel(), []
    first = held.hold(executor)
    kernel = make_kernel(make_addition(lambda: ran.append(threading.current_thread())))
    second = executor.submit(kernel, *words(5))
    threading.Timer(0.05, held.released.set).start()
    np.testing.assert_array_equal(second.result(), total(words(5)))
    assert ran != [threading.current_thread()] and first.done()


def test_a_cancelled_job_is_not_run(executor: gx.GpuExecutor, asleep: None) -> None:
    ran: list[int] = []
    future = executor.submit(make_kernel(make_addition(lambda: ran.append(1))), *words(3))
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert not ran


@pytest.mark.parametrize("notified", [True, False], ids=["in the worker", "in the waiting thread"])
def test_a_callback_may_submit_another_job_and_wait_for_it(
    executor: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch, notified: bool
) -> None:
    if not notified:
        monkeypatch.setattr(JobQueue, "_notify_workers", lambda _queue: None)
    kernel, found = make_kernel(make_addition(lambda: None)), []
    done = threading.Event()

    def more(future: Future[Any]) -> None:
        found.append(executor.submit(kernel, future.result(), words(3)[1]).result())
        done.set()

    future = executor.submit(kernel, *words(3))
    future.add_done_callback(more)
    if not notified:
        future.result()
    assert done.wait(PATIENCE)
    np.testing.assert_array_equal(found[0], total(words(3)) + words(3)[1])


def test_a_finished_future_does_not_keep_the_arrays_alive(executor: gx.GpuExecutor) -> None:
    a, b = words(1000)
    gone = weakref.ref(a)
    future = executor.submit(make_kernel(make_addition(lambda: None)), a, b)
    result = future.result()
    del a, b
    assert gone() is None and len(result) == 1000


def test_each_of_many_threads_gets_its_own_result(executor: gx.GpuExecutor) -> None:
    wrong: list[int] = []
    kernel = make_kernel(make_addition(lambda: None))

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


def test_an_interrupt_in_mark_idle_leaves_no_worker_waiting() -> None:
    queue = JobQueue(DeviceRates([None]))
    own, other = (make_job(ADD, CallArguments(words(3)), Future()) for _ in range(2))
    queue.put(own)
    assert queue.take_in_caller(own)
    worker, taken = in_background(queue.take)
    worker.join(0.1)
    queue.put(other)  # no worker is notified: the busy device takes it next
    with queue._lock:
        queue._mark_idle(0)  # what `mark_idle` had done before the interrupt
    assert queue.release_interrupted(own)
    worker.join(PATIENCE)
    assert taken == [[other]]


def test_a_call_without_arrays_is_not_coalesced() -> None:
    calls = [CallArguments(()), CallArguments(words(3))]
    assert coalesce(ADD, calls) is None
    assert coalesce(ADD, calls[::-1]) is None


def test_the_code_of_a_job_that_the_waiting_thread_runs_may_shut_the_executor_down(
    asleep: None,
) -> None:
    executor = gx.GpuExecutor("cpu")
    kernel = make_kernel(make_addition(executor.shutdown))
    waiting, results = in_background(lambda: executor.submit(kernel, *words(3)).result())
    waiting.join(PATIENCE)
    assert not waiting.is_alive(), "the shutdown waits for the job that it is called in"
    np.testing.assert_array_equal(results[0], total(words(3)))
    executor.shutdown()
    with pytest.raises(ClosedError):
        executor.run(ADD, *words(3))
