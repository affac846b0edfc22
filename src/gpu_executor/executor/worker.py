"""A worker: the thread that takes jobs from the line and runs them on one device."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from gpu_executor.executor import callbacks
from gpu_executor.executor.crew import Crew
from gpu_executor.executor.jobs import Arrays, Job
from gpu_executor.executor.journal import Journal
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.own_errors import own, own_each
from gpu_executor.forking import tell_in_child

log = logging.getLogger("gpu_executor.executor")
Answer = tuple[Job, Sequence[Any]]
"""A job, and what came of its calls."""


class Worker:
    """What waits when the device comes free is run together; a lone job waits for nothing."""

    def __init__(self, crew: Crew, who: int) -> None:
        # Not the thread's own join: interrupted by Ctrl-C, CPython 3.11 takes it for ended.
        self._ended = threading.Event()
        # It must not keep the executor alive, which ends it when nobody holds that any more.
        self._thread = threading.Thread(
            target=_work,
            args=(crew, who, self._ended),
            name=f"gpu-executor {crew.devices[who].seat}",
            daemon=True,
        )
        self._thread.start()
        tell_in_child(self._leave_to_parent)

    def join(self) -> None:
        """Return when it has run all that waited, and the line is closed."""
        if self._thread is not threading.current_thread():
            self._ended.wait()

    def _leave_to_parent(self) -> None:
        self._ended = threading.Event()  # a child does not have its thread
        self._ended.set()


def join_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.join()


def _work(crew: Crew, who: int, ended: threading.Event) -> None:
    try:
        while jobs := crew.line.take(who):
            try:
                run_jobs(crew, who, jobs)
            except BaseException:  # a callback's: it is not for this thread
                log.critical("a callback raised this", exc_info=True)
            del jobs  # their arrays are the callers' again
            if crew.is_left_by(who):
                return
    finally:
        try:
            crew.end(who)
        finally:
            ended.set()


def run_jobs(crew: Crew, who: int, jobs: list[Job]) -> None:
    """Jobs of one kernel that were taken from the line, until each has its answer. Ctrl-C in their
    callbacks is raised behind the last one."""
    begun, journal = perf_counter(), crew.devices[who].journal
    try:
        device, outcomes = _outcomes(crew, who, jobs)
        journal = device.journal
        ended = journal.ran_together(jobs, begun)
        answers = _by_job(jobs, outcomes)
        if device is crew.devices[who] and len(crew.devices) > 1:
            calls, nbytes = len(outcomes), sum(job.nbytes for job in jobs)
            crew.rates.note(who, jobs[0].kernel, calls, nbytes, ended - begun)
        if crew.devices[who].is_doubtful:
            answers = crew.pass_on(who, answers)
    except BaseException as error:  # Ctrl-C where somebody waits: no future is left without it
        outcomes, ended = own_each(error, len(_calls(jobs))), perf_counter()
        answers = _by_job(jobs, outcomes)
    finally:
        crew.line.rest(who)  # before the answers: who gets one may ask for more, and wait for it
    try:
        _answer(journal, answers, ended)
    finally:
        # An error leads to this frame: without them it would lead to itself, and keep the arrays.
        for each in (jobs, outcomes, answers):
            each.clear()


def _answer(journal: Journal, answers: Sequence[Answer], ended: float) -> None:
    held = callbacks.hold()
    interrupted: KeyboardInterrupt | None = None
    try:
        for job, outcomes in answers:
            journal.job_seconds.observe(ended - job.submitted)
            try:
                job.answer(outcomes)
            except BaseException as error:  # no future is left without an answer
                if not job.future.done():
                    job.future.set_exception(own(error))
                if isinstance(error, KeyboardInterrupt):
                    interrupted = error
        journal.answered([job for job, _ in answers], ended)
    finally:
        callbacks.let_go(*held)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def _outcomes(crew: Crew, who: int, jobs: Sequence[Job]) -> tuple[OpenDevice, list[Any]]:
    """What comes of all their calls, and where they were run."""
    kernel, calls, device = jobs[0].kernel, _calls(jobs), crew.devices[who]
    outs = [out for job in jobs for out in job.places()]
    try:
        device = crew.place(who, kernel, calls)
        return device, device.run_calls(kernel, calls, outs)
    except BaseException as error:  # whatever it is, each future gets it
        return device, own_each(error, len(calls))


def _calls(jobs: Sequence[Job]) -> list[Arrays]:
    return [arrays for job in jobs for arrays in job.calls]


def _by_job(jobs: Sequence[Job], outcomes: Sequence[Any]) -> list[Answer]:
    answers, first = [], 0
    for job in jobs:
        answers.append((job, outcomes[first : first + len(job.calls)]))
        first += len(job.calls)
    return answers
