"""The line: jobs that wait for a device, in the order they came, no more than are allowed."""

from __future__ import annotations

import threading
from collections import deque
from typing import Literal

from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.executor.jobs import Job

MOST_GATHERED = 64
"""Calls that are taken at once; more would keep other devices, and the first results, waiting."""
WhenFull = Literal["block", "raise"]


class Line:
    """Safe from several threads: some put jobs in, one for each device takes them out."""

    def __init__(self, most_bytes: int | None = None, when_full: WhenFull = "block") -> None:
        self._most_bytes, self._when_full = most_bytes, when_full
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._some = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closed = False
        self.nbytes = 0
        """Of what the waiting jobs read."""

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """To the end; where too many bytes wait already, it waits too or is refused."""
        with self._lock:
            while not self._closed and not self._fits(job):
                if self._when_full == "raise":
                    raise QueueFullError(
                        f"{self.nbytes:,} bytes wait for a device, and with {job.nbytes:,} more it "
                        f"would be over the {self._most_bytes:,} that may"
                    )
                self._room.wait()
            if self._closed:
                raise ClosedError("the executor is shut down; open another one")
            self._jobs.append(job)
            self.nbytes += job.nbytes
            self._some.notify()

    def put_back(self, jobs: list[Job]) -> None:
        """To the front, jobs that were taken: whoever took them cannot run them."""
        with self._lock:
            self._jobs.extendleft(reversed(jobs))
            self.nbytes += sum(job.nbytes for job in jobs)
            self._some.notify()

    def take(self, share: float = 1.0) -> list[Job]:
        """What waits of the first one's kernel, as far as a device's share of the work goes; waits
        until there is something, and gives nothing when the line is closed and empty.

        Jobs that were cancelled meanwhile are gone.
        """
        while True:
            with self._lock:
                while not self._jobs and not self._closed:
                    self._some.wait()
                taken = self._gathered(share)
                if taken:
                    self._room.notify_all()
                    if self._jobs:
                        self._some.notify()
                elif self._closed:
                    return []
            running = [job for job in taken if job.future.set_running_or_notify_cancel()]
            if running:
                return running

    def close(self, *, cancel: bool = False) -> None:
        """Take no more jobs; those that wait are still given out, unless they are cancelled."""
        with self._lock:
            self._closed = True
            dropped = list(self._jobs) if cancel else []
            if cancel:
                self._jobs.clear()
                self.nbytes = 0
            self._some.notify_all()
            self._room.notify_all()
        for job in dropped:
            job.future.cancel()
            job.future.set_running_or_notify_cancel()

    def _fits(self, job: Job) -> bool:
        """One job at least may always wait, however large."""
        if self._most_bytes is None or not self._jobs:
            return True
        return self.nbytes + job.nbytes <= self._most_bytes

    def _gathered(self, share: float) -> list[Job]:
        if not self._jobs:
            return []
        kernel, calls = self._jobs[0].kernel, 0
        waiting = sum(len(job.calls) for job in self._jobs)
        most = min(max(round(waiting * share), 1), MOST_GATHERED)
        taken: list[Job] = []
        while self._jobs and self._jobs[0].kernel is kernel:
            calls += len(self._jobs[0].calls)
            if taken and calls > most:
                break
            job = self._jobs.popleft()
            self.nbytes -= job.nbytes
            taken.append(job)
        return taken
