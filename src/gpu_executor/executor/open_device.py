"""A device that is open, and opened again when it was lost. What failed is run again, a few times:
kernels are pure, and the host has their inputs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.errors import (
    ClosedError,
    DeviceLostError,
    GpuError,
    OutOfMemoryError,
    VulkanError,
)
from gpu_executor.executor.checking import Checking, Sample
from gpu_executor.executor.counts import Counts
from gpu_executor.executor.jobs import Arrays
from gpu_executor.executor.joining import joined, parted
from gpu_executor.executor.journal import Journal
from gpu_executor.executor.seats import Seat
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

PASSING = (VulkanError, OutOfMemoryError)
"""What may not happen again: a lost device is one of the first."""
AGAIN = (*PASSING, ClosedError)
"""The last where another thread has closed the backend, to open the device again."""


class OpenDevice:
    """Safe from several threads."""

    def __init__(self, seat: Seat, settings: Settings, tries: int, checking: Checking) -> None:
        self.seat, self._settings, self._tries = seat, settings, tries
        self._checking = checking
        self.backend: Backend = seat.open(settings)
        self._reopening = threading.Lock()
        self.counts = Counts()
        self.journal = Journal(seat, self.counts)
        self.failed: GpuError | None = None
        """Why it is left alone from now on."""
        self.journal.opened()

    def run(self, kernel: Kernel, arrays: Arrays, out: Any = None) -> Any:
        """One call; whatever it raises in the end is this call's own."""
        self.counts.calls += 1
        backend = self.backend
        sample = self._checking.sample(kernel, arrays) if self._checking.fraction else None
        try:
            result = backend.run(kernel, *arrays, out=out)
        except AGAIN as error:
            result = self._again(backend, kernel, arrays, out, error)
        if sample is not None:
            self._check(sample, result)
        return result

    def run_calls(self, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any]) -> list[Any]:
        """Many calls at once: for each its result, or the error that is its own."""
        pairs = list(zip(calls, outs, strict=True))
        if len(calls) == 1 or any(_in_place(arrays, out) for arrays, out in pairs):
            # Together they might all have to be run again, some with inputs that are overwritten.
            return [self._outcome(kernel, arrays, out) for arrays, out in pairs]
        self.counts.batches += 1
        backend, samples = self.backend, self._samples(kernel, calls)
        try:
            results = _together(backend, kernel, calls, outs)
        except Exception as error:
            # Whose it is shows when each is run alone.
            if isinstance(error, PASSING):
                self._recover(backend, error)
            return [self._outcome(kernel, arrays, out) for arrays, out in pairs]
        self.counts.calls += len(calls)
        if samples is None:
            return results
        return [
            self._checked(sample, result) for sample, result in zip(samples, results, strict=True)
        ]

    def close(self) -> None:
        self.backend.close()
        self.journal.closed()

    def _outcome(self, kernel: Kernel, arrays: Arrays, out: Any) -> Any:
        try:
            return self.run(kernel, arrays, out)
        except Exception as error:
            self.counts.errors += 1
            return error

    def _again(
        self, backend: Backend, kernel: Kernel, arrays: Arrays, out: Any, error: GpuError
    ) -> Any:
        for _ in range(self._tries - 1):
            why = not_repeatable(arrays, out)
            if why:
                error.add_note(f"not run again: {why}")
                break
            self._recover(backend, error)
            self.journal.retried(kernel, error)
            backend = self.backend
            try:
                return backend.run(kernel, *arrays, out=out)
            except AGAIN as another:
                error = another
        raise error

    def _recover(self, backend: Backend, error: GpuError) -> None:
        """Make the next try more likely to succeed; of several threads one does it."""
        with self._reopening:
            if self.backend is not backend:
                return  # another thread was here
            if isinstance(error, ClosedError):
                raise error  # for good
            if isinstance(error, DeviceLostError):
                with contextlib.suppress(GpuError):
                    backend.close()
                try:
                    self.backend = self.seat.open(self._settings)
                except GpuError as refused:
                    self._leave_alone(refused)
                    raise
                self.journal.reopened(error)
            elif isinstance(error, OutOfMemoryError):
                trim = getattr(backend, "trim", None)
                if trim is not None:
                    trim()

    def _samples(self, kernel: Kernel, calls: Sequence[Arrays]) -> list[Sample | None] | None:
        if not self._checking.fraction:
            return None
        return [self._checking.sample(kernel, arrays) for arrays in calls]

    def _check(self, sample: Sample, result: Any) -> None:
        try:
            sample.compare(result, str(self.seat))
        except GpuError as error:
            self._leave_alone(error)
            raise

    def _leave_alone(self, error: GpuError) -> None:
        self.failed = error
        self.journal.left_alone(error)

    def _checked(self, sample: Sample | None, result: Any) -> Any:
        try:
            if sample is not None:
                self._check(sample, result)
        except Exception as error:
            return error
        return result


def _together(
    backend: Backend, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any]
) -> list[Any]:
    one = joined(kernel, calls) if all(out is None for out in outs) else None
    if one is None:
        return backend.run_batch(kernel, calls, out=outs)
    arrays, shapes = one
    return parted(kernel, backend.run(kernel, *arrays), shapes)


def not_repeatable(arrays: Arrays, out: Any) -> str | None:
    """Why a call must not be made again, if so."""
    if not all(isinstance(each, np.ndarray) for each in arrays):
        return "its arrays were on the card that failed"
    if _in_place(arrays, out):
        return "its output is one of its inputs, which may be overwritten"
    return None


def _in_place(arrays: Arrays, out: Any) -> bool:
    if out is None:
        return False
    return any(
        np.may_share_memory(target, each)
        for target in (out if isinstance(out, tuple | list) else [out])
        for each in arrays
        if isinstance(each, np.ndarray) and isinstance(target, np.ndarray)
    )
