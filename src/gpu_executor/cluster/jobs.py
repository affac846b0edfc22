"""Jobs: calls that were submitted to the cluster, and the limit on how many may be pending."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ray import ObjectRef

from gpu_executor.call import Array, check
from gpu_executor.errors import ArgumentTypeError, ClosedError, QueueFullError
from gpu_executor.kernel import Kernel
from gpu_executor.settings import WhenFull

# --- one job ---


@dataclass(slots=True, eq=False)
class ClusterJob:
    """One call of a kernel, from `submit` until its future is done."""

    kernel: Kernel
    arrays: Sequence[Any]
    """NumPy arrays, and Ray references to arrays in the object store."""
    out: Any
    nbytes: int
    """Size of the inputs and results in bytes. References, and the results of a job that has
    references, count as 0."""
    future: Future[Any] = field(default_factory=Future)
    has_references: bool = False
    """Whether `arrays` contains references, any of which may resolve to an exception."""
    actor_deaths: int = 0
    """Actors that died while they had this job."""
    last_slot: object = None
    """The slot of the actor that failed last while it had this job."""

    @property
    def needs_own_message(self) -> bool:
        """Whether the job is sent alone, because its failure could fail its whole message."""
        return self.has_references or self.suspected

    @property
    def suspected(self) -> bool:
        """Whether this job may have killed an actor.

        All jobs of a dead actor are suspected, including those that it had finished: a reply that
        was sent just before the death is lost.
        """
        return self.actor_deaths > 0

    def start(self) -> bool:
        """Mark the future as running; return False if it was cancelled."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def complete(self, result: Any) -> None:
        """Set the future's result, after copying it into `out` if that was given."""
        if self.out is None:
            self.future.set_result(result)
            return
        try:
            for target, value in zip(_as_sequence(self.out), _as_sequence(result), strict=True):
                np.copyto(target, value, casting="no")
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.out)


def create_job(kernel: Kernel, arrays: Sequence[Any], out: Any) -> ClusterJob:
    """Check a call against its kernel and return it as a job, without sending anything."""
    if any(isinstance(each, ObjectRef) for each in arrays):
        return _create_job_with_references(kernel, arrays, out)
    signature = check(kernel, arrays, on_device=False)
    if out is not None:
        signature.make_call(arrays).use_outputs(out)
    results = sum(math.prod(shape) * dtype.itemsize for shape, dtype in signature.results)
    return ClusterJob(kernel, arrays, out, _count_bytes(arrays) + results)


def _create_job_with_references(kernel: Kernel, arrays: Sequence[Any], out: Any) -> ClusterJob:
    """Return a job with references; the actor checks the arrays when it reads them."""
    if out is not None:
        raise ArgumentTypeError(
            f"{kernel.name}: out= cannot be used with references to Ray's object store, because "
            "the shapes of references are not known here; use the returned result"
        )
    for index, each in enumerate(arrays):
        if isinstance(each, ObjectRef):
            continue
        if not isinstance(each, np.ndarray) or each.dtype.hasobject:
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is a {type(each).__name__}; it must be a NumPy "
                "array of numbers, or a reference to one in Ray's object store"
            )
    return ClusterJob(kernel, arrays, None, _count_bytes(arrays), has_references=True)


def _count_bytes(arrays: Sequence[Any]) -> int:
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))


def _as_sequence(result: Any) -> Sequence[Array]:
    return result if isinstance(result, tuple | list) else (result,)


# --- all jobs ---


class AdmissionControl:
    """Bounds the pending calls of an executor: those that have no answer yet.

    A caller whose call exceeds the limits waits or gets `QueueFullError`. Thread-safe.
    """

    def __init__(self) -> None:
        self.max_calls = self._max_bytes = 0
        # Reentrant: garbage collection may finalize, and so close, an executor on any thread at
        # any time, even while that thread holds this lock.
        self._changed = threading.Condition(threading.RLock())
        self.closed = False
        self.calls = 0
        """Pending calls."""
        self.nbytes = 0
        """Bytes of the pending calls."""

    def set_limits(self, max_calls: int, max_bytes: int) -> None:
        """Change the limits; calls that are already pending remain admitted."""
        with self._changed:
            self.max_calls, self._max_bytes = max_calls, max_bytes
            self._changed.notify_all()

    def acquire(self, nbytes: int, when_full: WhenFull | None) -> None:
        """Count one more call as soon as the limits allow it; with `when_full=None`, at once."""
        with self._changed:
            while not (self.closed or when_full is None or self._fits(nbytes)):
                if when_full == "raise":
                    raise QueueFullError(
                        f"{self.calls:,} calls of {self.nbytes:,} bytes have no answer yet; one "
                        f"more of {nbytes:,} bytes would exceed the limit of {self.max_calls:,} "
                        f"calls or {self._max_bytes:,} bytes. Wait for results, or open the "
                        "executor with a larger in_flight= or in_flight_bytes=, or with "
                        "when_full='block'"
                    )
                self._changed.wait()
            if self.closed:
                raise ClosedError("the executor is shut down; open another one")
            self.calls += 1
            self.nbytes += nbytes

    def release(self, nbytes: int) -> None:
        """Stop counting a call, because it has its answer."""
        with self._changed:
            self.calls -= 1
            self.nbytes -= nbytes
            self._changed.notify_all()

    def close(self) -> None:
        """Admit no more calls; callers that wait in `acquire` get `ClosedError`."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _fits(self, nbytes: int) -> bool:
        """Return whether the limits allow one more call. A single call fits, however large it
        is.
        """
        if self.calls == 0:
            return True
        return self.calls < self.max_calls and self.nbytes + nbytes <= self._max_bytes
