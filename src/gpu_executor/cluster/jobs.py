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

from gpu_executor.calls.arguments import describe
from gpu_executor.calls.call import Array, as_arrays, check
from gpu_executor.errors import ArgumentTypeError, ClosedError, QueueFullError
from gpu_executor.executor.jobs import CallArguments
from gpu_executor.kernel import Kernel
from gpu_executor.settings import WhenFull

# --- one job ---


@dataclass(slots=True, eq=False)
class ClusterJob:
    """One call of a kernel, from `submit` until its future is done."""

    kernel: Kernel
    call: CallArguments
    """Its arrays are NumPy arrays, and Ray references to arrays in the object store."""
    nbytes: int
    """Size of the inputs and results in bytes. References, and the results of a job that has
    references, count as 0."""
    future: Future[Any] = field(default_factory=Future)
    has_references: bool = False
    """Whether there are references among the arrays, any of which may resolve to an exception."""
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
        if self.call.out is None:
            self.future.set_result(self.call.wrap(result))
            return
        try:
            targets = _as_sequence(self.call.out)
            for target, value in zip(targets, _as_sequence(result), strict=True):
                np.copyto(_view_as(target, value.dtype), value, casting="no")
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.call.wrap(self.call.out))


def create_job(kernel: Kernel, call: CallArguments) -> ClusterJob:
    """Check a call against its kernel and return it as a job, without sending anything."""
    arrays = as_arrays(kernel, call.arrays)  # raises for what could not be converted
    if any(isinstance(each, ObjectRef) for each in call.arrays):
        return _create_job_with_references(kernel, call)
    signature = check(kernel, arrays, on_device=False, out_shape=call.out_shape)
    checked = signature.make_call(arrays, call.params)
    if call.out is not None:
        checked.use_outputs(call.out)
    results = sum(math.prod(shape) * dtype.itemsize for shape, dtype in signature.results)
    return ClusterJob(kernel, call, call.count_input_bytes() + results)


def _create_job_with_references(kernel: Kernel, call: CallArguments) -> ClusterJob:
    """Return a job with references; the actor checks the arrays when it reads them."""
    if call.out is not None:
        raise ArgumentTypeError(
            f"{kernel.name}: out= cannot be used with references to Ray's object store, because "
            "the shapes of references are not known here; use the returned result"
        )
    for index, each in enumerate(call.arrays):
        if isinstance(each, ObjectRef):
            continue
        if not isinstance(each, np.ndarray) or each.dtype.hasobject:
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is {describe(each)}; it must be a NumPy "
                "array of numbers, or a reference to one in Ray's object store"
            )
    return ClusterJob(kernel, call, call.count_input_bytes(), has_references=True)


def _as_sequence(result: Any) -> Sequence[Array]:
    return result if isinstance(result, tuple | list) else (result,)


def _view_as(array: Array, dtype: np.dtype[Any]) -> Array:
    """An array of structs with other names of its fields; any other array as it is."""
    return array if dtype.names is None else array.view(dtype)


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
