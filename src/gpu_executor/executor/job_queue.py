"""The jobs in line, in the order they came, and those that wait for room in it.

Not safe from several threads: the line that has it has a lock.

The line: jobs that wait for a device, in the order they came, no more than are allowed.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Sequence
from threading import get_ident
from time import monotonic

from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.executor.jobs import Job, SharedJob
from gpu_executor.executor.work_stealing import DeviceRates, WorkSplit
from gpu_executor.fork import raise_forked, register_fork_handler
from gpu_executor.settings import WhenFull

MOST_GATHERED = 64
"""Calls that are taken at once; more would keep other devices, and the first results, waiting."""


class PendingJobs:
    """Devices are numbers here. A job that they can share stays in front until all of it is
    taken."""

    def __init__(self, rates: DeviceRates, most_bytes: int | None) -> None:
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
        shares = self._rates.compute_shares(job.kernel)
        if job.deal is None:
            job.deal = WorkSplit(job.units, shares)
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
            most = min(math.ceil(self._calls * self._rates.compute_shares(kernel)[who] / 2), most)
        taken: list[Job] = []
        while index < len(self.jobs) and (job := self.jobs[index]).kernel is kernel:
            calls += len(job.calls)
            if taken and (calls > most or (isinstance(job, SharedJob) and self._is_dealt(job))):
                break
            if self._is_for_others(job, who):
                break
            taken.append(self.remove(index))
        return taken


class JobQueue:
    """Safe from several threads: some put jobs in, one for each device takes them out.

    Devices are numbers here. Over the limit jobs wait outside, and are let in as they came.
    """

    def __init__(
        self, rates: DeviceRates, most_bytes: int | None = None, when_full: WhenFull = "block"
    ) -> None:
        self._rates, self.when_full = rates, when_full
        self._queue = PendingJobs(rates, most_bytes)
        self._make_locks()
        self._takers: dict[int, int] = {}
        """Threads, and for which device they take."""
        self._at_work: dict[int, Sequence[Job]] = {}
        """What devices took and run, and may yet put back."""
        self._waiting_takers = 0
        """Threads among the takers that wait for a job of their own."""
        self._cancelled: deque[Job] = deque()
        """Jobs that may be here yet."""
        self._refused: set[Job] = set()
        """Jobs that were outside when the line was closed, and whose threads have not heard it."""
        self.closed = self.forked = False
        register_fork_handler(self._disown_after_fork)

    def _make_locks(self) -> None:
        # Reentrant: an executor may be collected, and so closed, by a thread that is in here.
        self._lock = threading.RLock()
        self._some = threading.Condition(self._lock)
        self._admitted = threading.Condition(self._lock)
        self.callbacks_lock = threading.RLock()
        """Guards the lists of callbacks of all futures whose jobs come here. Reentrant: a finalizer
        may cancel a future while this thread holds it."""

    def _disown_after_fork(self) -> None:
        """In a child of fork(), which has none of the threads that take jobs."""
        self._make_locks()
        self.closed = self.forked = True
        queue = self._queue
        taken = (job for jobs in self._at_work.values() for job in jobs)
        for job in [*queue.jobs, *queue.outside, *taken]:
            job.disown_after_fork()
        self._queue = PendingJobs(self._rates, queue.most_bytes)
        self._waiting_takers = 0
        for some in (self._at_work, self._cancelled, self._refused):
            some.clear()

    def check_open(self) -> None:
        """Raise where no more jobs are taken."""
        if self.forked:
            raise_forked()
        if self.closed:
            raise ClosedError("the executor is shut down; open another one")

    def __len__(self) -> int:
        return len(self._queue.jobs)

    @property
    def nbytes(self) -> int:
        """Of what the waiting jobs read."""
        return self._queue.nbytes

    def put(self, job: Job, *, limited: bool = True) -> None:
        """To the end. Where too many bytes wait already, it waits outside in its turn, and so does
        this thread; or it is refused. `limited=False` is for whoever waits for the job itself."""
        with self._lock:
            if self._queue.most_bytes is None or not limited:
                self._append(job)
                return
            if self._enter(job, blocks=True):
                return
            outside = self._queue.outside
            try:
                while job in outside:
                    self._admitted.wait()
            except BaseException:  # Ctrl-C: nobody will ask for its result
                job.future.cancel()
                raise
            finally:
                self._sweep()
            if job in self._refused:
                self._refused.discard(job)
                self.check_open()

    def put_later(self, job: Job) -> None:
        """The same, without this thread's waiting for room."""
        with self._lock:
            if self._queue.most_bytes is None:
                self._append(job)
            else:
                self._enter(job, blocks=False)

    def withdraw(self, job: Job) -> None:
        """It was cancelled: others may have its room. Without a limit there is nothing to do, and
        it is dropped when its turn comes."""
        if self._queue.most_bytes is None:
            return
        self._cancelled.append(job)
        # A finalizer may cancel it while this thread is inside a method of this class, whose
        # queue must not change under it: that method, or the next one, sweeps.
        if not self._is_locked_here():
            with self._lock:
                self._sweep()

    def put_back(self, jobs: list[Job]) -> None:
        """To the front, jobs that were taken: whoever took them cannot run them."""
        with self._lock:
            self._queue.put_back(jobs)
            self._some.notify_all()

    def take(self, who: int = 0) -> list[Job]:
        """What waits of the first one's kernel, as far as a device's share of the work goes; waits
        until there is something, and gives nothing when the line is closed and all is run.

        Jobs that were cancelled meanwhile are gone.
        """
        while True:
            with self._lock:
                self._takers[get_ident()] = who
                while who in self._at_work or not (taken := self._taken(who)):
                    if self.closed and not self._queue.jobs and not self._at_work:
                        return []
                    self._some.wait()
                self._at_work[who] = taken
                if self._queue.jobs:
                    self._wake()
            running = [job for job in taken if job.begin()]
            if running:
                return running
            self.rest(who)

    def take_of(self, job: Job, who: int, end: float | None) -> list[Job]:
        """That job, or a part of it, for a thread that takes jobs and waits for this one; waits as
        long as others have all of it, and gives nothing when it has its answer or at the end of
        the time."""
        with self._lock:
            self._waiting_takers += 1
            try:
                while not job.future.done() and (end is None or monotonic() < end):
                    if who not in self._at_work:
                        taken = self._queue.taken_of(job, who)
                        self._sweep()
                        if taken and taken[0].begin():
                            self._at_work[who] = taken
                            return taken
                    if not job.future.done():
                        self._some.wait(None if end is None else max(end - monotonic(), 0))
                return []
            finally:
                self._waiting_takers -= 1

    def take_own(self, job: Job) -> bool:
        """Take a job that is first in line for the first device, if that is free: whoever waits for
        it runs it, and says `rest` then."""
        with self._lock:
            jobs = self._queue.jobs
            if 0 in self._at_work or not jobs or jobs[0] is not job:
                return False
            self._at_work[0] = (job,)  # first: Ctrl-C may come behind each of these
            self._queue.remove(0)
            self._let_in()
            if not job.begin():
                self._rest(0)
                return False
            return True

    def take_back(self, job: Job) -> bool:
        """Whoever took its own job was interrupted: the device is free for others. Whether nobody
        has the job now."""
        with self._lock:
            if self._at_work.get(0) == (job,):  # a worker's are a list
                self._rest(0)
            jobs = self._queue.jobs
            if jobs:  # it may have come in `rest`, before others were told
                self._wake()
            return not any(job in some for some in (jobs, *self._at_work.values()))

    def rest(self, who: int) -> None:
        """A device has run what was taken for it."""
        with self._lock:
            self._rest(who)
            if self._queue.jobs:
                self._wake()

    def leave(self, who: int) -> None:
        """A device takes no more."""
        with self._lock:
            self._takers.pop(get_ident(), None)
            self._rest(who)
            self._some.notify_all()  # what was better left to it is for others now

    def answered(self) -> None:
        """A job has its answer: a thread that takes jobs may wait for it."""
        if self._waiting_takers:
            with self._lock:
                self._some.notify_all()

    def close(self, *, cancel: bool = False) -> None:
        """Take no more jobs; those that wait are still given out, unless they are cancelled. Who
        blocks for room is refused."""
        dropped: list[Job] = []
        with self._lock:
            self.closed = True
            queue = self._queue
            for job, blocks in queue.outside.items():
                if blocks:
                    self._refused.add(job)
                else:
                    queue.append(job)
            queue.outside.clear()
            if cancel:
                dropped = [job for job in queue.jobs if not job.future.running()]
                for job in dropped:
                    queue.drop(job)
            self._some.notify_all()
            self._admitted.notify_all()
        with contextlib.ExitStack() as each:  # all of them, whatever callbacks raise
            for job in reversed(dropped):
                each.callback(job.future.set_running_or_notify_cancel)
                each.callback(job.future.cancel)

    def taker(self) -> int | None:
        """The device for which this thread takes jobs, if it does."""
        return self._takers.get(get_ident())

    def _is_locked_here(self) -> bool:
        """Whether this thread holds the lock. `notify` is documented to raise where it does not;
        notifying no thread has no other effect."""
        try:
            self._some.notify(0)
        except RuntimeError:
            return False
        return True

    def _append(self, job: Job) -> None:
        if self.closed:
            self.check_open()
        self._queue.append(job)
        if len(self._at_work) < (self._rates.able or 1):  # else who is done first takes it
            self._wake()

    def _enter(self, job: Job, *, blocks: bool) -> bool:
        """Whether it is in line now, or outside. A thread that takes jobs is let in always: nobody
        would make room for it."""
        self.check_open()
        queue = self._queue
        if self._cancelled:
            self._sweep()
        if queue.has_room(job) or self.taker() is not None:
            self._append(job)
            return True
        if self.when_full == "raise":
            raise QueueFullError(
                f"{queue.nbytes:,} bytes wait for a device, and with {job.nbytes:,} more it would "
                f"be over the {queue.most_bytes:,} that may"
            )
        queue.outside[job] = blocks
        return False

    def _sweep(self) -> bool:
        """Those that were cancelled make room for those outside. Whether some came in."""
        while self._cancelled:
            self._queue.withdraw(self._cancelled.popleft())
        return self._let_in()

    def _let_in(self) -> bool:
        """Those outside for whom there is room now. Whether there were any."""
        if not self._queue.outside or not self._queue.admit():
            return False
        self._admitted.notify_all()
        self._wake()
        return True

    def _taken(self, who: int) -> list[Job]:
        self._sweep()
        while True:
            taken = self._queue.taken(who)
            if not self._let_in() or taken:
                return taken

    def _wake(self) -> None:
        """Of several devices all, since a job may be for one and not for another."""
        self._some.notify(1 if self._rates.able < 2 else len(self._takers))

    def _rest(self, who: int) -> None:
        if who in self._at_work:
            del self._at_work[who]
            if self.closed:
                self._some.notify_all()  # who waits for what may be put back need not any more
