"""What callers give to an executor, checked as far as it does not depend on a device.

Errors that several futures get: each its own, since a traceback grows where one is raised, and
holds the arrays of the calls that it passed through.

Jobs: what was asked of an executor, until its future has the answer.

Jobs that several devices share: each runs parts of them, the answer is put together here.

Large calls cut along their elements, so that several devices can run one of them.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from gpu_executor.call import Array, Call, check
from gpu_executor.errors import (
    ArgumentTypeError,
    ElementRangeError,
    ForkedError,
    GpuError,
    WrongResultError,
)
from gpu_executor.executor.future_internals import renew_lock
from gpu_executor.executor.work_stealing import WorkSplit
from gpu_executor.kernel import Kernel
from gpu_executor.telemetry import load_exporter

get_current_context: Callable[[], Any] = load_exporter("span context")


def check_kernel(
    fn: Any, by: str = "a GpuExecutor", functions_by: str = "a ThreadPoolExecutor"
) -> Kernel:
    """What is to be run; a function is not."""
    if not isinstance(fn, Kernel):
        if not callable(fn):
            check(fn, ())  # which says what a kernel is: this is no function either
        name = getattr(fn, "__name__", type(fn).__name__)
        raise ArgumentTypeError(
            f"{by} runs kernels, and {name!r} is none; functions are for {functions_by}"
        )
    return fn


def take_out(options: dict[str, Any]) -> Any:
    """The only keyword that `submit` takes."""
    out = options.pop("out", None)
    if options:
        raise ArgumentTypeError(f"submit takes out=, not {', '.join(options)}")
    return out


def collect_calls(
    jobs: Iterable[Sequence[Any]], out: Sequence[Any] | None
) -> list[tuple[Any, ...]]:
    """The jobs of a batch, each a tuple of arrays."""
    calls: list[tuple[Any, ...]] = []
    for index, arrays in enumerate(jobs):
        if not isinstance(arrays, tuple | list):
            found = type(arrays).__name__
            raise ArgumentTypeError(f"job {index}: a job is a tuple of arrays, not a {found}")
        calls.append(tuple(arrays))
    if out is not None and len(out) != len(calls):
        raise ArgumentTypeError(f"out has {len(out)} entries for {len(calls)} jobs")
    return calls


def check_map_sizes(chunksize: int, buffersize: int | None) -> None:
    """How far a `map` may go ahead."""
    if chunksize < 1:
        raise ValueError(f"chunksize is {chunksize}; it is 1 at least")
    if buffersize is not None and buffersize < 1:
        raise ValueError(f"buffersize is {buffersize}; it is 1 at least, or None")


E = TypeVar("E", bound=BaseException)


def copy_exception(error: E) -> E:
    """The same error once more, as it was before it was raised; itself where its class cannot make
    another of what it knows, so that it is seen, and not why it could not be copied."""
    try:
        another = copy.copy(error)
    except Exception:
        return error
    another.args = error.args  # which its class may have made into something else once more
    another.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        another.__notes__ = list(error.__notes__)
    return another


def copy_exception_for_each(error: E, count: int) -> list[E]:
    """One for each of so many; the first is the one that was raised, with its traceback."""
    return [error, *(copy_exception(error) for _ in range(count - 1))]


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
    context: Any = field(default_factory=get_current_context)
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

    def disown_after_fork(self) -> None:
        """In a child of fork(): nobody will run it here. Whoever waits for it is told."""
        future = self.future
        renew_lock(future)
        if not future.done():
            said = "the job was given to an executor in the parent process, before fork()"
            future.set_exception(ForkedError(said))


def make_job(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> Job:
    """One call."""
    outs = None if out is None else [out]
    return Job(kernel, [arrays], outs, True, future, count_input_bytes(arrays))


def count_input_bytes(arrays: Arrays) -> int:
    """Of a call's inputs, as far as they are the host's."""
    total = 0
    for each in arrays:  # on the path of every call: a generator would take twice as long
        if isinstance(each, np.ndarray):
            total += each.nbytes
    return total


@dataclass(slots=True, eq=False)
class SharedJob(Job):
    """Made of units, which are dealt to devices. One device alone runs it like any other job."""

    deal: WorkSplit | None = None
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
        nbytes = sum(map(count_input_bytes, calls))
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

    def disown_after_fork(self) -> None:
        self.whole.disown_after_fork()


def make_batch_job(
    kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any] | None, future: Future[Any]
) -> SharedJob:
    """Several calls, whose results come together; each is a unit."""
    nbytes = sum(map(count_input_bytes, calls))
    return SharedJob(kernel, calls, outs, False, future, nbytes)


def find_first_error(outcomes: Sequence[Any]) -> BaseException | None:
    """Of a batch's outcomes; it says what job it is of."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            return add_index(outcome, index)
    return None


def add_index(error: BaseException, index: int) -> BaseException:
    if isinstance(error, ElementRangeError):
        return ElementRangeError(error.kernel, error.argument, error.index, index)
    if isinstance(error, WrongResultError):
        return WrongResultError(error.kernel, error.output, error.index, error.where, index)
    if isinstance(error, GpuError):
        error.args = (f"job {index}: {error}",)
    else:
        error.add_note(f"it is the error of job {index}")
    return error


UNIT_BYTES = 1 << 20
"""Of the inputs: a device is busy with so much for longer than it takes to hand it over."""
LEAST_UNITS = 4
"""What is shorter is run by one device."""


@dataclass(slots=True, eq=False)
class ChunkedCall(SharedJob):
    """One call; its units are so many elements each, and a part of it is a call on slices."""

    call: Call = field(kw_only=True)
    unit: int = field(kw_only=True)
    """Elements."""

    @property
    def units(self) -> int:
        return -(-self.call.signature.count // self.unit)

    def part(self, units: range) -> Part:
        taken = slice(units.start * self.unit, units.stop * self.unit)
        outs = tuple(each[taken] for each in self.call.outputs)
        return self._part(units, [tuple(each[taken] for each in self.call.inputs)], [outs])

    def _put_together(self, parts: list[Sequence[Any]]) -> None:
        for first, (outcome,) in zip(sorted(self._came), parts, strict=True):
            if isinstance(outcome, ElementRangeError | WrongResultError):
                self.answer([outcome.behind(first * self.unit)])
                return
            if isinstance(outcome, BaseException):
                self.answer([outcome])
                return
        self.answer([self.call.result()])


def chunk_call(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> ChunkedCall | None:
    """A call that devices can share; None where it is not worth it, or not possible.

    What does not fit the kernel is left to be refused by whoever runs it in one piece.
    """
    if count_input_bytes(arrays) < LEAST_UNITS * UNIT_BYTES or not _can_be_cut(kernel, arrays):
        return None
    try:
        signature = check(kernel, arrays)
        call = signature.call(arrays)
        if out is not None:
            call.use_outputs(out)
    except GpuError:
        return None
    call.make_outputs()
    nbytes = count_input_bytes(arrays)
    unit = max(signature.count * UNIT_BYTES // nbytes, 1)
    outs = [tuple(call.results)]
    return ChunkedCall(kernel, [arrays], outs, True, future, nbytes, call=call, unit=unit)


def _can_be_cut(kernel: Kernel, arrays: Arrays) -> bool:
    """Push constants that follow from shapes would be others for a piece."""
    whole = kernel.split != "elements" or kernel.push_of is not None
    return not whole and all(isinstance(each, np.ndarray) for each in arrays)
