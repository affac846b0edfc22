"""GpuExecutor as a concurrent.futures.Executor: it behaves like a ThreadPoolExecutor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ClosedError, NotRunHereError
from gpu_executor.vulkan import binding
from tests.support.executors import (
    ADD,
    BACKENDS,
    FQ_ADD,
    HeldKernel,
    cpu,
    executor,
    held,
    make_addition,
    make_kernel,
    total,
    words,
)
from tests.support.jobs import TOO_LARGE, check_sums, field_job, field_jobs
from tests.support.threads import PATIENCE, in_threads

__all__ = ["cpu", "executor", "held"]  # the fixtures


# --- results of every way of calling ---


def test_every_way_of_calling_gives_the_same_results(executor: gx.GpuExecutor) -> None:
    jobs = field_jobs(1, 3, 64, 65, 200)
    firsts, seconds = zip(*jobs, strict=True)
    check_sums([executor.run(FQ_ADD, *job) for job in jobs], jobs)
    check_sums([executor.submit(FQ_ADD, *job).result() for job in jobs], jobs)
    check_sums([each.result() for each in [executor.submit(FQ_ADD, *job) for job in jobs]], jobs)
    check_sums(executor.run_batch(FQ_ADD, jobs), jobs)
    check_sums(list(executor.map(FQ_ADD, firsts, seconds)), jobs)


def test_results_are_written_to_out(executor: gx.GpuExecutor) -> None:
    jobs = [words(count) for count in (5, 100)]
    outs = [np.empty(count, np.uint32) for count in (5, 100)]
    assert executor.run(ADD, *jobs[0], out=outs[0]) is outs[0]
    assert executor.submit(ADD, *jobs[1], out=outs[1]).result() is outs[1]
    check_sums(outs, jobs)
    for out in outs:
        out[...] = 0
    executor.run_batch(ADD, jobs, out=outs)
    check_sums(outs, jobs)


def test_threads_share_an_executor(executor: gx.GpuExecutor) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            a, b = words(1 + 37 * turn, 1000 * number)
            np.testing.assert_array_equal(executor.submit(ADD, a, b).result(PATIENCE), a + b)
            np.testing.assert_array_equal(executor.run(ADD, b, b), b + b)

    in_threads(work)


def test_it_is_an_executor_of_concurrent_futures(executor: gx.GpuExecutor) -> None:
    plain: Executor = executor
    future: Future[Any] = plain.submit(ADD, *words(3))
    np.testing.assert_array_equal(future.result(PATIENCE), total(words(3)))
    assert len(list(plain.map(ADD, *[[each] for each in words(4)], chunksize=2))) == 1


# --- futures ---


def test_an_error_is_set_on_the_future_of_its_call(executor: gx.GpuExecutor) -> None:
    good, bad = field_job(4), field_job(4)
    bad[1][2] = TOO_LARGE
    futures = [executor.submit(FQ_ADD, *job) for job in (good, bad, good, (good[0],), good)]
    assert isinstance(futures[1].exception(PATIENCE), gx.ElementRangeError)
    assert isinstance(futures[3].exception(PATIENCE), ArgumentTypeError)
    check_sums([futures[each].result(PATIENCE) for each in (0, 2, 4)], [good] * 3)


def test_as_completed_and_wait_see_every_future(executor: gx.GpuExecutor) -> None:
    jobs = {executor.submit(ADD, *words(n)): words(n) for n in range(1, 30)}
    done, not_done = concurrent.futures.wait(jobs, PATIENCE)
    assert (len(done), len(not_done)) == (29, 0)
    for future in concurrent.futures.as_completed(jobs, PATIENCE):
        np.testing.assert_array_equal(future.result(), total(jobs[future]))


def test_a_queued_future_can_be_cancelled_and_a_running_one_cannot(
    cpu: gx.GpuExecutor, held: HeldKernel
) -> None:
    running = held.hold(cpu)
    waiting = [cpu.submit(ADD, *words(3)) for _ in range(3)]
    assert running.running() and not running.cancel()
    assert waiting[1].cancel() and waiting[1].cancelled()
    held.released.set()
    assert {*concurrent.futures.wait(waiting, PATIENCE).done} == {*waiting}
    np.testing.assert_array_equal(waiting[2].result(), total(words(3)))
    with pytest.raises(concurrent.futures.CancelledError):
        waiting[1].result()


def test_a_callback_may_submit_another_job(executor: gx.GpuExecutor) -> None:
    chained: Future[Any] = Future()

    def go_on(done: Future[object]) -> None:
        executor.submit(ADD, done.result(), done.result()).add_done_callback(
            lambda last: chained.set_result(last.result())
        )

    executor.submit(ADD, *words(5)).add_done_callback(go_on)
    np.testing.assert_array_equal(chained.result(PATIENCE), 2 * total(words(5)))


def test_anything_but_a_kernel_is_refused(executor: gx.GpuExecutor) -> None:
    with pytest.raises(ArgumentTypeError, match="'len' is not a kernel; use a ThreadPool"):
        executor.submit(len, [])
    accepted = "submit accepts out=, keep=, params=, out_shape=; it got into"
    with pytest.raises(ArgumentTypeError, match=accepted):
        executor.submit(ADD, *words(1), into=None)
    with pytest.raises(NotRunHereError):
        ADD(*words(1))


# --- batches of queued jobs ---


def test_queued_jobs_of_one_kernel_run_as_one_batch(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    first = held.hold(cpu)
    jobs = [words(n + 1) for n in range(20)]
    futures = [cpu.submit(held.kernel, *job) for job in jobs]
    held.released.set()
    check_sums([each.result(PATIENCE) for each in futures], jobs)
    np.testing.assert_array_equal(first.result(), total(words(1)))
    assert held.seen == [1, sum(range(1, 21))], "the calls were coalesced"
    assert cpu.stats().devices[0].batches == 1


def test_a_single_job_does_not_wait_for_a_batch(executor: gx.GpuExecutor) -> None:
    before = executor.stats().devices[0].batches
    for n in range(1, 6):
        executor.submit(ADD, *words(n)).result(PATIENCE)
    assert executor.stats().devices[0].batches == before


def test_jobs_of_different_kernels_run_in_order(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    order: list[str] = []
    one = make_kernel(make_addition(lambda: order.append("one")))
    two = make_kernel(make_addition(lambda: order.append("two")))
    held.hold(cpu)
    futures = [cpu.submit(kernel, *words(2)) for kernel in (one, one, two, one)]
    held.released.set()
    concurrent.futures.wait(futures, PATIENCE)
    assert order == ["one", "two", "one"]


def test_a_masked_array_is_refused_in_a_batch_too(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    a, b = words(3)
    futures = [
        cpu.submit(ADD, a, b),
        cpu.submit(ADD, np.ma.MaskedArray(a, [True, False, False]), b),
    ]
    held.released.set()
    assert isinstance(futures[1].exception(PATIENCE), ArgumentTypeError)
    np.testing.assert_array_equal(futures[0].result(), a + b)


# --- run_batch ---


def test_a_batch_is_one_job(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    results: list[object] = []
    caller = threading.Thread(target=lambda: results.extend(cpu.run_batch(ADD, [words(9)] * 500)))
    caller.start()
    while not cpu.stats().waiting:
        assert caller.is_alive()
    assert (cpu.stats().waiting, cpu.stats().waiting_bytes) == (1, 500 * 72)
    held.released.set()
    caller.join(PATIENCE)
    assert len(results) == 500


def test_the_jobs_of_a_batch_may_come_from_a_generator(executor: gx.GpuExecutor) -> None:
    jobs = [words(4, n) for n in range(5)]
    check_sums(executor.run_batch(ADD, (job for job in jobs)), jobs)
    assert executor.run_batch(ADD, iter(())) == []


@pytest.mark.parametrize("shape", [(3, 4), (1, 1)])
def test_the_results_of_a_batch_may_go_to_rows_of_an_array(
    executor: gx.GpuExecutor, shape: tuple[int, int]
) -> None:
    jobs = [words(shape[1], n) for n in range(shape[0])]
    out = np.zeros(shape, np.uint32)
    check_sums(executor.run_batch(ADD, jobs, out=out), jobs)
    check_sums(list(out), jobs)


def test_the_error_of_a_batch_names_its_job(executor: gx.GpuExecutor) -> None:
    jobs = field_jobs(*[3] * 9)
    jobs[5][1][2] = jobs[7][0][0] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match=r"^job 5: ") as raised:
        executor.run_batch(FQ_ADD, jobs)
    assert (raised.value.job, raised.value.argument, raised.value.index) == (5, 1, 2)
    with pytest.raises(ArgumentTypeError, match=r"^job 1: .* takes 2 arrays and got 1"):
        executor.run_batch(ADD, [words(1), (words(1)[0],)])
    with pytest.raises(ArgumentTypeError, match="a job is a tuple of arrays, not an ndarray"):
        executor.run_batch(ADD, [words(2)[0]])  # type: ignore[list-item]
    with pytest.raises(ArgumentTypeError, match="out has 1 entries for 2 jobs"):
        executor.run_batch(ADD, [words(2)] * 2, out=[None])
    assert executor.run_batch(ADD, []) == []


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


INVALID_JOBS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "dtype": (
        (np.zeros(4, np.float32), np.zeros(4, np.uint32)),
        None,
        ArgumentTypeError,
        "float32",
    ),
    "shape": ((np.zeros(4, np.uint32), np.zeros(5, np.uint32)), None, ArgumentShapeError, "shape"),
    "number of arrays": ((np.zeros(4, np.uint32),), None, ArgumentTypeError, "takes 2 arrays"),
    "a list that is not numbers": ((["a"], [1]), None, ArgumentTypeError, "argument 0"),
    "shape of out": (words(4), np.zeros(5, np.uint32), ArgumentShapeError, "out 0 has shape"),
    "read-only out": (words(4), read_only(np.zeros(4, np.uint32)), ArgumentTypeError, "read-only"),
}


@pytest.mark.parametrize("case", INVALID_JOBS)
@pytest.mark.parametrize("first", [True, False])
def test_no_job_of_a_batch_runs_if_one_is_invalid(
    executor: gx.GpuExecutor, case: str, first: bool
) -> None:
    arrays, out, error, message = INVALID_JOBS[case]
    jobs = [words(4, n) for n in range(30)]
    given = [(a.copy(), b.copy()) for a, b in jobs]
    outs: list[Any] = [a for a, _ in given]  # in place: a job that ran would show
    at = 0 if first else 29
    given[at], outs[at] = arrays, out
    calls = executor.stats().calls
    with pytest.raises(error, match=rf"^job {at}: .*{message}"):
        executor.run_batch(ADD, given, out=outs)
    assert executor.stats().calls == calls
    del given[at], jobs[at]
    np.testing.assert_array_equal(given, jobs)


def test_an_out_that_two_jobs_of_a_batch_use_is_refused(executor: gx.GpuExecutor) -> None:
    jobs, out = [words(4, n) for n in range(5)], np.zeros(4, np.uint32)
    outs = [None, out, None, out, None]
    with pytest.raises(ArgumentShapeError, match="job 3: out 0 overlaps out 0 of job 1"):
        executor.run_batch(ADD, jobs, out=outs)
    with pytest.raises(ArgumentShapeError, match="job 1: out 0 overlaps argument 0 of job 0"):
        executor.run_batch(ADD, jobs, out=[None, jobs[0][0], None, None, None])
    assert not np.any(out)


def test_a_batch_that_overwrites_its_inputs_runs_once(executor: gx.GpuExecutor) -> None:
    jobs = field_jobs(*[3] * 9)
    jobs[5][1][2] = TOO_LARGE
    given = [(a.copy(), b.copy()) for a, b in jobs]
    with pytest.raises(gx.ElementRangeError):
        executor.run_batch(FQ_ADD, given, out=[a for a, _ in given])
    check_sums([a for a, _ in given[:5]], jobs[:5])


# --- shutdown ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_after_the_shutdown_are_refused(backend: str) -> None:
    with gx.GpuExecutor(backend) as executor:  # type: ignore[arg-type]
        future = executor.submit(ADD, *words(3))
    np.testing.assert_array_equal(future.result(0), total(words(3)))
    assert "shut down" in repr(executor)
    for ask in (
        lambda: executor.submit(ADD, *words(3)),
        lambda: executor.map(ADD, *[[each] for each in words(3)]),
        lambda: executor.run(ADD, *words(3)),
        lambda: executor.run_batch(ADD, [words(3)]),
        lambda: asyncio.run(executor.run_async(ADD, *words(3))),
    ):
        with pytest.raises(ClosedError, match="open another one") as raised:
            ask()
        assert isinstance(raised.value, RuntimeError), "like the error of a ThreadPoolExecutor"
    executor.shutdown()


def test_a_shutdown_waits_for_the_queued_jobs(held: HeldKernel) -> None:
    executor = gx.GpuExecutor("cpu")
    futures = [held.hold(executor), *(executor.submit(ADD, *words(3)) for _ in range(3))]
    threading.Timer(0.1, held.released.set).start()
    executor.shutdown()
    assert all(future.done() and not future.cancelled() for future in futures)


def test_a_shutdown_may_cancel_the_queued_jobs(held: HeldKernel) -> None:
    executor = gx.GpuExecutor("cpu")
    running = held.hold(executor)
    waiting = [executor.submit(ADD, *words(3)) for _ in range(3)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    held.released.set()
    np.testing.assert_array_equal(running.result(PATIENCE), total(words(1)))
    assert len(concurrent.futures.wait(waiting, PATIENCE).done) == 3, "waiting threads are notified"


def test_after_a_shutdown_without_waiting_jobs_run_and_the_device_closes() -> None:
    alive = binding.count_live_objects()
    executor = gx.GpuExecutor("vulkan")
    jobs = [words(1 + 50 * n) for n in range(50)]
    futures = [executor.submit(ADD, *job) for job in jobs]
    executor.shutdown(wait=False)
    check_sums([each.result(PATIENCE) for each in futures], jobs)
    executor.shutdown()
    assert binding.count_live_objects() == alive


def test_a_garbage_collected_executor_runs_its_queue_and_closes() -> None:
    alive = binding.count_live_objects()
    executor = gx.GpuExecutor("vulkan")
    workers, gone = executor._workers, weakref.ref(executor)
    future = executor.submit(ADD, *words(1000))
    del executor
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(future.result(PATIENCE), total(words(1000)))
    for worker in workers:
        worker.join()
    assert binding.count_live_objects() == alive


# --- asyncio ---


def test_run_async_does_not_block_the_event_loop(executor: gx.GpuExecutor) -> None:
    async def ask() -> None:
        jobs = [words(n + 1) for n in range(40)]
        results = await asyncio.gather(*(executor.run_async(ADD, *job) for job in jobs))
        check_sums(results, jobs)
        loop = asyncio.get_running_loop()
        np.testing.assert_array_equal(
            await loop.run_in_executor(executor, ADD, *words(7)), total(words(7))
        )
        with pytest.raises(ArgumentTypeError, match="use a ThreadPoolExecutor for functions"):
            await loop.run_in_executor(executor, len, [])
        with pytest.raises(ArgumentTypeError, match="takes 2 arrays"):
            await executor.run_async(ADD, words(1)[0])

    asyncio.run(ask())


def test_cancelling_a_task_cancels_its_queued_job(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    computed: list[int] = []

    async def ask() -> None:
        kernel = make_kernel(make_addition(lambda: computed.append(1)))
        task = asyncio.create_task(cpu.run_async(kernel, *words(3)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    held.released.set()
    cpu.submit(ADD, *words(1)).result(PATIENCE)
    assert computed == []
