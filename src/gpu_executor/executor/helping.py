"""Helping: whoever waits for a job that nobody runs yet runs it, where the device is free.

A job that another thread runs takes two changes of threads: on an NVIDIA H200's host submit() and
result() took 160 us so, and take 66 to 76 by the waiting thread itself (a direct call 26).

A device's own thread that waits, in a callback, runs what it waits for: nobody else would.
"""

from __future__ import annotations

from concurrent.futures import Future
from time import monotonic
from typing import Any

from gpu_executor.executor.callbacks import call
from gpu_executor.executor.crew import Crew
from gpu_executor.executor.jobs import Job
from gpu_executor.executor.own_errors import own
from gpu_executor.executor.worker import run_jobs


class HelpedFuture(Future[Any]):
    """The future of a job that was put in line."""

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self.job: Job | None = None
        """Its own, as long as that has no answer: it holds the arrays."""

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
            return super().cancel()
        finally:
            if job is not None and self.cancelled():
                self._crew.line.withdraw(job)

    def _invoke_callbacks(self) -> None:
        """The base class asks for this when the future has its answer or is cancelled: they are
        called when those that were run together have their answers too."""
        self.job = None
        self._crew.line.answered()
        call(self, vars(self)["_done_callbacks"])

    def _help(self, job: Job, timeout: float | None) -> float | None:
        """What is left of the time."""
        try:
            who = self._crew.line.taker()
            if who is not None:
                return self._run_its(job, who, timeout)
            if timeout is None and job.single and self._crew.simple:
                self._run_own(job)
            return timeout
        finally:
            del self, job

    def _run_own(self, job: Job) -> None:
        line = self._crew.line
        try:
            if line.take_own(job):
                run_jobs(self._crew, 0, [job])
        except BaseException as error:  # Ctrl-C, which may come anywhere
            if line.take_back(job) and not self.done() and job.begin():
                self.set_exception(own(error))
            raise
        finally:
            del self, job

    def _run_its(self, job: Job, who: int, timeout: float | None) -> float | None:
        """On a device's own thread."""
        end = None if timeout is None else monotonic() + timeout
        try:
            while not self._crew.is_left_by(who):
                jobs = self._crew.line.take_of(job, who, end)
                if not jobs:
                    break
                run_jobs(self._crew, who, jobs)
            return None if end is None else end - monotonic()
        finally:
            del self, job
