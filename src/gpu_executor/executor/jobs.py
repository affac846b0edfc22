"""Jobs: what was asked of an executor, until its future has the answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernel import Kernel

Arrays = tuple[Array, ...]


@dataclass(slots=True, eq=False)
class Job:
    """Calls of one kernel under one future: a single one, or several of a `map`."""

    kernel: Kernel
    calls: Sequence[Arrays]
    outs: Sequence[Any] | None
    """Where the results go; None: to new arrays."""
    single: bool
    """Whether the future has the one result, or a list of all."""
    future: Future[Any]
    nbytes: int
    """Of what the calls read."""

    def answer(self, outcomes: Sequence[Any]) -> None:
        """Give the future what came of the calls: results, or the first error among them."""
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
                return
        self.future.set_result(outcomes[0] if self.single else list(outcomes))


def job_of(kernel: Kernel, arrays: Arrays, out: Any) -> Job:
    """One call."""
    outs = None if out is None else [out]
    return Job(kernel, [arrays], outs, True, Future(), _nbytes(arrays))


def batch_of(kernel: Kernel, calls: Sequence[Arrays]) -> Job:
    """Several, whose results come together."""
    nbytes = sum(_nbytes(arrays) for arrays in calls)
    return Job(kernel, calls, None, False, Future(), nbytes)


def _nbytes(arrays: Arrays) -> int:
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))
