"""The jobs in line, in the order they came, and those that wait for room in it.

Not safe from several threads: the line that has it has a lock.
"""

from __future__ import annotations

import math
from collections import deque

from gpu_executor.executor.dealing import Deal
from gpu_executor.executor.jobs import Job
from gpu_executor.executor.rates import Rates
from gpu_executor.executor.shared_jobs import SharedJob

MOST_GATHERED = 64
"""Calls that are taken at once; more would keep other devices, and the first results, waiting."""


class JobQueue:
    """Devices are numbers here. A job that they can share stays in front until all of it is
    taken."""

    def __init__(self, rates: Rates, most_bytes: int | None) -> None:
        self._rates, self.most_bytes = rates, most_bytes
        self.jobs: deque[Job] = deque()
        self.outside: dict[Job, bool] = {}
        """Jobs that wait for room, the first one first, and whether somebody blocks for that."""
        self.nbytes = 0
        """Of what the jobs in line read."""
        self._calls = 0
        """Of all of them."""

    def has_room(self, job: Job) -> bool:
        """Whether it may come in now: one job at least may always wait, however large, and nobody
        passes those who wait outside."""
        if self.most_bytes is None:
            return True
        return not self.outside and self._fits(job)

    def append(self, job: Job) -> None:
        self.jobs.append(job)
        self.nbytes += job.nbytes
        self._calls += len(job.calls)

    def put_back(self, jobs: list[Job]) -> None:
        """To the front."""
        for job in jobs:
            self.append(job)
        self.jobs.rotate(len(jobs))

    def remove(self, index: int) -> Job:
        job = self.jobs[index]
        del self.jobs[index]
        self._gone(job)
        return job

    def drop(self, job: Job) -> None:
        """One that is in line."""
        self.jobs.remove(job)
        self._gone(job)

    def withdraw(self, job: Job) -> None:
        """One that was cancelled, if it is here; whoever waits for it is told."""
        if self.outside.pop(job, None) is None:
            if job not in self.jobs:
                return
            self.drop(job)
        job.begin()

    def admit(self) -> bool:
        """Let in those outside that fit, in their order. Whether there were any."""
        admitted = False
        while self.outside and self._fits(job := next(iter(self.outside))):
            if not self.jobs or self.jobs[-1] is not job:  # else Ctrl-C came between these two
                self.append(job)
            del self.outside[job]
            admitted = True
        return admitted

    def taken_of(self, job: Job, who: int) -> list[Job]:
        """Of one job alone, wherever it is, what a device is to run next, removed; nothing where
        others have it, or the rest is better left to them."""
        if job in self.outside:
            self.append(job)
            del self.outside[job]
        if job not in self.jobs:
            return []
        if isinstance(job, SharedJob) and self._is_dealt(job):
            return self._part(job, who)
        self.drop(job)
        return [job]

    def taken(self, who: int) -> list[Job]:
        """The same of whatever is first. Shared jobs that were cancelled are gone."""
        index = 0
        while index < len(self.jobs):
            job = self.jobs[index]
            if self._is_for_others(job, who):
                index += 1
                continue
            if not isinstance(job, SharedJob) or not self._is_dealt(job):
                return self._gathered(index, who)
            part = self._part(job, who)
            if part:
                return part
            if index < len(self.jobs) and self.jobs[index] is job:
                index += 1
        return []

    def _fits(self, job: Job) -> bool:
        if self.most_bytes is None or not self.jobs:
            return True
        return self.nbytes + job.nbytes <= self.most_bytes

    def _gone(self, job: Job) -> None:
        self.nbytes -= job.nbytes
        self._calls -= len(job.calls)
        if not self.jobs:
            self.nbytes = self._calls = 0  # whatever Ctrl-C left uncounted

    def _is_for_others(self, job: Job, who: int) -> bool:
        return who in job.lost_on and self._rates.is_able_beside(job.lost_on)

    def _is_dealt(self, job: SharedJob) -> bool:
        return job.deal is not None or (job.units > 1 and self._rates.able > 1)

    def _part(self, job: SharedJob, who: int) -> list[Job]:
        """A device's next part of a job that is dealt out; with the last one that is gone."""
        if not job.begin():
            self.drop(job)
            return []
        shares = self._rates.shares(job.kernel)
        if job.deal is None:
            job.deal = Deal(job.units, shares)
        units = job.deal.take(who, shares)
        if not job.deal.left:
            self.drop(job)
        return [job.part(units)] if units else []

    def _gathered(self, index: int, who: int) -> list[Job]:
        """Jobs of one kernel from a place in the line on.

        Of several devices each takes half of its share of what waits: the rest is for whoever is
        free first.
        """
        most, kernel, calls = MOST_GATHERED, self.jobs[index].kernel, 0
        if self._rates.able > 1:
            most = min(math.ceil(self._calls * self._rates.shares(kernel)[who] / 2), most)
        taken: list[Job] = []
        while index < len(self.jobs) and (job := self.jobs[index]).kernel is kernel:
            calls += len(job.calls)
            if taken and (calls > most or (isinstance(job, SharedJob) and self._is_dealt(job))):
                break
            if self._is_for_others(job, who):
                break
            taken.append(self.remove(index))
        return taken
