"""A worker: the thread that takes jobs from the line and runs them on one device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from gpu_executor.executor.crew import Crew
from gpu_executor.executor.jobs import Job


class Worker:
    """What waits when the device comes free is run together; a lone job waits for nothing."""

    def __init__(self, crew: Crew, who: int) -> None:
        # It must not keep the executor alive, which ends it when nobody holds that any more.
        self._thread = threading.Thread(
            target=_work,
            args=(crew, who),
            name=f"gpu-executor {crew.devices[who].seat}",
            daemon=True,
        )
        self._thread.start()

    def join(self) -> None:
        """Return when it has run all that waited, and the line is closed."""
        if self._thread is not threading.current_thread():
            self._thread.join()


def join_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.join()


def _work(crew: Crew, who: int) -> None:
    try:
        while jobs := crew.line.take(who):
            run_jobs(crew, who, jobs)
            del jobs  # their arrays are the callers' again
            if crew.is_left_by(who):
                return
    finally:
        crew.end(who)


def run_jobs(crew: Crew, who: int, jobs: list[Job]) -> None:
    """Jobs of one kernel that were taken from the line, until each has its answer."""
    kernel, own = jobs[0].kernel, crew.devices[who]
    device = own
    calls = [arrays for job in jobs for arrays in job.calls]
    outs = [out for job in jobs for out in (job.outs or [None] * len(job.calls))]
    begun = perf_counter()
    try:
        device = crew.place(who, kernel, calls)
        outcomes = device.run_calls(kernel, calls, outs)
    except BaseException as error:  # whatever it is, the futures are not left alone with it
        outcomes = [error] * len(calls)
    journal = device.journal
    ended = journal.ran_together(jobs, begun)
    answers = _by_job(jobs, outcomes)
    if device is own and len(crew.devices) > 1:
        nbytes = sum(job.nbytes for job in jobs)
        crew.rates.note(who, kernel, len(calls), nbytes, ended - begun)
    if own.failed is not None:
        answers = crew.pass_on(who, answers)
    crew.line.rest(who)  # before the answers: who is told of one may ask for more, and wait for it
    for job, answer in answers:
        journal.job_seconds.observe(ended - job.submitted)
        job.answer(answer)
    journal.answered([job for job, _ in answers], ended)


def _by_job(jobs: Sequence[Job], outcomes: Sequence[Any]) -> list[tuple[Job, Sequence[Any]]]:
    answers, first = [], 0
    for job in jobs:
        answers.append((job, outcomes[first : first + len(job.calls)]))
        first += len(job.calls)
    return answers
