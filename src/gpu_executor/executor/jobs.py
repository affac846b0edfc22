"""Jobs: calls of one kernel that an executor runs, and the future of their result.

A `Job` runs on one device. A `SharedJob` (a batch, or a large call that is split into chunks) can
be split among several devices; the results of its parts are merged here. This module also checks
the arguments that do not depend on a device, and copies exceptions that several futures receive.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from numbers import Real
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from gpu_executor.arguments import check_is_kernel
from gpu_executor.call import Array, Call, check
from gpu_executor.errors import (
    ArgumentTypeError,
    ElementRangeError,
    ForkedError,
    GpuError,
    SettingsError,
    WrongResultError,
)
from gpu_executor.executor.future_internals import renew_lock
from gpu_executor.executor.work_stealing import WorkSplit
from gpu_executor.kernel import Kernel
from gpu_executor.settings import check_positive
from gpu_executor.telemetry import load_exporter

# Bound once: it is called for every job.
get_current_context: Callable[[], Any] = load_exporter("span context")


def check_kernel(
    fn: Any, by: str = "a GpuExecutor", functions_by: str = "a ThreadPoolExecutor"
) -> Kernel:
    """Return `fn` if it is a kernel, else raise. `by` names the executor in the message."""
    if not isinstance(fn, Kernel):
        if not callable(fn):
            check_is_kernel(fn)
        name = getattr(fn, "__name__", type(fn).__name__)
        raise ArgumentTypeError(
            f"{by} runs kernels, and {name!r} is not a kernel; use {functions_by} for functions"
        )
    return fn


def take_out(options: dict[str, Any]) -> Any:
    """Return the value of `out=`, the only keyword that `submit` accepts."""
    out = options.pop("out", None)
    if options:
        raise ArgumentTypeError(f"submit accepts out= only, not {', '.join(options)}")
    return out


def check_map_options(chunksize: int, buffersize: int | None, timeout: float | None) -> None:
    """Raise `SettingsError` unless the options of `map` are numbers, and its sizes at least 1."""
    check_positive("chunksize", chunksize, "it must be a whole number, at least 1")
    if buffersize is not None:
        check_positive("buffersize", buffersize, "it must be a whole number, at least 1, or None")
    if timeout is not None and not isinstance(timeout, Real):
        raise SettingsError(f"timeout is {timeout!r}; it must be a number of seconds, or None")


E = TypeVar("E", bound=BaseException)


def copy_exception(error: E) -> E:
    """Copy an exception without its traceback, which refers to the arrays of the calls.

    Several futures must not share an exception: each `raise` extends its traceback. The exception
    itself is returned where its class cannot be copied.
    """
    try:
        copied = copy.copy(error)
    except Exception:
        return error
    copied.args = error.args  # the class's `__init__` may have formatted them a second time
    copied.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        copied.__notes__ = list(error.__notes__)
    return copied


def copy_exception_for_each(error: E, count: int) -> list[E]:
    """One exception for each of `count` futures; the first is the original with its traceback."""
    return [error, *(copy_exception(error) for _ in range(count - 1))]


Arrays = tuple[Array, ...]


@dataclass(slots=True, eq=False)
class Job:
    """Calls of one kernel with one future: a single call, or the calls of a batch."""

    kernel: Kernel
    calls: Sequence[Arrays]
    outs: Sequence[Any] | None
    """The output arrays of each call; None for new arrays."""
    single: bool
    """Whether the future's result is that of the only call, or a list with one for each call."""
    future: Future[Any]
    nbytes: int
    """Bytes of the calls' inputs."""
    submitted: float = field(default_factory=perf_counter)
    context: Any = field(default_factory=get_current_context)
    """The OpenTelemetry context of its span; None without a tracer."""
    lost_on: frozenset[int] = frozenset()
    """Devices that were lost while they ran this job, in every retry."""

    def get_outs(self) -> Sequence[Any]:
        """The output arrays of each call, None for new arrays."""
        return [None] * len(self.calls) if self.outs is None else self.outs

    def begin(self) -> bool:
        """Mark the job as running, so that it cannot be cancelled any more. False if it was
        cancelled or is done. May be called twice."""
        try:
            return self.future.running() or self.future.set_running_or_notify_cancel()
        except RuntimeError:  # it is done, or its cancellation has been notified before
            return False

    def wait(self) -> Any:
        """Wait for the result. An interrupt cancels the job if it is still queued."""
        try:
            return self.future.result()
        except BaseException:
            self.future.cancel()
            raise
        finally:
            del self  # Break the exception -> traceback -> frame reference cycle.

    def resolve(self, outcomes: Sequence[Any]) -> None:
        """Set the future's result, or its exception: the first one among the outcomes."""
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
                return
        self.future.set_result(outcomes[0] if self.single else list(outcomes))

    def disown_after_fork(self) -> None:
        """Fail the job in a child of fork(), where no thread will run it."""
        future = self.future
        renew_lock(future)
        if not future.done():
            future.set_exception(
                ForkedError("the job was submitted in the parent process, before fork()")
            )


def make_job(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> Job:
    """Make the job of a single call."""
    outs = None if out is None else [out]
    return Job(kernel, [arrays], outs, True, future, count_input_bytes(arrays))


def count_input_bytes(arrays: Arrays) -> int:
    """Bytes of a call's inputs that are NumPy arrays."""
    total = 0
    for each in arrays:  # runs for every call: a generator would take twice as long
        if isinstance(each, np.ndarray):
            total += each.nbytes
    return total


@dataclass(slots=True, eq=False)
class SharedJob(Job):
    """A job of several units, which can be split among devices. A single device runs it like any
    other job. The units of a batch are its calls."""

    split: WorkSplit | None = None
    """How the units are split, once a device has taken the first part."""
    outcomes: list[Any] = field(default_factory=list)
    """The result or exception of every call, once the future is done."""
    _part_outcomes: dict[int, Sequence[Any]] = field(default_factory=dict)
    """Outcomes of the finished parts, by the first unit of the part."""
    _unfinished: int = -1
    """Units without an outcome; -1 before the first part has finished."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def units(self) -> int:
        return len(self.calls)

    def make_part(self, units: range) -> Part:
        """Make a job of some units."""
        calls = self.calls[units.start : units.stop]
        outs = None if self.outs is None else self.outs[units.start : units.stop]
        return self._make_part(units, calls, outs)

    def resolve(self, outcomes: Sequence[Any]) -> None:
        """Keep all outcomes; the first exception is the future's."""
        self.outcomes = list(outcomes)
        Job.resolve(self, outcomes)

    def add_outcomes(self, units: range, outcomes: Sequence[Any]) -> None:
        """Add the outcomes of a part. The last part resolves the job."""
        with self._lock:
            unfinished = self.units if self._unfinished < 0 else self._unfinished
            self._unfinished = unfinished - len(units)
            self._part_outcomes[units.start] = outcomes
            if self._unfinished:
                return
        self._merge([self._part_outcomes[first] for first in sorted(self._part_outcomes)])

    def _make_part(self, units: range, calls: Sequence[Arrays], outs: Sequence[Any] | None) -> Part:
        nbytes = sum(map(count_input_bytes, calls))
        origin = self.submitted, self.context
        return Part(
            *(self.kernel, calls, outs, False, Future(), nbytes, *origin), whole=self, units=units
        )

    def _merge(self, parts: list[Sequence[Any]]) -> None:
        """Resolve the job with the outcomes of all parts, in the order of their units."""
        self.resolve([outcome for outcomes in parts for outcome in outcomes])


@dataclass(slots=True, eq=False)
class Part(Job):
    """Some units of a shared job, which run on one device."""

    whole: SharedJob = field(kw_only=True)
    units: range = field(kw_only=True)

    def resolve(self, outcomes: Sequence[Any]) -> None:
        Job.resolve(self, outcomes)
        self.whole.add_outcomes(self.units, outcomes)

    def disown_after_fork(self) -> None:
        self.whole.disown_after_fork()


def make_batch_job(
    kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any] | None, future: Future[Any]
) -> SharedJob:
    """Make the job of a batch."""
    nbytes = sum(map(count_input_bytes, calls))
    return SharedJob(kernel, calls, outs, False, future, nbytes)


def find_first_error(outcomes: Sequence[Any]) -> BaseException | None:
    """The first exception among the outcomes of a batch, with the index of its job; or None."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, BaseException):
            return add_index(outcome, index)
    return None


def add_index(error: BaseException, index: int) -> BaseException:
    """Return the exception with the index of its job in the message, or in a note."""
    if isinstance(error, ElementRangeError):
        return ElementRangeError(error.kernel, error.argument, error.index, index)
    if isinstance(error, WrongResultError):
        return WrongResultError(error.kernel, error.output, error.index, error.where, index)
    if isinstance(error, GpuError):
        error.args = (f"job {index}: {error}",)
    else:
        error.add_note(f"raised by job {index}")
    return error


UNIT_BYTES = 1 << 20
"""Input bytes of a unit: large enough that computing takes longer than handing the unit over."""
MIN_UNITS = 4
"""A call of fewer units runs on one device."""


@dataclass(slots=True, eq=False)
class ChunkedCall(SharedJob):
    """A call that is split along its elements. Each unit has `unit` elements, and a part is a call
    on slices of the arrays."""

    call: Call = field(kw_only=True)
    unit: int = field(kw_only=True)
    """Elements in a unit."""

    @property
    def units(self) -> int:
        return -(-self.call.signature.count // self.unit)

    def make_part(self, units: range) -> Part:
        elements = slice(units.start * self.unit, units.stop * self.unit)
        outs = tuple(each[elements] for each in self.call.outputs)
        return self._make_part(units, [tuple(each[elements] for each in self.call.inputs)], [outs])

    def _merge(self, parts: list[Sequence[Any]]) -> None:
        """Resolve the job with the outputs, or with the exception of the first part that failed."""
        for first, (outcome,) in zip(sorted(self._part_outcomes), parts, strict=True):
            if isinstance(outcome, ElementRangeError | WrongResultError):
                self.resolve([outcome.shift(first * self.unit)])
                return
            if isinstance(outcome, BaseException):
                self.resolve([outcome])
                return
        self.resolve([self.call.result()])


def chunk_call(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> ChunkedCall | None:
    """Make a job of a large call that several devices can share; None if the call is too small or
    cannot be split.

    Invalid arguments give None too: the call then runs on one device, which raises the error.
    """
    if count_input_bytes(arrays) < MIN_UNITS * UNIT_BYTES or not _can_chunk(kernel, arrays):
        return None
    try:
        signature = check(kernel, arrays)
        call = signature.make_call(arrays)
        if out is not None:
            call.use_outputs(out)
    except GpuError:
        return None
    call.make_outputs()
    nbytes = count_input_bytes(arrays)
    unit = max(signature.count * UNIT_BYTES // nbytes, 1)
    outs = [tuple(call.results)]
    return ChunkedCall(kernel, [arrays], outs, True, future, nbytes, call=call, unit=unit)


def _can_chunk(kernel: Kernel, arrays: Arrays) -> bool:
    """Whether a call on slices computes the same elements. Push constants that depend on the shapes
    would have other values for a slice."""
    whole = kernel.split != "elements" or kernel.push_of is not None
    return not whole and all(isinstance(each, np.ndarray) for each in arrays)
