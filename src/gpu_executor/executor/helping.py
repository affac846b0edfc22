"""Helping: whoever waits for a job that nobody runs yet runs it, where the device is free.

A job that another thread runs takes two changes of threads: on an NVIDIA H200's host submit() and
result() took 160 us so, and take 66 to 76 by the waiting thread itself (a direct call 26).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from gpu_executor.executor.crew import Crew
from gpu_executor.executor.jobs import Job
from gpu_executor.executor.own_errors import own
from gpu_executor.executor.worker import run_jobs


class HelpedFuture(Future[Any]):
    """The future of a job for an executor's only device."""

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self.job: Job | None = None
        """Its own, as long as that has no answer: it holds the arrays."""

    def result(self, timeout: float | None = None) -> Any:
        try:
            if timeout is None:
                self._help()
            return super().result(timeout)
        finally:
            del self  # an error leads here, and would lead to itself, as in the base class

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            if timeout is None:
                self._help()
            return super().exception(timeout)
        finally:
            del self

    def set_result(self, result: Any) -> None:
        self.job = None
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        self.job = None
        super().set_exception(exception)

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self.job = None
        return cancelled

    def _help(self) -> None:
        job, line = self.job, self._crew.line
        if job is None:
            return
        try:
            if line.take_own(job):
                run_jobs(self._crew, 0, [job])
        except BaseException as error:  # Ctrl-C, which may come anywhere
            if line.take_back(job) and not self.done() and job.begin():
                self.set_exception(own(error))
            raise
        finally:
            del self, job
