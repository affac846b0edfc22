"""Callbacks of futures that are answered together: called when all of them have their answers, so
that one may wait for another; and what they raise is for the log.

A worker: the thread that takes jobs from the line and runs them on one device.

The end of the interpreter: executors run what is in line first.
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

from gpu_executor.executor.device_metrics import DeviceMetrics
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import Arrays, Job, copy_exception, copy_exception_for_each
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.fork import register_fork_handler

log = logging.getLogger("gpu_executor.executor")
as_the_base_class = logging.getLogger("concurrent.futures")
Callback = Callable[[Future[Any]], object]
Waiting = list[tuple[Future[Any], Sequence[Callback]]]


class _Held(threading.local):
    """Where this thread's callbacks wait, while it gives answers."""

    waiting: Waiting | None = None


_held = _Held()


def hold() -> tuple[Waiting, Waiting | None]:
    """From now on this thread's callbacks wait; what `let_go` is given then."""
    before = _held.waiting
    waiting = _held.waiting = []
    return waiting, before


def let_go(waiting: Waiting, before: Waiting | None) -> None:
    """All answers are given."""
    _held.waiting = before
    interrupted: KeyboardInterrupt | None = None
    for future, callbacks in waiting:
        for callback in callbacks:
            try:
                callback(future)
            except KeyboardInterrupt as error:  # the others have theirs first
                interrupted = error
            except Exception:
                as_the_base_class.exception("exception calling callback for %r", future)
            except BaseException:  # sys.exit(), perhaps: it is not for the thread that ran the job
                log.critical("a job was answered, and its callback raised this", exc_info=True)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def call(future: Future[Any], callbacks: Sequence[Callback]) -> None:
    """Those of a future that has its answer, now or later."""
    if not callbacks:
        return
    if _held.waiting is None:
        let_go([(future, callbacks)], None)
    else:
        _held.waiting.append((future, callbacks))


Answer = tuple[Job, Sequence[Any]]
"""A job, and what came of its calls."""


class Worker:
    """What waits when the device comes free is run together; a lone job waits for nothing."""

    def __init__(self, pool: DevicePool, who: int) -> None:
        # Not the thread's own join: interrupted by Ctrl-C, CPython 3.11 takes it for ended.
        self._ended = threading.Event()
        # It must not keep the executor alive, which ends it when nobody holds that any more.
        self._thread = threading.Thread(
            target=_work,
            args=(pool, who, self._ended),
            name=f"gpu-executor {pool.devices[who].candidate}",
            daemon=True,
        )
        self._thread.start()
        register_fork_handler(self._disown_after_fork)

    def join(self) -> None:
        """Return when it has run all that waited, and the line is closed."""
        if self._thread is not threading.current_thread():
            self._ended.wait()

    def _disown_after_fork(self) -> None:
        self._ended = threading.Event()  # a child does not have its thread
        self._ended.set()


def join_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.join()


def _work(pool: DevicePool, who: int, ended: threading.Event) -> None:
    try:
        while jobs := pool.queue.take(who):
            try:
                run_jobs(pool, who, jobs)
            except BaseException:  # a callback's: it is not for this thread
                log.critical("a callback raised this", exc_info=True)
            del jobs  # their arrays are the callers' again
            if pool.is_left_by(who):
                return
    finally:
        try:
            pool.end(who)
        finally:
            ended.set()


def run_jobs(pool: DevicePool, who: int, jobs: list[Job]) -> None:
    """Jobs of one kernel that were taken from the line, until each has its answer. Ctrl-C in their
    callbacks is raised behind the last one."""
    begun, metrics = perf_counter(), pool.devices[who].metrics
    try:
        device, outcomes = _outcomes(pool, who, jobs)
        metrics = device.metrics
        ended = metrics.ran_together(jobs, begun)
        answers = _by_job(jobs, outcomes)
        if device is pool.devices[who] and len(pool.devices) > 1:
            calls, nbytes = len(outcomes), sum(job.nbytes for job in jobs)
            pool.rates.note(who, jobs[0].kernel, calls, nbytes, ended - begun)
        if pool.devices[who].is_doubtful:
            answers = pool.pass_on(who, answers)
    except BaseException as error:  # Ctrl-C where somebody waits: no future is left without it
        outcomes, ended = copy_exception_for_each(error, len(_calls(jobs))), perf_counter()
        answers = _by_job(jobs, outcomes)
    finally:
        pool.queue.rest(who)  # before the answers: who gets one may ask for more, and wait for it
    try:
        _answer(metrics, answers, ended)
    finally:
        # An error leads to this frame: without them it would lead to itself, and keep the arrays.
        for each in (jobs, outcomes, answers):
            each.clear()


def _answer(metrics: DeviceMetrics, answers: Sequence[Answer], ended: float) -> None:
    held = hold()
    interrupted: KeyboardInterrupt | None = None
    try:
        for job, outcomes in answers:
            metrics.job_seconds.observe(ended - job.submitted)
            try:
                job.answer(outcomes)
            except BaseException as error:  # no future is left without an answer
                if not job.future.done():
                    job.future.set_exception(copy_exception(error))
                if isinstance(error, KeyboardInterrupt):
                    interrupted = error
        metrics.answered([job for job, _ in answers], ended)
    finally:
        let_go(*held)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def _outcomes(pool: DevicePool, who: int, jobs: Sequence[Job]) -> tuple[OpenDevice, list[Any]]:
    """What comes of all their calls, and where they were run."""
    kernel, calls, device = jobs[0].kernel, _calls(jobs), pool.devices[who]
    outs = [out for job in jobs for out in job.places()]
    try:
        device = pool.place(who, kernel, calls)
        return device, device.run_calls(kernel, calls, outs)
    except BaseException as error:  # whatever it is, each future gets it
        return device, copy_exception_for_each(error, len(calls))


def _calls(jobs: Sequence[Job]) -> list[Arrays]:
    return [arrays for job in jobs for arrays in job.calls]


def _by_job(jobs: Sequence[Job], outcomes: Sequence[Any]) -> list[Answer]:
    answers, first = [], 0
    for job in jobs:
        answers.append((job, outcomes[first : first + len(job.calls)]))
        first += len(job.calls)
    return answers


_ending: weakref.WeakKeyDictionary[JobQueue, Sequence[Worker]] = weakref.WeakKeyDictionary()


def end_with_interpreter(queue: JobQueue, workers: Sequence[Worker]) -> None:
    """Run what is in line before the interpreter ends.

    What is registered last is called first: this is behind the finalizers of `weakref`, which would
    close a device that was opened again before the line that needs it.
    """
    if not _ending:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _ending[queue] = workers


def _end_all() -> None:
    lines = list(_ending.items())
    for queue, _ in lines:
        queue.close()
    for _, workers in lines:
        join_all(workers)
