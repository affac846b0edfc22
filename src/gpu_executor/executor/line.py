"""The line: jobs that wait for a device, in the order they came, no more than are allowed."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Sequence
from threading import get_ident

from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.executor.dealing import Deal
from gpu_executor.executor.jobs import Job
from gpu_executor.executor.rates import Rates
from gpu_executor.executor.shared_jobs import SharedJob
from gpu_executor.forking import refuse, tell_in_child
from gpu_executor.settings import WhenFull

MOST_GATHERED = 64
"""Calls that are taken at once; more would keep other devices, and the first results, waiting."""


class Line:
    """Safe from several threads: some put jobs in, one for each device takes them out.

    Devices are numbers here. A job that they can share stays in front until all of it is taken.
    """

    def __init__(
        self, rates: Rates, most_bytes: int | None = None, when_full: WhenFull = "block"
    ) -> None:
        self._rates, self._most_bytes, self.when_full = rates, most_bytes, when_full
        self._jobs: deque[Job] = deque()
        self._calls = 0
        """Of all waiting jobs."""
        self._make_locks()
        self._takers: set[int] = set()
        """Threads."""
        self._at_work: dict[int, Sequence[Job]] = {}
        """What devices took and run, and may yet put back."""
        self.closed = self.forked = False
        self.nbytes = 0
        """Of what the waiting jobs read."""
        tell_in_child(self._leave_to_parent)

    def _make_locks(self) -> None:
        # Reentrant: an executor may be collected, and so closed, by a thread that is in here.
        self._lock = threading.RLock()
        self._some = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)

    def _leave_to_parent(self) -> None:
        """In a child of fork(), which has none of the threads that take jobs."""
        self._make_locks()
        self.closed = self.forked = True
        for job in [*self._jobs, *(job for jobs in self._at_work.values() for job in jobs)]:
            job.leave_to_parent()
        self._jobs.clear()
        self._at_work.clear()

    def check_open(self) -> None:
        """Raise where no more jobs are taken."""
        if self.forked:
            refuse()
        if self.closed:
            raise ClosedError("the executor is shut down; open another one")

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job, *, wait: bool = True) -> None:
        """To the end; where too many bytes wait already, it waits too or is refused.

        A thread that takes jobs is let in always: nobody would make room for it.
        """
        with self._lock:
            while not self.closed and not self._fits(job):
                if self.when_full == "raise" or not wait:
                    raise QueueFullError(
                        f"{self.nbytes:,} bytes wait for a device, and with {job.nbytes:,} more it "
                        f"would be over the {self._most_bytes:,} that may"
                    )
                self._room.wait()
            self.check_open()
            self._jobs.append(job)
            self._count(job, 1)
            if len(self._at_work) < max(self._rates.able, 1):  # else who is done first takes it
                self._wake()

    def put_back(self, jobs: list[Job]) -> None:
        """To the front, jobs that were taken: whoever took them cannot run them."""
        with self._lock:
            self._jobs.extendleft(reversed(jobs))
            for job in jobs:
                self._count(job, 1)
            self._some.notify_all()

    def take(self, who: int = 0) -> list[Job]:
        """What waits of the first one's kernel, as far as a device's share of the work goes; waits
        until there is something, and gives nothing when the line is closed and all is run.

        Jobs that were cancelled meanwhile are gone.
        """
        while True:
            with self._lock:
                self._takers.add(get_ident())
                while who in self._at_work or not (taken := self._taken(who)):
                    if self.closed and not self._jobs and not self._at_work:
                        return []
                    self._some.wait()
                self._at_work[who] = taken
                if self._most_bytes is not None:
                    self._room.notify_all()
                if self._jobs:
                    self._wake()
            running = [job for job in taken if job.begin()]
            if running:
                return running
            self.rest(who)

    def take_own(self, job: Job) -> bool:
        """Take a job that is first in line for the first device, if that is free: whoever waits for
        it runs it, and says `rest` then."""
        with self._lock:
            if 0 in self._at_work or not self._jobs or self._jobs[0] is not job:
                return False
            self._at_work[0] = (job,)  # first: Ctrl-C may come behind each of these
            self._remove(0)
            if not job.begin():
                self._rest(0)
                return False
            if self._most_bytes is not None:
                self._room.notify_all()
            return True

    def take_back(self, job: Job) -> bool:
        """Whoever took its own job was interrupted: the device is free for others. Whether nobody
        has the job now."""
        with self._lock:
            if self._at_work.get(0) == (job,):  # a worker's are a list
                self._rest(0)
            if self._jobs:  # it may have come in `rest`, before others were told
                self._wake()
            return not any(job in jobs for jobs in (self._jobs, *self._at_work.values()))

    def rest(self, who: int) -> None:
        """A device has run what was taken for it."""
        with self._lock:
            self._rest(who)
            if self._jobs:
                self._wake()

    def leave(self, who: int) -> None:
        """A device takes no more."""
        with self._lock:
            self._takers.discard(get_ident())
            self._rest(who)
            self._some.notify_all()  # what was better left to it is for others now

    def close(self, *, cancel: bool = False) -> None:
        """Take no more jobs; those that wait are still given out, unless they are cancelled."""
        dropped: list[Job] = []
        with self._lock:
            self.closed = True
            if cancel:
                dropped = [job for job in self._jobs if not job.future.running()]
                for job in dropped:
                    self._jobs.remove(job)
                    self._count(job, -1)
            self._some.notify_all()
            self._room.notify_all()
        with contextlib.ExitStack() as each:  # all of them, whatever callbacks raise
            for job in reversed(dropped):
                each.callback(job.future.set_running_or_notify_cancel)
                each.callback(job.future.cancel)

    def is_taker(self) -> bool:
        """Whether this thread is one that takes jobs."""
        return get_ident() in self._takers

    def _fits(self, job: Job) -> bool:
        """One job at least may always wait, however large."""
        if self._most_bytes is None or not self._jobs or self.is_taker():
            return True
        return self.nbytes + job.nbytes <= self._most_bytes

    def _count(self, job: Job, sign: int) -> None:
        self.nbytes += sign * job.nbytes
        self._calls += sign * len(job.calls)

    def _wake(self) -> None:
        """Of several devices all, since a job may be for one and not for another."""
        self._some.notify(1 if self._rates.able < 2 else len(self._takers))

    def _rest(self, who: int) -> None:
        if who in self._at_work:
            del self._at_work[who]
            if self.closed:
                self._some.notify_all()  # who waits for what may be put back need not any more

    def _taken(self, who: int) -> list[Job]:
        index = 0
        while index < len(self._jobs):
            job = self._jobs[index]
            if not isinstance(job, SharedJob) or not self._is_dealt(job):
                return self._gathered(index, who)
            if not job.begin():
                self._remove(index)
                continue
            units = self._dealt(job, who)
            if job.deal is not None and not job.deal.left:
                self._remove(index)
            if units:
                return [job.part(units)]
            index += 1  # the rest of it is better left to others
        return []

    def _is_dealt(self, job: SharedJob) -> bool:
        return job.deal is not None or (job.units > 1 and self._rates.able > 1)

    def _dealt(self, job: SharedJob, who: int) -> range:
        shares = self._rates.shares(job.kernel)
        if job.deal is None:
            job.deal = Deal(job.units, shares)
        return job.deal.take(who, shares)

    def _gathered(self, index: int, who: int) -> list[Job]:
        """Jobs of one kernel from a place in the line on.

        Of several devices each takes half of its share of what waits: the rest is for whoever is
        free first.
        """
        most, kernel, calls = MOST_GATHERED, self._jobs[index].kernel, 0
        if self._rates.able > 1:
            most = min(math.ceil(self._calls * self._rates.shares(kernel)[who] / 2), most)
        taken: list[Job] = []
        while index < len(self._jobs) and (job := self._jobs[index]).kernel is kernel:
            calls += len(job.calls)
            if taken and (calls > most or (isinstance(job, SharedJob) and self._is_dealt(job))):
                break
            taken.append(self._remove(index))
        return taken

    def _remove(self, index: int) -> Job:
        job = self._jobs[index]
        del self._jobs[index]
        self._count(job, -1)
        return job
