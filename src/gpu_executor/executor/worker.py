"""A worker: the thread that takes jobs from the line and runs them on one device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from gpu_executor.executor.jobs import Job
from gpu_executor.executor.line import Line
from gpu_executor.executor.open_device import OpenDevice

Share = Callable[[OpenDevice], float]
"""How much of what waits a device takes at once."""


class Worker:
    """What waits when the device comes free is run together; a lone job waits for nothing."""

    def __init__(self, line: Line, device: OpenDevice, share: Share) -> None:
        self.device = device
        # It must not keep the executor alive, which ends it when nobody holds that any more.
        self._thread = threading.Thread(
            target=_work,
            args=(line, device, share),
            name=f"gpu-executor {device.seat}",
            daemon=True,
        )
        self._thread.start()

    def join(self) -> None:
        """Return when it has run all that waited, and the line is closed."""
        if self._thread is not threading.current_thread():
            self._thread.join()


def _work(line: Line, device: OpenDevice, share: Share) -> None:
    while jobs := line.take(share(device)):
        _run(device, jobs)
        del jobs  # their arrays are the callers' again
        if device.failed is not None and share(device) < 1:
            return  # others go on without it


def _run(device: OpenDevice, jobs: list[Job]) -> None:
    calls = [arrays for job in jobs for arrays in job.calls]
    outs = [out for job in jobs for out in (job.outs or [None] * len(job.calls))]
    begun = perf_counter()
    try:
        outcomes = device.run_calls(jobs[0].kernel, calls, outs)
    except BaseException as error:  # whatever it is, the futures are not left alone with it
        outcomes = [error] * len(calls)
    journal = device.journal
    ended = journal.ran_together(jobs, begun)
    first = 0
    for job in jobs:
        journal.job_seconds.observe(ended - job.submitted)
        job.answer(outcomes[first : first + len(job.calls)])
        first += len(job.calls)
    journal.answered(jobs, ended)
