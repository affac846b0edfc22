"""Which calls may be run again: kernels are pure, but outputs may lie over inputs.

A device that is open, and opened again when it was lost. What failed is run again, a few times:
kernels are pure, and the host has their inputs.

    out of memory    what is idle is freed; then the call again, a batch in the end call by call
    device lost      opened again, then the same
    driver error     the call again; where that fails too, opened again

A call that writes over its inputs, or whose arrays were on the card, is not run again.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.call import Array
from gpu_executor.errors import (
    ClosedError,
    DeviceLostError,
    ForkedError,
    GpuError,
    NoDeviceError,
    OutOfMemoryError,
    VulkanError,
    WrongResultError,
)
from gpu_executor.executor.candidates import DeviceCandidate
from gpu_executor.executor.coalescing import coalesce, split_results
from gpu_executor.executor.device_metrics import DeviceCounts, DeviceMetrics, DeviceProfile
from gpu_executor.executor.jobs import Arrays, copy_exception, copy_exception_for_each
from gpu_executor.executor.result_check import ResultChecker, ResultSample
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings


class OverwrittenRanges:
    """Where in memory the outputs of calls lie."""

    def __init__(self, outs: Iterable[Any]) -> None:
        spans = sorted(_span(each) for out in outs for each in _outputs(out) if each.nbytes)
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def any_of(self, arrays: Arrays) -> bool:
        """Whether one of them lies there, as far as can be told without looking at strides."""
        return any(map(self._is_hit, _host_arrays(arrays)))

    def _is_hit(self, array: Array) -> bool:
        start, end = _span(array)
        before = bisect.bisect_left(self._starts, end) - 1
        return bool(array.nbytes) and before >= 0 and self._ends[before] > start


def find_retry_obstacle(arrays: Arrays, out: Any, *, moves: bool = True) -> str | None:
    """Why a call must not be made again, if so; `moves`: on a device that was opened since."""
    if moves and not all(isinstance(each, np.ndarray) for each in arrays):
        return "its arrays were on the card that failed"
    if writes_in_place(arrays, out):
        return "its output is one of its inputs, which may be overwritten"
    return None


def find_batch_retry_obstacle(
    arrays: Arrays, out: Any, written: OverwrittenRanges, *, gone: bool
) -> str | None:
    """The same for a call in a batch that failed."""
    if written.any_of(arrays):
        return "an output of its batch is one of its inputs, which may be overwritten"
    return find_retry_obstacle(arrays, out, moves=gone)


def writes_in_place(arrays: Arrays, out: Any) -> bool:
    if out is None:
        return False
    return any(
        np.may_share_memory(target, each)
        for target in _outputs(out)
        for each in _host_arrays(arrays)
    )


def _outputs(out: Any) -> Iterator[Array]:
    """The host's arrays that a call writes to."""
    return _host_arrays(out if isinstance(out, tuple | list) else [out])


def _host_arrays(arrays: Sequence[Any]) -> Iterator[Array]:
    return (each for each in arrays if isinstance(each, np.ndarray))


def _span(array: Array) -> tuple[int, int]:
    """The addresses from an array's first byte to behind its last."""
    start: int = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    first = start + sum(step for step in steps if step < 0)
    return first, start + sum(step for step in steps if step > 0) + array.itemsize


Pair = tuple[Arrays, Any]
"""A call's arrays, and where its result goes."""
PASSING = (VulkanError, OutOfMemoryError, ClosedError)
"""What may not happen again: a lost device is one of the first, and the last is raised while
another thread opens it again."""
GONE = (DeviceLostError, ClosedError)
TRIES_TOGETHER = 2
"""Of a batch; then each call is run alone, and tried as often as any: it may be another's fault."""


STRIKES = 3
"""Calls in a row, each tried as often as may be, in which a device was lost: then it is left alone,
where there are others."""


def _alone() -> bool:
    return False


class OpenDevice:
    """Safe from several threads."""

    def __init__(
        self, candidate: DeviceCandidate, settings: Settings, tries: int, checker: ResultChecker
    ) -> None:
        self.candidate, self._settings, self._tries = candidate, settings, tries
        self._checker = checker
        self.backend: Backend = candidate.open(settings)
        self._reopening = threading.Lock()
        self._closed = False
        self._lost: Backend | None = None
        """What is closed to open the device again: an interrupt may come between."""
        self.counts = DeviceCounts()
        self.metrics = DeviceMetrics(candidate, self.counts)
        self.failed: GpuError | None = None
        """Why it is left alone from now on."""
        self.strikes = 0
        """Calls in a row in which it was lost, however often it was opened again."""
        self.has_others: Callable[[], bool] = _alone
        """Whether other devices run what it cannot."""
        self._profile: DeviceProfile | None = None
        self.metrics.opened()

    def run(self, kernel: Kernel, arrays: Arrays, out: Any = None) -> Any:
        """One call; whatever it raises in the end is this call's own."""
        self.counts.calls += 1
        backend = self.backend
        sample = self._checker.sample(kernel, arrays) if self._checker.fraction else None
        try:
            result = backend.run(kernel, *arrays, out=out)
        except PASSING as error:
            result = self._again(backend, kernel, arrays, out, error)
        if self.strikes:
            self.strikes = 0
        if sample is not None:
            self._check(sample, result)
        return result

    def run_calls(self, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any]) -> list[Any]:
        """Many calls at once: for each its result, or the error that is its own."""
        if len(calls) == 1:
            return [self._outcome(kernel, calls[0], outs[0])]
        pairs = list(zip(calls, outs, strict=True))
        if any(writes_in_place(arrays, out) for arrays, out in pairs):
            # Together they might all have to be run again, some with inputs that are overwritten.
            return [self._outcome(kernel, arrays, out) for arrays, out in pairs]
        self.counts.batches += 1
        samples = self._samples(kernel, pairs)
        for tried in itertools.count(1):
            backend = self.backend
            results, error = _together(backend, kernel, calls, outs)
            try:
                if error is None:
                    break
                if not self._may_pass(backend, kernel, pairs, error, tried):
                    # Whose it is shows when each is run alone.
                    return self._one_by_one(backend, kernel, pairs, error)
            finally:
                del error  # whose traceback leads to this frame
        self.counts.calls += len(calls)
        self.strikes = 0
        if samples is None:
            return results
        return [
            self._checked(sample, result) for sample, result in zip(samples, results, strict=True)
        ]

    @property
    def is_doubtful(self) -> bool:
        """Whether it has failed, or is about to."""
        return self.failed is not None or self.strikes > 0

    def give_up(self) -> None:
        """Leave it alone: it is lost again and again."""
        if self.failed is None:
            said = f"it was lost in {self.strikes} calls in a row, however often it was opened"
            self._quarantine(NoDeviceError(said))

    def refusal(self) -> NoDeviceError:
        """For a call that comes when the device has failed: an error of its own."""
        return NoDeviceError(f"{self.candidate} is left alone: {self.failed}")

    def watch_by(self, profile: DeviceProfile) -> None:
        """Record what it does, also when it is opened again: by one profile at a time."""
        with self._reopening:
            if self._profile is not None:
                raise GpuError(
                    f"{self.candidate} is being profiled already: end that profile first"
                )
            self._profile, self.metrics.profiled = profile, profile.jobs
            profile.watch(self.backend)

    def watch_no_more_by(self, profile: DeviceProfile) -> None:
        """Whatever came of it, if anything did: another profile goes on."""
        with self._reopening:
            if self._profile is profile:
                self._profile = self.metrics.profiled = None

    def explain(self, kernel: Kernel, count: int) -> Any:
        """What its backend would do with a call; None where that has nothing to say."""
        while True:
            backend = self.backend
            plan = getattr(backend, "explain", None)
            try:
                return None if plan is None else plan(kernel, count)
            except ClosedError as error:
                self._recover(backend, error)  # it is open again then, or that error is raised

    def close(self) -> None:
        with self._reopening:
            self._closed = True
        self.backend.close()
        self.metrics.closed()

    def _outcome(self, kernel: Kernel, arrays: Arrays, out: Any) -> Any:
        try:
            return self.run(kernel, arrays, out)
        except Exception as error:
            self.counts.errors += 1
            return error

    def _may_pass(
        self, backend: Backend, kernel: Kernel, pairs: Sequence[Pair], error: Exception, tried: int
    ) -> bool:
        """After a batch failed: whether it is worth another try as a whole, and ready for it."""
        if not isinstance(error, PASSING) or tried >= min(TRIES_TOGETHER, self._tries):
            return False
        written, gone = OverwrittenRanges(out for _, out in pairs), isinstance(error, GONE)
        if any(find_batch_retry_obstacle(arrays, out, written, gone=gone) for arrays, out in pairs):
            return False
        self._recover(backend, error)
        self.metrics.retried(kernel, error)
        return True

    def _one_by_one(
        self, backend: Backend, kernel: Kernel, pairs: Sequence[Pair], error: Exception
    ) -> list[Any]:
        """After a batch failed: what comes of each call alone, where it may be run again."""
        passing, gone = isinstance(error, PASSING), isinstance(error, GONE)
        if passing and self._tries == 1:
            self.counts.errors += len(pairs)
            return copy_exception_for_each(error, len(pairs))
        if isinstance(error, PASSING):
            self._recover(backend, error)
            self.metrics.retried(kernel, error)
        written, outcomes = OverwrittenRanges(out for _, out in pairs), list[Any]()
        lost = False
        for arrays, out in pairs:
            why = find_batch_retry_obstacle(arrays, out, written, gone=gone)
            if why is None and lost and self.strikes >= STRIKES and self.has_others():
                outcomes.append(
                    copy_exception(outcomes[-1])
                )  # as the last one ended: others will run it
                continue
            if why is None:
                outcomes.append(self._outcome(kernel, arrays, out))
                lost = isinstance(outcomes[-1], DeviceLostError)
                continue
            # Of an error that is one call's alone, others are told no more than that there was one.
            left = (
                copy_exception(error)
                if passing
                else GpuError(f"another call of its batch failed: {error}")
            )
            left.add_note(f"not run again: {why}")
            self.counts.errors += 1
            outcomes.append(left)
            lost = False
        return outcomes

    def _again(
        self,
        backend: Backend,
        kernel: Kernel,
        arrays: Arrays,
        out: Any,
        error: GpuError,
    ) -> Any:
        try:
            for tried in range(1, self._tries):
                reopens = tried > 1 or isinstance(error, GONE)
                why = find_retry_obstacle(arrays, out, moves=reopens)
                if why:
                    error.add_note(f"not run again: {why}")
                    raise error
                self._recover(backend, error, reopens=reopens)
                self.metrics.retried(kernel, error)
                backend = self.backend
                try:
                    return backend.run(kernel, *arrays, out=out)
                except PASSING as another:
                    error = another
            self.strikes += isinstance(error, DeviceLostError)
            raise error
        finally:
            del error  # whose traceback holds this frame, and so the arrays

    def _recover(self, backend: Backend, error: GpuError, *, reopens: bool = False) -> None:
        """Make the next try more likely to succeed; of several threads one does it."""
        with self._reopening:
            if self._closed or isinstance(error, ForkedError):
                raise error
            if self.failed is not None:
                raise self.refusal() from error
            if self.backend is not backend:
                return  # another thread was here
            if isinstance(error, ClosedError) and backend is not self._lost:
                raise error  # for good
            if isinstance(error, OutOfMemoryError):
                trim = getattr(backend, "trim", None)
                if trim is not None:
                    with contextlib.suppress(GpuError):  # if it is worse, the next try shows
                        trim()
            elif reopens or isinstance(error, GONE):
                self._reopen(backend, error)

    def _reopen(self, backend: Backend, error: GpuError) -> None:
        self._lost = backend
        with contextlib.suppress(Exception):  # it need not work any more
            backend.close()
        try:
            self.backend = self.candidate.open(self._settings)
        except Exception as refused:
            self._quarantine(NoDeviceError(f"it was lost, and does not open again: {refused}"))
            raise self.refusal() from error
        self._lost = None
        self.metrics.reopened(error)
        if self._profile is not None:
            with contextlib.suppress(GpuError):  # lost once more, perhaps: the next try shows
                self._profile.watch(self.backend)

    def _samples(
        self, kernel: Kernel, pairs: Sequence[Pair]
    ) -> list[ResultSample | Exception | None] | None:
        """Of a batch; what one call writes and another reads nobody can foretell."""
        if not self._checker.fraction:
            return None
        written = OverwrittenRanges(out for _, out in pairs)
        return [
            None if written.any_of(arrays) else self._sampled(kernel, arrays) for arrays, _ in pairs
        ]

    def _sampled(self, kernel: Kernel, arrays: Arrays) -> ResultSample | Exception | None:
        """Of one call among many; what goes wrong there is not the others'."""
        try:
            return self._checker.sample(kernel, arrays)
        except Exception as error:
            return error

    def _check(self, sample: ResultSample, result: Any) -> None:
        try:
            sample.compare(result, str(self.candidate))
        except WrongResultError as error:  # any other is the reference's, and that call's alone
            self._quarantine(error)
            raise

    def _quarantine(self, error: GpuError) -> None:
        self.failed = copy_exception(
            error
        )  # it is kept: without its traceback, and the arrays in there
        self.metrics.quarantined(error)

    def _checked(self, sample: ResultSample | Exception | None, result: Any) -> Any:
        if isinstance(sample, Exception):
            self.counts.errors += 1
            return sample
        try:
            if sample is not None:
                self._check(sample, result)
        except Exception as error:
            self.counts.errors += 1
            return error
        return result


def _together(
    backend: Backend, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any]
) -> tuple[list[Any], Exception | None]:
    """What comes of calls that are submitted together, or why nothing does. It is not raised: it
    would be found behind the errors of calls that are run meanwhile, which are others."""
    try:
        one = coalesce(kernel, calls) if all(out is None for out in outs) else None
        if one is None:
            return backend.run_batch(kernel, calls, out=outs), None
        arrays, shapes = one
        return split_results(kernel, backend.run(kernel, *arrays), shapes), None
    except Exception as error:
        return [], error
