"""Worker threads: one for each device takes jobs from the queue, runs them and resolves their
futures.

Callbacks of futures are deferred until all futures of a batch are resolved, so that a callback may
wait for another future of its batch. At the interpreter's exit, executors finish their queued jobs.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any

from gpu_executor.common.fork import register_fork_handler
from gpu_executor.executor.device_metrics import DeviceMetrics
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import (
    CallArguments,
    DeviceJob,
    Job,
    copy_exception,
    copy_exception_for_each,
)
from gpu_executor.executor.open_device import OpenDevice

log = logging.getLogger("gpu_executor.executor")
futures_log = logging.getLogger("concurrent.futures")  # as `Future` of the standard library
Callback = Callable[[Future[Any]], object]
PendingCallbacks = list[tuple[Future[Any], Sequence[Callback]]]


class _DeferredCallbacks(threading.local):
    """The deferred callbacks of this thread; None while callbacks are not deferred."""

    pending: PendingCallbacks | None = None


_deferred = _DeferredCallbacks()


def defer_callbacks() -> tuple[PendingCallbacks, PendingCallbacks | None]:
    """Defer this thread's callbacks from now on. Returns the arguments for `flush_callbacks`."""
    outer = _deferred.pending
    pending = _deferred.pending = []
    return pending, outer


def flush_callbacks(pending: PendingCallbacks, outer: PendingCallbacks | None) -> None:
    """Call the deferred callbacks. Exceptions are logged, but Ctrl-C is raised at the end."""
    _deferred.pending = outer
    interrupted: KeyboardInterrupt | None = None
    for future, callbacks in pending:
        for callback in callbacks:
            try:
                callback(future)
            except KeyboardInterrupt as error:  # raised after the other callbacks
                interrupted = error
            except Exception:
                futures_log.exception("exception calling callback for %r", future)
            except BaseException:  # such as SystemExit: must not end the thread that ran the job
                log.critical("the callback of a finished job raised", exc_info=True)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def run_callbacks(future: Future[Any], callbacks: Sequence[Callback]) -> None:
    """Call the callbacks of a future that is done, or defer them."""
    if not callbacks:
        return
    if _deferred.pending is None:
        flush_callbacks([(future, callbacks)], None)
    else:
        _deferred.pending.append((future, callbacks))


JobOutcomes = tuple[Job, Sequence[Any]]
"""A job, and the result or exception of each of its calls."""


class Worker:
    """The thread of one device. Jobs that wait when the device is idle run as one batch."""

    def __init__(self, pool: DevicePool, device_index: int) -> None:
        # Not Thread.join: after Ctrl-C, CPython 3.11 takes the thread for ended.
        self._ended = threading.Event()
        # The thread must not refer to the executor: garbage collection of that ends the thread.
        self._thread = threading.Thread(
            target=_work,
            args=(pool, device_index, self._ended),
            name=f"gpu-executor {pool.devices[device_index].candidate}",
            daemon=True,
        )
        self._thread.start()
        register_fork_handler(self._disown_after_fork)

    def join(self) -> None:
        """Wait until the queue is closed and the thread has run its jobs."""
        if self._thread is not threading.current_thread():
            self._ended.wait()

    def _disown_after_fork(self) -> None:
        self._ended = threading.Event()  # the thread does not exist in the child
        self._ended.set()


def join_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.join()


def _work(pool: DevicePool, device_index: int, ended: threading.Event) -> None:
    try:
        while jobs := pool.queue.take(device_index):
            try:
                run_jobs(pool, device_index, jobs)
            except BaseException:  # raised by a callback: must not end this thread
                log.critical("the callback of a finished job raised", exc_info=True)
            del jobs  # this thread keeps no reference to the callers' arrays while it waits
            if pool.should_stop_worker(device_index):
                return
    finally:
        try:
            pool.finish_worker(device_index)
        finally:
            ended.set()


def run_jobs(pool: DevicePool, device_index: int, jobs: list[Job]) -> None:
    """Run jobs of one kernel that were taken from the queue, and resolve their futures. Ctrl-C in a
    callback is raised after the last callback."""
    if isinstance(jobs[0], DeviceJob):
        _run_device_job(pool, device_index, jobs[0])
        return
    begun = perf_counter()
    device, outcomes = _run_calls(pool, device_index, jobs)
    _finish_jobs(pool, device_index, device, jobs, outcomes, begun)


def run_in_caller(pool: DevicePool, job: Job) -> None:
    """Run a job of one call in the thread that waits for it, on the only device: what `run_jobs`
    does, with less work for a call that succeeds."""
    device = pool.devices[0]
    if job.runs_alone or pool.runs_beside(job.kernel) or device.failed is not None:
        run_jobs(pool, 0, [job])
        return
    try:
        begun = perf_counter()
        try:
            result = device.run(job.kernel, job.calls[0])
        except BaseException as error:
            if isinstance(error, Exception):
                device.counts.errors += 1
            _finish_jobs(pool, 0, device, [job], [error], begun)
            return
        metrics = device.metrics
        ended = metrics.count_awaited_call(job, begun)
        pool.queue.mark_idle(0)  # before the future is resolved, as in `_finish_jobs`
        job.future.set_result(result)
        metrics.publish_batch((job,), ended)
    finally:
        del job  # Break the exception -> traceback -> frame reference cycle.


def _finish_jobs(
    pool: DevicePool,
    device_index: int,
    device: OpenDevice,
    jobs: list[Job],
    outcomes: list[Any],
    begun: float,
) -> None:
    """Count jobs that a device has run, and resolve their futures."""
    metrics = pool.devices[device_index].metrics
    try:
        metrics = device.metrics
        ended = metrics.count_batch(jobs, begun)
        finished = _group_by_job(jobs, outcomes)
        if device is pool.devices[device_index] and len(pool.devices) > 1:
            calls, nbytes = len(outcomes), sum(job.nbytes for job in jobs)
            pool.rates.record(device_index, jobs[0].kernel, calls, nbytes, ended - begun)
        if pool.devices[device_index].is_unreliable:
            finished = pool.requeue_failed_jobs(device_index, finished)
    except BaseException as error:  # Ctrl-C in a waiting thread: resolve every future nonetheless
        outcomes, ended = copy_exception_for_each(error, len(_list_calls(jobs))), perf_counter()
        finished = _group_by_job(jobs, outcomes)
    finally:
        # Before the futures are resolved: their owners may submit another job and wait for it.
        pool.queue.mark_idle(device_index)
    try:
        _resolve(metrics, finished, ended)
    finally:
        # Break the exception -> traceback -> frame reference cycle, which holds the arrays.
        for each in (jobs, outcomes, finished):
            each.clear()


def _run_device_job(pool: DevicePool, device_index: int, job: DeviceJob) -> None:
    """Perform a call on device arrays, or a fetch, and resolve its future."""
    outcome: Any
    try:
        outcome = job.perform()
    except BaseException as error:  # Ctrl-C in a waiting thread too: the future is resolved
        outcome = error
    finally:
        # Before the future is resolved: its owner may submit another job and wait for it.
        pool.queue.mark_idle(device_index)
    deferred = defer_callbacks()
    try:
        job.resolve([outcome])
    finally:
        del outcome  # Break the exception -> traceback -> frame reference cycle.
        flush_callbacks(*deferred)


def _resolve(metrics: DeviceMetrics, finished: Sequence[JobOutcomes], ended: float) -> None:
    """Resolve the futures of jobs, then call their callbacks."""
    deferred = defer_callbacks()
    interrupted: KeyboardInterrupt | None = None
    try:
        for job, outcomes in finished:
            metrics.job_seconds.observe(ended - job.submitted)
            try:
                job.resolve(outcomes)
            except BaseException as error:  # every future is resolved
                if not job.future.done():
                    job.future.set_exception(copy_exception(error))
                if isinstance(error, KeyboardInterrupt):
                    interrupted = error
        metrics.publish_batch([job for job, _ in finished], ended)
    finally:
        flush_callbacks(*deferred)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def _run_calls(
    pool: DevicePool, device_index: int, jobs: Sequence[Job]
) -> tuple[OpenDevice, list[Any]]:
    """Run the calls of all jobs. Returns the device, and the result or exception of each call."""
    kernel, calls, device = jobs[0].kernel, _list_calls(jobs), pool.devices[device_index]
    try:
        device = pool.select_device(device_index, kernel, calls)
        return device, device.run_calls(kernel, calls)
    except BaseException as error:  # every future receives it
        return device, copy_exception_for_each(error, len(calls))


def _list_calls(jobs: Sequence[Job]) -> list[CallArguments]:
    return [call for job in jobs for call in job.calls]


def _group_by_job(jobs: Sequence[Job], outcomes: Sequence[Any]) -> list[JobOutcomes]:
    grouped, first = [], 0
    for job in jobs:
        grouped.append((job, outcomes[first : first + len(job.calls)]))
        first += len(job.calls)
    return grouped


_queues_at_exit: weakref.WeakKeyDictionary[JobQueue, Sequence[Worker]] = weakref.WeakKeyDictionary()


def register_atexit(queue: JobQueue, workers: Sequence[Worker]) -> None:
    """Finish the queued jobs before the interpreter exits.

    atexit handlers run in reverse order of their registration. This one is registered anew, so that
    it runs before the finalizers of `weakref`, which would close a reopened device while queued
    jobs still need it.
    """
    if not _queues_at_exit:
        atexit.unregister(_finish_all)
        atexit.register(_finish_all)
    _queues_at_exit[queue] = workers


def _finish_all() -> None:
    queues = list(_queues_at_exit.items())
    for queue, _ in queues:
        queue.close()
    for _, workers in queues:
        join_all(workers)
