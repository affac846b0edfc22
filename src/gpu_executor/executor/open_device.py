"""An open device: runs calls, retries after transient errors, and reopens a lost device.

Calls do not change what they are passed, and their inputs are on the host, so a failed call can be
retried:

    out of memory    free idle memory, then retry; a batch that fails again runs call by call
    device lost      reopen the device, then retry
    driver error     retry; after another failure reopen the device and retry

A call is not retried if `out=` overlaps what the call reads (in-out arguments included), or if its
arrays were in the memory of the lost device: device arrays are lost with their device, and every
later call on them says so.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import find_conflict, list_outputs, select_host_arrays
from gpu_executor.backend import Backend
from gpu_executor.calls.dispatch import ArrayDevice
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
from gpu_executor.executor.jobs import CallArguments, copy_exception, copy_exception_for_each
from gpu_executor.executor.result_check import ResultChecker, ResultSample
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings


def find_retry_obstacle(call: CallArguments, *, reopened: bool = True) -> str | None:
    """Why a call must not be retried; None if it may be. `reopened`: whether the retry runs on a
    device that was reopened after the call, or on another device."""
    if reopened and any(call.label_arrays()):
        return "its arrays were in the memory of the device that failed"
    if writes_in_place(call):
        return "its output overlaps one of its inputs, which may be overwritten already"
    return None


def writes_in_place(call: CallArguments) -> bool:
    """Whether an output of a call may overlap an array that it reads."""
    if call.out is None:
        return False
    targets = list_outputs(call.out)
    if any(
        np.may_share_memory(target, each)
        for target in select_host_arrays(targets)
        for each in select_host_arrays(call.arrays)
    ):
        return True
    arrays: Sequence[Any] = call.arrays
    read = [each.storage for each in arrays if isinstance(each, DeviceArray)]
    return any(
        isinstance(target, DeviceArray) and any(target.storage is each for each in read)
        for target in targets
    )


TRANSIENT_ERRORS = (VulkanError, OutOfMemoryError, ClosedError)
"""Errors that a retry may not meet again. DeviceLostError is a VulkanError. ClosedError is raised
while another thread reopens the device."""
LOSS_ERRORS = (DeviceLostError, ClosedError)
BATCH_TRIES = 2
"""Tries of a batch. Then its calls run one by one, each with all of its tries: one call may be what
makes the batch fail."""
DEVICE_LOST = -4
"""VK_ERROR_DEVICE_LOST."""
MAX_CONSECUTIVE_LOSSES = 3
"""A device that was lost in so many calls in a row, in every try, is quarantined if there are other
devices."""


T = TypeVar("T")


def _has_no_other_devices() -> bool:
    return False


class OpenDevice:
    """An open device of an executor. Thread-safe."""

    def __init__(
        self, candidate: DeviceCandidate, settings: Settings, tries: int, checker: ResultChecker
    ) -> None:
        self.candidate, self._settings, self._tries = candidate, settings, tries
        self._checker = checker
        self.backend: Backend = candidate.open(settings)
        self.array_device: ArrayDevice | None = self.backend.array_device
        """What holds the device arrays; None if the backend has none."""
        self._lost_memory: weakref.WeakSet[ArrayDevice] = weakref.WeakSet()
        """What held the device arrays of the backends that were lost."""
        self._reopening = threading.Lock()
        self._closed = False
        self._lost: Backend | None = None
        """The lost backend while the device is being reopened, which Ctrl-C may interrupt."""
        self.counts = DeviceCounts()
        self.metrics = DeviceMetrics(candidate, self.counts)
        self.failed: GpuError | None = None
        """Why the device is quarantined; None if it is usable."""
        self.consecutive_losses = 0
        """Calls in a row in which the device was lost, in every try."""
        self.has_other_devices: Callable[[], bool] = _has_no_other_devices
        """Whether the executor has another usable device."""
        self._profile: DeviceProfile | None = None
        self.metrics.log_open()

    def run(self, kernel: Kernel, call: CallArguments) -> Any:
        """Run one call, with retries. The exception it raises is not shared with other calls."""
        self.counts.calls += 1
        backend = self.backend
        sample: ResultSample | None = None
        try:
            if self._checker.fraction:
                sample = self._draw_sample_unless_recording(kernel, call)
            result = _run_call(backend, kernel, call)
        except TRANSIENT_ERRORS as error:
            result = self._retry(backend, kernel, call, error)
        if self.consecutive_losses:
            self.consecutive_losses = 0
        if sample is not None:
            self._check(sample, self._fetch_result(kernel, result))
        return call.wrap(result)

    def finish_failed(
        self, backend: Backend, kernel: Kernel, call: CallArguments, error: BaseException
    ) -> Any:
        """Retry a call that a backend of this device has just raised an error for, or raise that
        error."""
        self.counts.calls += 1
        try:
            if not isinstance(error, TRANSIENT_ERRORS):
                raise error
            result = self._retry(backend, kernel, call, error)
        finally:
            del error  # Break the exception -> traceback -> frame reference cycle.
        self.consecutive_losses = 0
        return call.wrap(result)

    def fetch(self, caller: str, results: Sequence[DeviceArray]) -> list[Any]:
        """Copy arrays to the host. If the device is lost meanwhile, it is reopened, and the error
        names the array. `caller` is the kernel or method that it names."""
        backend, memory = self.backend, self.array_device
        try:
            return [each.numpy() for each in results]
        except LOSS_ERRORS as error:
            if results[0].storage.device is memory:
                with contextlib.suppress(GpuError):  # the next call needs the device
                    self._recover(backend, error)
            for index, each in enumerate(results):
                if self.has_lost(each):
                    where = str(self.candidate)
                    raise make_lost_error(caller, f"result {index}", each, where) from error
            raise

    def use(self, operation: Callable[[Backend], T]) -> T:
        """The result of an operation of the backend that needs no device arrays. It is repeated
        after transient errors, as calls are."""
        for tried in itertools.count(1):
            backend = self.backend
            try:
                return operation(backend)
            except TRANSIENT_ERRORS as error:
                if tried >= self._tries:
                    raise
                self._recover(backend, error, reopens=tried > 1)
        raise AssertionError  # never reached: the loop returns or raises

    def synchronize(self) -> None:
        """Wait for all operations on the device's arrays, and raise the first error among them."""
        self.use_arrays(lambda backend: backend.synchronize())

    def use_arrays(self, operation: Callable[[Backend], T]) -> T:
        """The result of an operation of the backend on the arrays that it has. Nothing is repeated:
        a device that turns out to be lost is reopened for later calls."""
        backend = self.backend
        try:
            return operation(backend)
        except DeviceLostError as error:
            with contextlib.suppress(GpuError):
                self._recover(backend, error)
            error.add_note(f"{self.candidate} was lost, and its device arrays are gone with it")
            raise

    def has_lost_all_arrays(self) -> bool:
        """Whether the device was lost and could not be reopened."""
        return self.failed is not None and self.array_device in self._lost_memory

    def has_lost(self, array: DeviceArray) -> bool:
        """Whether an array was on this device before the device was lost."""
        return array.storage.device in self._lost_memory

    def run_calls(self, kernel: Kernel, calls: Sequence[CallArguments]) -> list[Any]:
        """Run calls as a batch, with retries. Returns the result or exception of each call."""
        if len(calls) == 1 or _must_run_alone(calls):
            return [self._run_to_outcome(kernel, call) for call in calls]
        self.counts.batches += 1
        samples = self._draw_samples(kernel, calls)
        for tried in itertools.count(1):
            backend = self.backend
            results, error = _run_batch(backend, kernel, calls)
            try:
                if error is None:
                    break
                if not self._prepare_batch_retry(backend, kernel, calls, error, tried):
                    # Run the calls one by one: this shows which of them fails.
                    return self._run_one_by_one(backend, kernel, calls, error)
            finally:
                del error  # Break the exception -> traceback -> frame reference cycle.
        self.counts.calls += len(calls)
        self.consecutive_losses = 0
        if samples is None:
            return [call.wrap(result) for call, result in zip(calls, results, strict=True)]
        return [
            self._check_outcome(call, sample, result)
            for call, sample, result in zip(calls, samples, results, strict=True)
        ]

    @property
    def is_unreliable(self) -> bool:
        """Whether the device is quarantined, or was lost in its last call."""
        return self.failed is not None or self.consecutive_losses > 0

    def quarantine(self, error: GpuError) -> None:
        """Give the device no more calls."""
        self.failed = copy_exception(error)  # without the traceback, which refers to the arrays
        self.metrics.log_quarantine(error)

    def make_quarantine_error(self) -> NoDeviceError:
        """A new exception for a call on the quarantined device."""
        return NoDeviceError(f"{self.candidate} is quarantined: {self.failed}")

    def start_profile(self, profile: DeviceProfile) -> None:
        """Record what the device does, also after it is reopened. Only one profile is active."""
        with self._reopening:
            if self._profile is not None:
                raise GpuError(
                    f"{self.candidate} is being profiled already: end that profile first"
                )
            self._profile, self.metrics.profile_spans = profile, profile.jobs
            profile.add_backend(self.backend)

    def stop_profile(self, profile: DeviceProfile) -> None:
        """Stop a profile if it is the active one, also after `start_profile` has raised."""
        with self._reopening:
            if self._profile is profile:
                self._profile = self.metrics.profile_spans = None

    def close(self) -> None:
        with self._reopening:
            self._closed = True
        self.backend.close()
        self.metrics.log_close()

    def _run_to_outcome(self, kernel: Kernel, call: CallArguments) -> Any:
        """Run one call; return its result or its exception."""
        try:
            return self.run(kernel, call)
        except Exception as error:
            self.counts.errors += 1
            return error

    def _prepare_batch_retry(
        self,
        backend: Backend,
        kernel: Kernel,
        calls: Sequence[CallArguments],
        error: Exception,
        tried: int,
    ) -> bool:
        """After a batch has failed: whether the batch is retried as a whole. Recovers the device if
        so."""
        if not isinstance(error, TRANSIENT_ERRORS) or tried >= min(BATCH_TRIES, self._tries):
            return False
        reopened = isinstance(error, LOSS_ERRORS)
        if any(find_retry_obstacle(call, reopened=reopened) for call in calls):
            return False
        self._recover(backend, error)
        self.metrics.count_retry(kernel, error)
        return True

    def _run_one_by_one(
        self, backend: Backend, kernel: Kernel, calls: Sequence[CallArguments], error: Exception
    ) -> list[Any]:
        """After a batch has failed: run each call alone where it may be retried. Returns the result
        or exception of each call."""
        transient, reopened = isinstance(error, TRANSIENT_ERRORS), isinstance(error, LOSS_ERRORS)
        if transient and self._tries == 1:
            self.counts.errors += len(calls)
            return copy_exception_for_each(error, len(calls))
        if isinstance(error, TRANSIENT_ERRORS):
            self._recover(backend, error)
            self.metrics.count_retry(kernel, error)
        outcomes: list[Any] = []
        lost = False
        for call in calls:
            obstacle = find_retry_obstacle(call, reopened=reopened)
            if obstacle is None and lost and self._should_be_quarantined():
                # Other devices will run this call: it fails like the call before it.
                outcomes.append(copy_exception(outcomes[-1]))
                continue
            if obstacle is None:
                outcomes.append(self._run_to_outcome(kernel, call))
                lost = isinstance(outcomes[-1], DeviceLostError)
                continue
            failure = copy_exception(error)
            failure.add_note(f"not retried: {obstacle}")
            self.counts.errors += 1
            outcomes.append(failure)
            lost = False
        return outcomes

    def _should_be_quarantined(self) -> bool:
        return self.consecutive_losses >= MAX_CONSECUTIVE_LOSSES and self.has_other_devices()

    def _retry(self, backend: Backend, kernel: Kernel, call: CallArguments, error: GpuError) -> Any:
        """Retry a call that has failed, until it succeeds or has no tries left."""
        try:
            for tried in itertools.count(1):
                reopens = tried > 1 or isinstance(error, LOSS_ERRORS)
                obstacle = find_retry_obstacle(call, reopened=reopens)
                if obstacle:
                    error.add_note(f"not retried: {obstacle}")
                    if isinstance(error, LOSS_ERRORS):
                        with contextlib.suppress(GpuError):  # the next call needs the device
                            self._recover(backend, error)
                        self._raise_if_lost(kernel, call, error)
                    raise error
                if tried >= self._tries:
                    break
                self._recover(backend, error, reopens=reopens)
                self.metrics.count_retry(kernel, error)
                backend = self.backend
                try:
                    return _run_call(backend, kernel, call)
                except TRANSIENT_ERRORS as another:
                    error = another
            self.consecutive_losses += isinstance(error, DeviceLostError)
            raise error
        finally:
            del error  # Break the exception -> traceback -> frame reference cycle.

    def _raise_if_lost(self, kernel: Kernel, call: CallArguments, error: GpuError) -> None:
        """Raise an error that names the first array of a call that is lost, if there is one."""
        for label, array in call.label_arrays():
            if self.has_lost(array):
                lost = make_lost_error(kernel.name, label, array, str(self.candidate))
                for note in error.__notes__:
                    lost.add_note(note)
                raise lost from error

    def _recover(self, backend: Backend, error: GpuError, *, reopens: bool = False) -> None:
        """Free memory or reopen the device before a retry. Only the first of several threads does
        so."""
        with self._reopening:
            if self._closed or isinstance(error, ForkedError):
                raise error
            if self.failed is not None:
                raise self.make_quarantine_error() from error
            if self.backend is not backend:
                return  # another thread has reopened the device
            if isinstance(error, ClosedError) and backend is not self._lost:
                raise error  # the backend was closed for good
            if isinstance(error, OutOfMemoryError):
                with contextlib.suppress(GpuError):  # the retry shows whether it helped
                    backend.trim()
            elif reopens or isinstance(error, LOSS_ERRORS):
                self._reopen(backend, error)

    def _reopen(self, backend: Backend, error: GpuError) -> None:
        self._lost = backend
        if self.array_device is not None:
            self._lost_memory.add(self.array_device)
        with contextlib.suppress(Exception):  # a lost device may fail to close
            backend.close()
        try:
            self.backend = self.candidate.open(self._settings)
            self.array_device = self.backend.array_device
        except Exception as refused:
            self.quarantine(NoDeviceError(f"it was lost and could not be reopened: {refused}"))
            raise self.make_quarantine_error() from error
        self._lost = None
        self.metrics.count_reopening(error)
        if self._profile is not None:
            with contextlib.suppress(GpuError):  # lost again, perhaps: the retry shows
                self._profile.add_backend(self.backend)

    def _draw_sample_unless_recording(
        self, kernel: Kernel, call: CallArguments
    ) -> ResultSample | None:
        """The sample of a call to check. A call that becomes part of a graph has no result yet, so
        it is not checked."""
        if self.array_device is not None and self.array_device.is_recording:
            self._checker.count_unchecked()
            return None
        return self._checker.sample(kernel, *call[:4])

    def _fetch_result(self, kernel: Kernel, result: Any) -> Any:
        """The result of a call, on the host."""
        results = list_outputs(result)
        if not isinstance(results[0], DeviceArray):
            return result
        return tuple(self.fetch(kernel.name, results))

    def _draw_samples(
        self, kernel: Kernel, calls: Sequence[CallArguments]
    ) -> list[ResultSample | Exception | None] | None:
        """The samples of a batch to check, None for a call that is not checked."""
        if not self._checker.fraction:
            return None
        return [self._draw_sample(kernel, call) for call in calls]

    def _draw_sample(self, kernel: Kernel, call: CallArguments) -> ResultSample | Exception | None:
        """The sample of one call in a batch. An exception is returned: it is this call's only."""
        try:
            return self._checker.sample(kernel, *call[:4])
        except Exception as error:
            return error

    def _check(self, sample: ResultSample, result: Any) -> None:
        try:
            sample.compare(result, str(self.candidate))
        except WrongResultError as error:  # other errors come from the kernel's reference
            self.quarantine(error)
            raise

    def _check_outcome(
        self, call: CallArguments, sample: ResultSample | Exception | None, result: Any
    ) -> Any:
        """Check the result of a call; return what the caller gets: it, or the exception of the
        check."""
        if isinstance(sample, Exception):
            self.counts.errors += 1
            return sample
        try:
            if sample is not None:
                self._check(sample, result)
        except Exception as error:
            self.counts.errors += 1
            return error
        return call.wrap(result)


def _must_run_alone(calls: Sequence[CallArguments]) -> bool:
    """Whether calls must run one after the other and not as a batch.

    Batches have no `out_shape`. A retry of a batch would run calls that write in place on inputs
    that are overwritten. Calls of several `submit`s may overlap: these run in the order in which
    they were submitted.
    """
    if any(call.out_shape is not None or writes_in_place(call) for call in calls):
        return True
    conflict = find_conflict([call.arrays for call in calls], [call.out for call in calls])
    return conflict is not None


def _run_call(backend: Backend, kernel: Kernel, call: CallArguments) -> Any:
    arrays, out, params, out_shape, keep = call
    return backend.run(kernel, *arrays, out=out, keep=keep, params=params, out_shape=out_shape)


def _run_batch(
    backend: Backend, kernel: Kernel, calls: Sequence[CallArguments]
) -> tuple[list[Any], Exception | None]:
    """Run calls as one coalesced call or as a batch. Returns the results, or the exception.

    The exception is not raised, so that it does not become the `__context__` of exceptions in the
    calls that run one by one afterwards.
    """
    try:
        coalesced = coalesce(kernel, calls)
        if coalesced is None:
            arrays, outs, params, _, _ = zip(*calls, strict=True)
            return backend.run_batch(kernel, arrays, out=outs, params=[*params]), None
        call, shapes = coalesced
        return split_results(kernel, _run_call(backend, kernel, call), shapes), None
    except Exception as error:
        return [], error


def make_lost_error(caller: str, label: str, array: DeviceArray, device: str) -> DeviceLostError:
    """The error of a call on an array whose device was lost; `caller` is the kernel or method."""
    error = DeviceLostError(caller, DEVICE_LOST, "the device of an array was lost")
    error.args = (
        f"{caller}: {describe_array(label, array)} was on {device}, which was lost, and its "
        "elements are gone with it; copy them to the device again with gpu.to_device(...)",
    )
    return error


def describe_array(label: str, array: DeviceArray) -> str:
    return f"{label}, a device array of shape {array.shape} and dtype {array.dtype},"
