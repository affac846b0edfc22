"""Jobs: what was asked of an executor, until its future has the answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.errors import ForkedError
from gpu_executor.executor.future_internals import renew_lock
from gpu_executor.kernel import Kernel
from gpu_executor.telemetry.open_telemetry import current_context

Arrays = tuple[Array, ...]


@dataclass(slots=True, eq=False)
class Job:
    """Calls of one kernel under one future: a single one, or those of a batch."""

    kernel: Kernel
    calls: Sequence[Arrays]
    outs: Sequence[Any] | None
    """Where the results go; None: to new arrays."""
    single: bool
    """Whether the future has the one result, or a list of all."""
    future: Future[Any]
    nbytes: int
    """Of what the calls read."""
    submitted: float = field(default_factory=perf_counter)
    context: Any = field(default_factory=current_context)
    """What its span belongs to, where there are spans."""
    lost_on: frozenset[int] = frozenset()
    """Devices that were lost in it, however often they were opened again."""

    def places(self) -> Sequence[Any]:
        """Where the result of each call goes."""
        return [None] * len(self.calls) if self.outs is None else self.outs

    def begin(self) -> bool:
        """Whether it is to be run; from then on nobody can cancel it. Twice is fine."""
        try:
            return self.future.running() or self.future.set_running_or_notify_cancel()
        except RuntimeError:  # it has its answer, or was found to be cancelled before
            return False

    def wait(self) -> Any:
        """Its result. Who is interrupted does not want it any more, if it still waits in line."""
        try:
            return self.future.result()
        except BaseException:
            self.future.cancel()
            raise
        finally:
            del self  # the future's error leads here, and would lead to itself

    def answer(self, outcomes: Sequence[Any]) -> None:
        """Give the future what came of the calls: results, or the first error among them."""
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
                return
        self.future.set_result(outcomes[0] if self.single else list(outcomes))

    def leave_to_parent(self) -> None:
        """In a child of fork(): nobody will run it here. Whoever waits for it is told."""
        future = self.future
        renew_lock(future)
        if not future.done():
            said = "the job was given to an executor in the parent process, before fork()"
            future.set_exception(ForkedError(said))


def job_of(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> Job:
    """One call."""
    outs = None if out is None else [out]
    return Job(kernel, [arrays], outs, True, future, read_bytes(arrays))


def read_bytes(arrays: Arrays) -> int:
    """Of a call's inputs, as far as they are the host's."""
    total = 0
    for each in arrays:  # on the path of every call: a generator would take twice as long
        if isinstance(each, np.ndarray):
            total += each.nbytes
    return total
