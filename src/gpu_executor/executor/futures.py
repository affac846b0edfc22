"""Helping: whoever waits for a job that nobody runs yet runs it, where the device is free.

A job that another thread runs takes two changes of threads: on an NVIDIA H200's host submit() and
result() took 160 us so, and take 66 to 76 by the waiting thread itself (a direct call 26).

A device's own thread that waits, in a callback, runs what it waits for: nobody else would.
"""

from __future__ import annotations

from concurrent.futures import Future
from time import monotonic
from typing import Any

from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.jobs import Job, copy_exception
from gpu_executor.executor.worker import Callback, call, run_jobs


class CallerRunsFuture(Future[Any]):
    """The future of a job that was put in line.

    It keeps its callbacks itself: the base class would call them as soon as this future is done,
    and a callback may wait for another future that is answered together with this one.
    """

    def __init__(self, pool: DevicePool) -> None:
        super().__init__()
        self._pool = pool
        self.job: Job | None = None
        """Its own, as long as that has no answer: it holds the arrays."""
        self._waiting_callbacks: list[Callback] | None = []
        """Callbacks in the order they were added; None from the time that they are called."""

    def add_done_callback(self, fn: Callback) -> None:
        if not self.done():
            with self._pool.queue.callbacks_lock:
                if self._waiting_callbacks is not None:
                    self._waiting_callbacks.append(fn)
                    return
        super().add_done_callback(fn)  # the future is done: the base class calls it now

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._call_back()

    def set_exception(self, exception: BaseException | None) -> None:
        super().set_exception(exception)
        self._call_back()

    def result(self, timeout: float | None = None) -> Any:
        job = self.job
        try:
            if job is not None:
                timeout = self._help(job, timeout)
            return super().result(timeout)
        finally:
            del self, job  # an error leads here, and would lead to itself, as in the base class

    def exception(self, timeout: float | None = None) -> BaseException | None:
        job = self.job
        try:
            if job is not None:
                timeout = self._help(job, timeout)
            return super().exception(timeout)
        finally:
            del self, job

    def cancel(self) -> bool:
        job = self.job
        try:
            cancelled = super().cancel()
            if cancelled:
                self._call_back()
            return cancelled
        finally:
            if job is not None and self.cancelled():
                self._pool.queue.withdraw(job)

    def _call_back(self) -> None:
        """Call the callbacks of this future, which is done, once: when the futures that were run
        together have their answers too. In a child of fork() the callbacks are the parent's."""
        self.job = None
        queue = self._pool.queue
        queue.answered()
        with queue.callbacks_lock:
            callbacks, self._waiting_callbacks = self._waiting_callbacks, None
        if callbacks and not queue.forked:
            call(self, callbacks)

    def _help(self, job: Job, timeout: float | None) -> float | None:
        """What is left of the time."""
        try:
            who = self._pool.queue.taker()
            if who is not None:
                return self._run_its(job, who, timeout)
            if timeout is None and job.single and self._pool.simple:
                self._run_own(job)
            return timeout
        finally:
            del self, job

    def _run_own(self, job: Job) -> None:
        queue = self._pool.queue
        try:
            if queue.take_own(job):
                run_jobs(self._pool, 0, [job])
        except BaseException as error:  # Ctrl-C, which may come anywhere
            if queue.take_back(job) and not self.done() and job.begin():
                self.set_exception(copy_exception(error))
            raise
        finally:
            del self, job

    def _run_its(self, job: Job, who: int, timeout: float | None) -> float | None:
        """On a device's own thread."""
        end = None if timeout is None else monotonic() + timeout
        try:
            while not self._pool.is_left_by(who):
                jobs = self._pool.queue.take_of(job, who, end)
                if not jobs:
                    break
                run_jobs(self._pool, who, jobs)
            return None if end is None else end - monotonic()
        finally:
            del self, job
