"""Jobs: calls of one kernel that an executor runs, and the future of their result.

A `Job` runs on one device. A `SharedJob` (a batch, or a large call that is split into chunks) can
be split among several devices; the results of its shares are merged here. This module also checks
the arguments that do not depend on a device, and copies exceptions that several futures receive.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from numbers import Real
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import list_outputs
from gpu_executor.arrays.typed_array import TypedWords
from gpu_executor.calls.arguments import check_is_kernel, collect_jobs, zip_iterables
from gpu_executor.calls.call import (
    NUMPY_OR_DEVICE,
    Array,
    Call,
    Operand,
    as_arrays,
    check,
    iterate_params,
)
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import (
    ArgumentTypeError,
    ElementRangeError,
    ForkedError,
    GpuError,
    SettingsError,
    WrongResultError,
)
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


Arrays = tuple[Array, ...]


LabelledArray = tuple[str, DeviceArray]
"""A device array, and how messages refer to it: "argument 0"."""


class CallArguments(NamedTuple):
    """What a caller passes to a kernel in one call."""

    arrays: Arrays
    """`TypedWords` if the caller gets the result as a typed array."""
    out: Any = None
    """The arrays for the results, with the words of a typed array; None for new arrays."""
    params: Any = None
    out_shape: Any = None
    keep: bool | None = None
    """Whether the results stay on the device; None: if any argument is there."""

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        arrays: Sequence[Any],
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
        keep: bool | None = None,
    ) -> CallArguments:
        """Return a call with scalars and lists converted to arrays, and typed arrays to words. What
        cannot be converted stays as it is: the backend raises the error when the call runs."""
        try:  # not `suppress`, which takes 0.4 us, in every call
            converted = as_arrays(kernel, arrays)
            if type(converted) is TypedWords and out is not None:
                converted, out = converted.use_out(kernel.name, out)
            arrays = converted
        except GpuError:
            pass
        given = arrays if isinstance(arrays, tuple) else tuple(arrays)
        return cls(given, out, params, out_shape, keep)

    def detach(self) -> CallArguments:
        """Return the call with copies of its `params` and `out_shape`, for a call that runs after
        its caller went on: the caller may use the same dict for the next call."""
        if self.params is None and self.out_shape is None:
            return self
        params, out_shape = copy.deepcopy((self.params, self.out_shape))
        return self._replace(params=params, out_shape=out_shape)

    def touches_device(self) -> bool:
        """Whether the call reads or writes device arrays, or leaves its results on the device."""
        if self.keep:
            return True
        for each in self.arrays:  # runs for every call: any() would take twice as long
            if isinstance(each, DeviceArray):
                return True
        return self.out is not None and self.writes_to_device()

    def writes_to_device(self) -> bool:
        """Whether `out` has device arrays."""
        return any(isinstance(each, DeviceArray) for each in list_outputs(self.out))

    def label_arrays(self) -> Iterator[LabelledArray]:
        """The device arrays of the call."""
        for kind, arrays in (("argument", self.arrays), ("out", list_outputs(self.out))):
            for index, array in enumerate(arrays):
                if isinstance(array, DeviceArray):
                    yield f"{kind} {index}", array

    def wrap(self, result: Any) -> Any:
        """Return a result as the caller gets it, given what a backend returned for the arrays."""
        arrays = self.arrays
        return arrays.wrap(result) if type(arrays) is TypedWords else result

    def count_bytes(self) -> int:
        """Bytes of the inputs, on the host and on a device."""
        return sum(each.nbytes for each in self.arrays if isinstance(each, NUMPY_OR_DEVICE))

    def count_input_bytes(self) -> int:
        """Bytes of the inputs that are NumPy arrays, which occupy the queue."""
        total = 0
        for each in self.arrays:  # runs for every call: a generator would take twice as long
            if isinstance(each, np.ndarray):
                total += each.nbytes
        return total


SUBMIT_OPTIONS = ("out", "keep", "params", "out_shape")


def read_submission(kernel: Kernel, arrays: Arrays, options: dict[str, Any]) -> CallArguments:
    """Return the call that the arguments of `submit` describe."""
    unknown = [name for name in options if name not in SUBMIT_OPTIONS]
    if unknown:
        accepted = ", ".join(f"{name}=" for name in SUBMIT_OPTIONS)
        raise ArgumentTypeError(f"submit accepts {accepted}; it got {', '.join(unknown)}")
    return CallArguments.of(kernel, arrays, **options).detach()


def collect_calls(
    kernel: Kernel,
    jobs: Iterable[Sequence[Any]],
    out: Iterable[Any] | None,
    params: Any,
    keep: bool | None = None,
) -> list[CallArguments]:
    """Return the jobs of a batch as calls; check `out` and the length of `params`."""
    given, outs = collect_jobs(jobs, out)
    targets = itertools.repeat(None) if outs is None else outs
    own_params = iterate_params(params, len(given))
    return [
        CallArguments.of(kernel, arrays, target, own, None, keep)
        for arrays, target, own in zip(given, targets, own_params, strict=False)
    ]


def iterate_calls(
    kernel: Kernel, iterables: Sequence[Iterable[Any]], params: Any, keep: bool | None = None
) -> Iterator[CallArguments]:
    """The jobs of a `map` as calls, read when they are needed. A list of `params` that is shorter
    than the jobs raises `ArgumentTypeError` at its end. Without iterables, as for kernels without
    inputs, there is a job for each entry of that list."""
    jobs: Iterable[Sequence[Any]] = zip_iterables(iterables)
    if not iterables and isinstance(params, list):
        jobs = [()] * len(params)
    # `map` and not a generator, whose frame would keep the arrays of the last call alive.
    make_call = partial(_make_map_call, kernel, keep)
    return map(make_call, itertools.count(), jobs, _iterate_map_params(copy.deepcopy(params)))


def _make_map_call(
    kernel: Kernel, keep: bool | None, index: int, arrays: Sequence[Any], params: Any
) -> CallArguments:
    try:
        return CallArguments.of(kernel, arrays, None, params, None, keep)
    except GpuError as error:
        raise add_index(error, index) from None


def _iterate_map_params(params: Any) -> Iterator[Any]:
    yield from iterate_params(params)
    raise ArgumentTypeError(
        f"job {len(params)}: params has no entry for it; a list has one for each job"
    )


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


@dataclass(slots=True, eq=False)
class Job:
    """Calls of one kernel with one future: a single call, or the calls of a batch."""

    kernel: Kernel
    calls: Sequence[CallArguments]
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
    runs_alone: ClassVar[bool] = False
    """Whether a worker takes the job without others of its kernel."""

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


@dataclass(slots=True, eq=False)
class DeviceJob(Job):
    """A call on device arrays, or the fetch of its results. Any worker may perform it: it runs on
    the device that holds the arrays."""

    perform: Callable[[], Any] = field(kw_only=True)
    runs_alone: ClassVar[bool] = True


def make_job(kernel: Kernel, call: CallArguments, future: Future[Any]) -> Job:
    """Make the job of a single call."""
    return Job(kernel, [call], True, future, call.count_input_bytes())


def count_all_input_bytes(calls: Iterable[CallArguments]) -> int:
    """Bytes of the inputs of calls."""
    return sum(call.count_input_bytes() for call in calls)


@dataclass(slots=True, eq=False)
class SharedJob(Job):
    """A job of several units, which can be split among devices. A single device runs it like any
    other job. The units of a batch are its calls."""

    split: WorkSplit | None = None
    """How the units are split, once a device has taken the first share."""
    outcomes: list[Any] = field(default_factory=list)
    """The result or exception of every call, once the future is done."""
    _share_outcomes: dict[int, Sequence[Any]] = field(default_factory=dict)
    """Outcomes of the finished shares, by the first unit of the share."""
    _unfinished: int = -1
    """Units without an outcome; -1 before the first share has finished."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def units(self) -> int:
        return len(self.calls)

    def make_share(self, units: range) -> Share:
        """Make a job of some units."""
        return self._make_share(units, self.calls[units.start : units.stop])

    def resolve(self, outcomes: Sequence[Any]) -> None:
        """Keep all outcomes; the first exception is the future's."""
        self.outcomes = list(outcomes)
        Job.resolve(self, outcomes)

    def add_outcomes(self, units: range, outcomes: Sequence[Any]) -> None:
        """Add the outcomes of a share. The last share resolves the job."""
        with self._lock:
            unfinished = self.units if self._unfinished < 0 else self._unfinished
            self._unfinished = unfinished - len(units)
            self._share_outcomes[units.start] = outcomes
            if self._unfinished:
                return
        self._merge([self._share_outcomes[first] for first in sorted(self._share_outcomes)])

    def _make_share(self, units: range, calls: Sequence[CallArguments]) -> Share:
        nbytes, origin = count_all_input_bytes(calls), (self.submitted, self.context)
        return Share(self.kernel, calls, False, Future(), nbytes, *origin, whole=self, units=units)

    def _merge(self, shares: list[Sequence[Any]]) -> None:
        """Resolve the job with the outcomes of all shares, in the order of their units."""
        self.resolve([outcome for outcomes in shares for outcome in outcomes])


@dataclass(slots=True, eq=False)
class Share(Job):
    """Some units of a shared job, which run on one device."""

    whole: SharedJob = field(kw_only=True)
    units: range = field(kw_only=True)

    def resolve(self, outcomes: Sequence[Any]) -> None:
        Job.resolve(self, outcomes)
        self.whole.add_outcomes(self.units, outcomes)

    def disown_after_fork(self) -> None:
        self.whole.disown_after_fork()


@dataclass(slots=True, eq=False)
class MixedBatch(SharedJob):
    """A batch of which some calls have run already: those on device arrays. Its `calls` are the
    others."""

    known: dict[int, Any] = field(kw_only=True)
    """The outcomes of the calls that have run, by their index in the batch."""

    def resolve(self, outcomes: Sequence[Any]) -> None:
        others = iter(outcomes)
        total = len(self.known) + len(outcomes)
        SharedJob.resolve(
            self,
            [self.known[n] if n in self.known else next(others) for n in range(total)],
        )


def make_batch_job(
    kernel: Kernel, calls: Sequence[CallArguments], future: Future[Any], known: dict[int, Any]
) -> SharedJob:
    """Make the job of a batch. `known` are the outcomes of the calls that have run already, by
    their index."""
    if not known:
        return SharedJob(kernel, calls, False, future, count_all_input_bytes(calls))
    others = [call for index, call in enumerate(calls) if index not in known]
    nbytes = count_all_input_bytes(others)
    return MixedBatch(kernel, others, False, future, nbytes, known=known)


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
    """A call that is split along its elements. Each unit has `unit` elements, and a share is a call
    on slices of the arrays."""

    call: Call = field(kw_only=True)
    unit: int = field(kw_only=True)
    """Elements in a unit."""

    @property
    def units(self) -> int:
        return -(-self.call.signature.count // self.unit)

    def make_share(self, units: range) -> Share:
        elements = slice(units.start * self.unit, units.stop * self.unit)
        signature = self.call.signature
        arrays = _slice_all(self.call.inputs, signature.inputs, elements)
        outs = _slice_all(self.call.outputs, signature.outputs, elements)
        return self._make_share(units, [self.calls[0]._replace(arrays=arrays, out=outs)])

    def _merge(self, shares: list[Sequence[Any]]) -> None:
        """Resolve the job with the outputs, or with the exception of the first failed share."""
        for first, (outcome,) in zip(sorted(self._share_outcomes), shares, strict=True):
            if isinstance(outcome, ElementRangeError | WrongResultError):
                self.resolve([outcome.shift(first * self.unit)])
                return
            if isinstance(outcome, BaseException):
                self.resolve([outcome])
                return
        self.resolve([self.call.result()])


def _slice_all(arrays: Sequence[Array], operands: Sequence[Operand], elements: slice) -> Arrays:
    """Slices of the arrays of a call, with the kernel's dtypes: a call has structs as bytes."""
    return tuple(
        array[elements].view(operand.type.dtype)
        if operand.type.dtype.names is not None
        else array[elements]
        for array, operand in zip(arrays, operands, strict=True)
    )


def chunk_call(kernel: Kernel, call: CallArguments, future: Future[Any]) -> ChunkedCall | None:
    """Make a job of a large call that several devices can share; None if the call is too small or
    cannot be split.

    Invalid arguments give None too: the call then runs on one device, which raises the error.
    """
    nbytes = call.count_input_bytes()
    if nbytes < MIN_UNITS * UNIT_BYTES or not _can_chunk(kernel, call):
        return None
    try:
        signature = check(kernel, call.arrays, out_shape=call.out_shape)
        checked = signature.make_call(call.arrays, call.params)
        if call.out is not None:
            checked.use_outputs(call.out)
    except GpuError:
        return None
    if checked.in_place:
        # After the fault of one device, the others would have overwritten their shares.
        return None
    checked.make_outputs()
    unit = max(signature.count * UNIT_BYTES // nbytes, 1)
    return ChunkedCall(
        kernel,
        [call._replace(out=tuple(checked.results))],
        True,
        future,
        nbytes,
        call=checked,
        unit=unit,
    )


def _can_chunk(kernel: Kernel, call: CallArguments) -> bool:
    """Whether a call on slices computes the same elements. Push constants that depend on the shapes
    would have other values for a slice."""
    whole = kernel.split != "elements" or kernel.push_of is not None
    whole = whole or kernel.is_count_given(call.params)
    return not whole and all(isinstance(each, np.ndarray) for each in call.arrays)


def renew_lock(future: Future[Any]) -> None:
    """Give a future a new, free lock. Only for a child of fork(), before other threads run.

    fork() copies a future's lock in its current state. If another thread of the parent holds the
    lock at that moment, no thread in the child ever releases it: `done`, `result` and
    `concurrent.futures.wait` would block for ever. No public call gives a future a new lock, so its
    condition is replaced. CPython 3.11 to 3.14 keep the condition in `_condition`; a test fails on
    a release that does not.
    """
    future._condition = threading.Condition()
