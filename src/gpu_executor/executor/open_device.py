"""A device that is open, and opened again when it was lost. What failed is run again, a few times:
kernels are pure, and the host has their inputs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.errors import DeviceLostError, GpuError, OutOfMemoryError, VulkanError
from gpu_executor.executor.checking import Checking
from gpu_executor.executor.counts import Counts
from gpu_executor.executor.jobs import Arrays
from gpu_executor.executor.joining import joined, parted
from gpu_executor.executor.journal import Journal
from gpu_executor.executor.seats import Seat
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

PASSING = (VulkanError, OutOfMemoryError)
"""What may not happen again: a lost device is one of the first."""


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
        try:
            result = backend.run(kernel, *arrays, out=out)
        except PASSING as error:
            result = self._again(backend, kernel, arrays, out, error)
        if self._checking.fraction:
            self._check(kernel, arrays, result)
        return result

    def run_calls(self, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any]) -> list[Any]:
        """Many calls at once: for each its result, or the error that is its own."""
        if len(calls) == 1:
            return [self._outcome(kernel, calls[0], outs[0])]
        self.counts.batches += 1
        backend = self.backend
        try:
            results = _together(backend, kernel, calls, outs)
        except Exception as error:
            # Whose it is shows when each is run alone.
            if isinstance(error, PASSING):
                self._recover(backend, error)
            return [
                self._outcome(kernel, arrays, out) for arrays, out in zip(calls, outs, strict=True)
            ]
        self.counts.calls += len(calls)
        if not self._checking.fraction:
            return results
        return [
            self._checked(kernel, arrays, result)
            for arrays, result in zip(calls, results, strict=True)
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
            why = _not_repeatable(arrays, out)
            if why:
                error.add_note(f"not run again: {why}")
                break
            self._recover(backend, error)
            self.journal.retried(kernel, error)
            backend = self.backend
            try:
                return backend.run(kernel, *arrays, out=out)
            except PASSING as another:
                error = another
        raise error

    def _recover(self, backend: Backend, error: GpuError) -> None:
        """Make the next try more likely to succeed; of several threads one does it."""
        with self._reopening:
            if self.backend is not backend:
                return  # another thread was here
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

    def _check(self, kernel: Kernel, arrays: Arrays, result: Any) -> None:
        try:
            self._checking.check(kernel, arrays, result, str(self.seat))
        except GpuError as error:
            self._leave_alone(error)
            raise

    def _leave_alone(self, error: GpuError) -> None:
        self.failed = error
        self.journal.left_alone(error)

    def _checked(self, kernel: Kernel, arrays: Arrays, result: Any) -> Any:
        try:
            self._check(kernel, arrays, result)
        except GpuError as error:
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


def _not_repeatable(arrays: Arrays, out: Any) -> str | None:
    """Why a call must not be made again, if so."""
    if not all(isinstance(each, np.ndarray) for each in arrays):
        return "its arrays were on the card that failed"
    outs = out if isinstance(out, tuple | list) else [out]
    for target in outs:
        if target is not None and any(np.may_share_memory(target, each) for each in arrays):
            return "its output is one of its inputs, which may be overwritten"
    return None
