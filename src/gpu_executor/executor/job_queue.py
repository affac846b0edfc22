"""The job queue of an executor: FIFO, with an optional limit of the queued bytes (back-pressure).

`PendingJobs` holds the jobs and is not thread-safe. `JobQueue` adds the lock: callers put jobs in,
and one worker thread for each device takes jobs out. Devices are referred to by their index.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Sequence
from threading import get_ident
from time import monotonic

from gpu_executor.common.fork import raise_forked, register_fork_handler
from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.executor.jobs import Job, SharedJob
from gpu_executor.executor.work_stealing import DeviceRates, WorkSplit
from gpu_executor.settings import WhenFull

MAX_BATCH_CALLS = 64
"""Calls that a device takes at once. More would delay the first results, and keep work from other
devices."""


class PendingJobs:
    """The queued jobs, and the jobs that wait for room in the queue. Not thread-safe.

    A shared job that is split among devices stays queued until all of its units are taken.
    """

    def __init__(self, rates: DeviceRates, max_bytes: int | None) -> None:
        self._rates, self.max_bytes = rates, max_bytes
        self.jobs: deque[Job] = deque()
        self.overflow: dict[Job, bool] = {}
        """Jobs over the byte limit, in order, and whether a thread is blocked until its job is
        admitted."""
        self.nbytes = 0
        """Input bytes of the queued jobs."""
        self._calls = 0
        """Calls of the queued jobs."""

    def has_room(self, job: Job) -> bool:
        """Whether a job may be queued now. A job never overtakes the overflow."""
        if self.max_bytes is None:
            return True
        return not self.overflow and self._fits(job)

    def append(self, job: Job) -> None:
        self.jobs.append(job)
        self.nbytes += job.nbytes
        self._calls += len(job.calls)

    def put_back(self, jobs: list[Job]) -> None:
        """Put jobs at the front."""
        for job in jobs:
            self.append(job)
        self.jobs.rotate(len(jobs))

    def pop_first(self) -> None:
        """Remove the first job."""
        self._subtract(self.jobs.popleft())

    def pop(self, index: int) -> Job:
        """Remove the job at an index, and return it."""
        job = self.jobs[index]
        del self.jobs[index]
        self._subtract(job)
        return job

    def remove(self, job: Job) -> None:
        """Remove a queued job."""
        self.jobs.remove(job)
        self._subtract(job)

    def discard_cancelled(self, job: Job) -> None:
        """Remove a cancelled job, if it is here, and notify its future."""
        if self.overflow.pop(job, None) is None:
            if job not in self.jobs:
                return
            self.remove(job)
        job.begin()

    def admit(self) -> bool:
        """Queue the jobs of the overflow that fit, in order. Returns whether there were any."""
        admitted = False
        while self.overflow and self._fits(job := next(iter(self.overflow))):
            # Ctrl-C may have interrupted an earlier call between the two statements.
            if not self.jobs or self.jobs[-1] is not job:
                self.append(job)
            del self.overflow[job]
            admitted = True
        return admitted

    def take_from(self, job: Job, device_index: int, *, if_slower: bool) -> list[Job]:
        """Take one particular job, or a device's next share of it. Empty if the job is not pending,
        or if its rest is left to faster devices; `if_slower` leaves nothing to them."""
        if job in self.overflow:
            self.append(job)
            del self.overflow[job]
        if job not in self.jobs:
            return []
        if isinstance(job, SharedJob) and self._is_split(job):
            return self._take_share(job, device_index, if_slower=if_slower)
        self.remove(job)
        return [job]

    def take_next(self, device_index: int) -> list[Job]:
        """Take the next jobs of one kernel for a device, or its next share of a shared job. Removes
        shared jobs that were cancelled."""
        index = 0
        while index < len(self.jobs):
            job = self.jobs[index]
            if self._is_left_to_others(job, device_index):
                index += 1
                continue
            if not isinstance(job, SharedJob) or not self._is_split(job):
                return self._take_batch(index, device_index)
            share = self._take_share(job, device_index)
            if share:
                return share
            if index < len(self.jobs) and self.jobs[index] is job:
                index += 1
        return []

    def _fits(self, job: Job) -> bool:
        """Whether a job is within the byte limit. A single job always fits, whatever its size."""
        if self.max_bytes is None or not self.jobs:
            return True
        return self.nbytes + job.nbytes <= self.max_bytes

    def _subtract(self, job: Job) -> None:
        self.nbytes -= job.nbytes
        self._calls -= len(job.calls)
        if not self.jobs:
            self.nbytes = self._calls = 0  # corrects the counts after a Ctrl-C between statements

    def _is_left_to_others(self, job: Job, device_index: int) -> bool:
        """Whether a device was lost in this job, and another device can still run the job."""
        return device_index in job.lost_on and self._rates.has_usable_besides(job.lost_on)

    def _is_split(self, job: SharedJob) -> bool:
        return job.split is not None or (job.units > 1 and self._rates.usable > 1)

    def _take_share(
        self, job: SharedJob, device_index: int, *, if_slower: bool = False
    ) -> list[Job]:
        """Take a device's next share of a shared job. The last share removes the job."""
        if not job.begin():
            self.remove(job)
            return []
        shares = self._rates.compute_shares(job.kernel)
        if job.split is None:
            job.split = WorkSplit(job.units, shares)
        units = job.split.take(device_index, [1.0] * len(shares) if if_slower else shares)
        if not job.split.remaining:
            self.remove(job)
        return [job.make_share(units)] if units else []

    def _take_batch(self, index: int, device_index: int) -> list[Job]:
        """Take consecutive jobs of one kernel, beginning with the job at an index.

        With several devices, each takes half of its share of the queued calls. The other half is
        left to the device that is idle first.
        """
        most, kernel, calls = MAX_BATCH_CALLS, self.jobs[index].kernel, 0
        if self._rates.usable > 1:
            share = self._rates.compute_shares(kernel)[device_index]
            most = min(math.ceil(self._calls * share / 2), most)
        taken: list[Job] = []
        while index < len(self.jobs) and (job := self.jobs[index]).kernel is kernel:
            calls += len(job.calls)
            if taken and (calls > most or (isinstance(job, SharedJob) and self._is_split(job))):
                break
            if self._is_left_to_others(job, device_index) or (taken and job.runs_alone):
                break
            taken.append(self.pop(index))
            if job.runs_alone:
                break
        return taken


class JobQueue:
    """The thread-safe job queue of an executor.

    Over the byte limit, jobs wait in the overflow and are admitted in the order they came.
    """

    def __init__(
        self, rates: DeviceRates, max_bytes: int | None = None, when_full: WhenFull = "block"
    ) -> None:
        self._rates, self.when_full = rates, when_full
        self._pending = PendingJobs(rates, max_bytes)
        self._make_locks()
        self._caller: int | None = None
        """The thread that runs a job on device 0 because it waits for that job (caller-runs)."""
        self._worker_devices: dict[int, int] = {}
        """The device index of each worker thread, by thread identifier."""
        self._running: dict[int, Sequence[Job]] = {}
        """The jobs that each device runs now, and may still put back."""
        self._waiting_workers = 0
        """Worker threads that wait for the result of a job in a callback."""
        self._cancelled: deque[Job] = deque()
        """Cancelled jobs that have not been removed yet."""
        self._refused: set[Job] = set()
        """Jobs that were in the overflow when the queue was closed, until their blocked threads
        have raised the error."""
        self.closed = self.forked = False
        register_fork_handler(self._disown_after_fork)

    def _make_locks(self) -> None:
        # Reentrant: garbage collection may close an executor in a thread that holds the lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        """Notified when jobs are queued, done or put back, or when the queue is closed."""
        self._admitted = threading.Condition(self._lock)
        """Notified when jobs of the overflow were queued or refused."""
        self.callbacks_lock = threading.RLock()
        """Guards the callback lists of all futures of this queue. Reentrant: a finalizer may cancel
        a future in a thread that holds the lock."""

    def _disown_after_fork(self) -> None:
        """Fail all jobs in a child of fork(), which has no worker threads."""
        self._make_locks()
        self.closed = self.forked = True
        pending = self._pending
        running = (job for jobs in self._running.values() for job in jobs)
        for job in [*pending.jobs, *pending.overflow, *running]:
            job.disown_after_fork()
        self._pending = PendingJobs(self._rates, pending.max_bytes)
        self._waiting_workers = 0
        for jobs in (self._running, self._cancelled, self._refused):
            jobs.clear()

    def check_open(self) -> None:
        """Raise if the executor is shut down, or was opened before fork()."""
        if self.forked:
            raise_forked()
        if self.closed:
            raise ClosedError("the executor is shut down; open another one")

    def __len__(self) -> int:
        return len(self._pending.jobs)

    @property
    def nbytes(self) -> int:
        """Input bytes of the queued jobs."""
        return self._pending.nbytes

    def put(self, job: Job, *, limited: bool = True) -> None:
        """Append a job. Over the byte limit, block until it is admitted or raise `QueueFullError`,
        as `when_full` says. `limited=False` is for callers that wait for the job's result."""
        with self._lock:
            if self._pending.max_bytes is None or not limited:
                self._append(job)
                return
            if self._put_or_overflow(job, blocks=True):
                return
            overflow = self._pending.overflow
            try:
                while job in overflow:
                    self._admitted.wait()
            except BaseException:  # Ctrl-C: the caller does not get the future
                job.future.cancel()
                raise
            finally:
                self._discard_cancelled()
            if job in self._refused:
                self._refused.discard(job)
                self.check_open()

    def put_nonblocking(self, job: Job) -> None:
        """Append a job. Over the byte limit, leave it in the overflow without blocking the thread,
        or raise `QueueFullError`."""
        with self._lock:
            if self._pending.max_bytes is None:
                self._append(job)
            else:
                self._put_or_overflow(job, blocks=False)

    def discard_cancelled(self, job: Job) -> None:
        """Free the room of a cancelled job. Without a byte limit nothing is done here: the job is
        dropped when a worker takes it."""
        if self._pending.max_bytes is None:
            return
        self._cancelled.append(job)
        # A finalizer may cancel the future while this thread is inside a method of this class. The
        # pending jobs must not change under that method: it, or the next one, removes the job.
        if not self._holds_lock():
            with self._lock:
                self._discard_cancelled()

    def put_back(self, jobs: list[Job]) -> None:
        """Put jobs that a device took, and cannot run, at the front of the queue."""
        with self._lock:
            self._pending.put_back(jobs)
            self._changed.notify_all()

    def take(self, device_index: int = 0) -> list[Job]:
        """Take the next jobs of one kernel, up to a device's share. Blocks while there are none;
        empty when the queue is closed and all jobs are done. Skips cancelled jobs."""
        while True:
            with self._lock:
                self._worker_devices[get_ident()] = device_index
                while device_index in self._running or not (taken := self._take_next(device_index)):
                    if self.closed and not self._pending.jobs and not self._running:
                        return []
                    self._changed.wait()
                self._running[device_index] = taken
                if self._pending.jobs:
                    self._notify_workers()
            started = [job for job in taken if job.begin()]
            if started:
                return started
            self.mark_idle(device_index)

    def take_awaited(self, job: Job, device_index: int, deadline: float | None) -> list[Job]:
        """Take a job, or a share of it, in the worker thread that waits for that job in a callback.

        Blocks while other devices run all of the job. Empty when the job is done, or at the
        deadline (of `time.monotonic`).
        """
        with self._lock:
            self._waiting_workers += 1
            if self._waiting_workers == len(self._worker_devices):
                self._changed.notify_all()  # nobody runs what was left to faster devices
            try:
                while not job.future.done() and (deadline is None or monotonic() < deadline):
                    if device_index not in self._running:
                        all_wait = self._waiting_workers == len(self._worker_devices)
                        taken = self._pending.take_from(job, device_index, if_slower=all_wait)
                        self._discard_cancelled()
                        if taken and taken[0].begin():
                            self._running[device_index] = taken
                            return taken
                    if not job.future.done():
                        timeout = None if deadline is None else max(deadline - monotonic(), 0)
                        self._changed.wait(timeout)
                return []
            finally:
                self._waiting_workers -= 1

    def take_in_caller(self, job: Job) -> bool:
        """Take a job in the thread that waits for it (caller-runs), if the job is the first in the
        queue and device 0 is idle. The caller then runs it and calls `mark_idle`."""
        with self._lock:
            jobs = self._pending.jobs
            if 0 in self._running or not jobs or jobs[0] is not job:
                return False
            self._running[0] = (job,)  # first: Ctrl-C may come after each of these statements
            self._caller = get_ident()
            self._pending.pop_first()
            if self._pending.overflow:
                self._admit()
            if not job.begin():
                self._mark_idle(0)
                return False
            return True

    def release_interrupted(self, job: Job) -> bool:
        """Free device 0 after Ctrl-C in `take_in_caller` or in the job. Returns whether the job is
        neither queued nor running now."""
        with self._lock:
            if self._running.get(0) == (job,):  # a worker's entry is a list
                self._mark_idle(0)
            jobs = self._pending.jobs
            if jobs:  # Ctrl-C may have come in `mark_idle`, before workers were notified
                self._notify_workers()
            return not any(job in some for some in (jobs, *self._running.values()))

    def mark_idle(self, device_index: int) -> None:
        """Note that a device has run what was taken for it."""
        with self._lock:
            self._mark_idle(device_index)
            if self._pending.jobs:
                self._notify_workers()

    def remove_worker(self, device_index: int) -> None:
        """Note that the worker of a device, this thread, takes no more jobs."""
        with self._lock:
            self._worker_devices.pop(get_ident(), None)
            self._mark_idle(device_index)
            self._changed.notify_all()  # others may now take what was left to this device

    def notify_done(self) -> None:
        """Wake the worker threads that wait for a job's result: a job is done."""
        if self._waiting_workers:
            with self._lock:
                self._changed.notify_all()

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more jobs. Queued jobs still run, unless they are cancelled. Threads that are
        blocked by the byte limit raise `ClosedError`."""
        dropped: list[Job] = []
        with self._lock:
            self.closed = True
            pending = self._pending
            for job, blocks in pending.overflow.items():
                if blocks:
                    self._refused.add(job)
                else:
                    pending.append(job)
            pending.overflow.clear()
            if cancel:
                dropped = [job for job in pending.jobs if not job.future.running()]
                for job in dropped:
                    pending.remove(job)
            self._changed.notify_all()
            self._admitted.notify_all()
        with contextlib.ExitStack() as stack:  # cancels every job, even if a callback raises
            for job in reversed(dropped):
                stack.callback(job.future.set_running_or_notify_cancel)
                stack.callback(job.future.cancel)

    def is_running_here(self) -> bool:
        """Whether this thread runs jobs: as a worker, or because it waits for one."""
        thread = get_ident()
        return thread in self._worker_devices or thread == self._caller

    def get_worker_device(self) -> int | None:
        """The device index of this thread if it is a worker thread, else None."""
        return self._worker_devices.get(get_ident())

    def _holds_lock(self) -> bool:
        """Whether this thread holds the lock. `notify` is documented to raise where it does not;
        notifying no thread has no other effect."""
        try:
            self._changed.notify(0)
        except RuntimeError:
            return False
        return True

    def _append(self, job: Job) -> None:
        if self.closed:
            self.check_open()
        self._pending.append(job)
        # While all devices are busy, the first that is idle takes the job without a notification.
        if len(self._running) < (self._rates.usable or 1):
            self._notify_workers()

    def _put_or_overflow(self, job: Job, *, blocks: bool) -> bool:
        """Queue a job, or put it into the overflow. Returns whether it is queued. A worker thread's
        job is always queued: a blocked worker could not make room."""
        self.check_open()
        pending = self._pending
        if self._cancelled:
            self._discard_cancelled()
        if pending.has_room(job) or self.get_worker_device() is not None:
            self._append(job)
            return True
        if self.when_full == "raise":
            raise QueueFullError(
                f"the job queue is full: {pending.nbytes:,} bytes are queued, and "
                f"{job.nbytes:,} more would exceed queued_bytes={pending.max_bytes:,}; wait for "
                "results first, or use when_full='block'"
            )
        pending.overflow[job] = blocks
        return False

    def _discard_cancelled(self) -> bool:
        """Remove cancelled jobs and admit others in their place. Returns whether any were
        admitted."""
        while self._cancelled:
            self._pending.discard_cancelled(self._cancelled.popleft())
        return self._admit()

    def _admit(self) -> bool:
        """Queue the jobs of the overflow that fit now. Returns whether there were any."""
        if not self._pending.overflow or not self._pending.admit():
            return False
        self._admitted.notify_all()
        self._notify_workers()
        return True

    def _take_next(self, device_index: int) -> list[Job]:
        self._discard_cancelled()
        while True:
            taken = self._pending.take_next(device_index)
            if not self._admit() or taken:
                return taken

    def _notify_workers(self) -> None:
        """Wake the only worker, or all of several: a job may be for one device and not another."""
        self._changed.notify(1 if self._rates.usable < 2 else len(self._worker_devices))

    def _mark_idle(self, device_index: int) -> None:
        if device_index in self._running:
            if device_index == 0:
                self._caller = None
            del self._running[device_index]
            if self.closed:
                # Workers that waited for jobs to be put back may return now.
                self._changed.notify_all()
