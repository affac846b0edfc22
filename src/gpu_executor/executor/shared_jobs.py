"""Jobs that several devices share: each runs parts of them, the answer is put together here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gpu_executor.errors import ElementRangeError, GpuError, WrongResultError
from gpu_executor.executor.dealing import Deal
from gpu_executor.executor.jobs import Arrays, Job, read_bytes
from gpu_executor.kernel import Kernel


@dataclass(slots=True, eq=False)
class SharedJob(Job):
    """Made of units, which are dealt to devices. One device alone runs it like any other job."""

    deal: Deal | None = None
    """Who runs what, from the time that a device takes the first part."""
    outcomes: list[Any] = field(default_factory=list)
    """Of all calls, errors among them, when the future is done."""
    _came: dict[int, Sequence[Any]] = field(default_factory=dict)
    """Outcomes of parts by their first units."""
    _missing: int = -1
    """Units without an outcome; none has one yet."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def units(self) -> int:
        return len(self.calls)

    def part(self, units: range) -> Part:
        """Those units as a job of their own."""
        calls = self.calls[units.start : units.stop]
        outs = None if self.outs is None else self.outs[units.start : units.stop]
        return self._part(units, calls, outs)

    def answer(self, outcomes: Sequence[Any]) -> None:
        """The first error is the future's; all are kept."""
        self.outcomes = list(outcomes)
        Job.answer(self, outcomes)

    def take_outcomes(self, units: range, outcomes: Sequence[Any]) -> None:
        """A part is run; with the last one the job has its answer."""
        with self._lock:
            self._missing = (self.units if self._missing < 0 else self._missing) - len(units)
            self._came[units.start] = outcomes
            if self._missing:
                return
        self._put_together([self._came[first] for first in sorted(self._came)])

    def _part(self, units: range, calls: Sequence[Arrays], outs: Sequence[Any] | None) -> Part:
        nbytes = sum(map(read_bytes, calls))
        asked = self.submitted, self.context
        return Part(
            *(self.kernel, calls, outs, False, Future(), nbytes, *asked), whole=self, units=units
        )

    def _put_together(self, parts: list[Sequence[Any]]) -> None:
        self.answer([outcome for outcomes in parts for outcome in outcomes])


@dataclass(slots=True, eq=False)
class Part(Job):
    """Some units of a shared job, on one device."""

    whole: SharedJob = field(kw_only=True)
    units: range = field(kw_only=True)

    def answer(self, outcomes: Sequence[Any]) -> None:
        Job.answer(self, outcomes)
        self.whole.take_outcomes(self.units, outcomes)

    def leave_to_parent(self) -> None:
        self.whole.leave_to_parent()


def batch_of(
    kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any] | None, future: Future[Any]
) -> SharedJob:
    """Several calls, whose results come together; each is a unit."""
    nbytes = sum(map(read_bytes, calls))
    return SharedJob(kernel, calls, outs, False, future, nbytes)


def first_error(outcomes: Sequence[Any]) -> BaseException | None:
    """Of a batch's outcomes; it says what job it is of."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            return numbered(outcome, index)
    return None


def numbered(error: BaseException, index: int) -> BaseException:
    if isinstance(error, ElementRangeError):
        return ElementRangeError(error.kernel, error.argument, error.index, index)
    if isinstance(error, WrongResultError):
        return WrongResultError(error.kernel, error.output, error.index, error.where, index)
    if isinstance(error, GpuError):
        error.args = (f"job {index}: {error}",)
    else:
        error.add_note(f"it is the error of job {index}")
    return error
