"""A device that is open, and opened again when it was lost. What failed is run again, a few times:
kernels are pure, and the host has their inputs.

    out of memory    what is idle is freed; then the call again, a batch in the end call by call
    device lost      opened again, then the same
    driver error     the call again; where that fails too, opened again

A call that writes over its inputs, or whose arrays were on the card, is not run again.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpu_executor.backend import Backend
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
from gpu_executor.executor.checking import Checking, Sample
from gpu_executor.executor.counts import Counts
from gpu_executor.executor.device_profile import DeviceProfile
from gpu_executor.executor.jobs import Arrays
from gpu_executor.executor.joining import joined, parted
from gpu_executor.executor.journal import Journal
from gpu_executor.executor.own_errors import own, own_each
from gpu_executor.executor.repeating import Overwritten, in_place, not_again, not_repeatable
from gpu_executor.executor.seats import Seat
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

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

    def __init__(self, seat: Seat, settings: Settings, tries: int, checking: Checking) -> None:
        self.seat, self._settings, self._tries = seat, settings, tries
        self._checking = checking
        self.backend: Backend = seat.open(settings)
        self._reopening = threading.Lock()
        self._closed = False
        self._lost: Backend | None = None
        """What is closed to open the device again: an interrupt may come between."""
        self.counts = Counts()
        self.journal = Journal(seat, self.counts)
        self.failed: GpuError | None = None
        """Why it is left alone from now on."""
        self.strikes = 0
        """Calls in a row in which it was lost, however often it was opened again."""
        self.has_others: Callable[[], bool] = _alone
        """Whether other devices run what it cannot."""
        self._profile: DeviceProfile | None = None
        self.journal.opened()

    def run(self, kernel: Kernel, arrays: Arrays, out: Any = None) -> Any:
        """One call; whatever it raises in the end is this call's own."""
        self.counts.calls += 1
        backend = self.backend
        sample = self._checking.sample(kernel, arrays) if self._checking.fraction else None
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
        if any(in_place(arrays, out) for arrays, out in pairs):
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
            self._leave_alone(NoDeviceError(said))

    def refusal(self) -> NoDeviceError:
        """For a call that comes when the device has failed: an error of its own."""
        return NoDeviceError(f"{self.seat} is left alone: {self.failed}")

    def watch_by(self, profile: DeviceProfile) -> None:
        """Record what it does, also when it is opened again: by one profile at a time."""
        with self._reopening:
            if self._profile is not None:
                raise GpuError(f"{self.seat} is being profiled already: end that profile first")
            self._profile, self.journal.profiled = profile, profile.jobs
            profile.watch(self.backend)

    def watch_no_more_by(self, profile: DeviceProfile) -> None:
        """Whatever came of it, if anything did: another profile goes on."""
        with self._reopening:
            if self._profile is profile:
                self._profile = self.journal.profiled = None

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
        self.journal.closed()

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
        written, gone = Overwritten(out for _, out in pairs), isinstance(error, GONE)
        if any(not_again(arrays, out, written, gone=gone) for arrays, out in pairs):
            return False
        self._recover(backend, error)
        self.journal.retried(kernel, error)
        return True

    def _one_by_one(
        self, backend: Backend, kernel: Kernel, pairs: Sequence[Pair], error: Exception
    ) -> list[Any]:
        """After a batch failed: what comes of each call alone, where it may be run again."""
        passing, gone = isinstance(error, PASSING), isinstance(error, GONE)
        if passing and self._tries == 1:
            self.counts.errors += len(pairs)
            return own_each(error, len(pairs))
        if isinstance(error, PASSING):
            self._recover(backend, error)
            self.journal.retried(kernel, error)
        written, outcomes = Overwritten(out for _, out in pairs), list[Any]()
        lost = False
        for arrays, out in pairs:
            why = not_again(arrays, out, written, gone=gone)
            if why is None and lost and self.strikes >= STRIKES and self.has_others():
                outcomes.append(own(outcomes[-1]))  # as the last one ended: others will run it
                continue
            if why is None:
                outcomes.append(self._outcome(kernel, arrays, out))
                lost = isinstance(outcomes[-1], DeviceLostError)
                continue
            # Of an error that is one call's alone, others are told no more than that there was one.
            left = own(error) if passing else GpuError(f"another call of its batch failed: {error}")
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
                why = not_repeatable(arrays, out, moves=reopens)
                if why:
                    error.add_note(f"not run again: {why}")
                    raise error
                self._recover(backend, error, reopens=reopens)
                self.journal.retried(kernel, error)
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
            self.backend = self.seat.open(self._settings)
        except Exception as refused:
            self._leave_alone(NoDeviceError(f"it was lost, and does not open again: {refused}"))
            raise self.refusal() from error
        self._lost = None
        self.journal.reopened(error)
        if self._profile is not None:
            with contextlib.suppress(GpuError):  # lost once more, perhaps: the next try shows
                self._profile.watch(self.backend)

    def _samples(
        self, kernel: Kernel, pairs: Sequence[Pair]
    ) -> list[Sample | Exception | None] | None:
        """Of a batch; what one call writes and another reads nobody can foretell."""
        if not self._checking.fraction:
            return None
        written = Overwritten(out for _, out in pairs)
        return [
            None if written.any_of(arrays) else self._sampled(kernel, arrays) for arrays, _ in pairs
        ]

    def _sampled(self, kernel: Kernel, arrays: Arrays) -> Sample | Exception | None:
        """Of one call among many; what goes wrong there is not the others'."""
        try:
            return self._checking.sample(kernel, arrays)
        except Exception as error:
            return error

    def _check(self, sample: Sample, result: Any) -> None:
        try:
            sample.compare(result, str(self.seat))
        except WrongResultError as error:  # any other is the reference's, and that call's alone
            self._leave_alone(error)
            raise

    def _leave_alone(self, error: GpuError) -> None:
        self.failed = own(error)  # it is kept: without its traceback, and the arrays in there
        self.journal.left_alone(error)

    def _checked(self, sample: Sample | Exception | None, result: Any) -> Any:
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
        one = joined(kernel, calls) if all(out is None for out in outs) else None
        if one is None:
            return backend.run_batch(kernel, calls, out=outs), None
        arrays, shapes = one
        return parted(kernel, backend.run(kernel, *arrays), shapes), None
    except Exception as error:
        return [], error
