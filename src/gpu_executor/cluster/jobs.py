"""Jobs: calls that were asked of the cluster, until their futures have the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ray import ObjectRef

from gpu_executor.call import Array, check
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.kernel import Kernel


@dataclass(slots=True, eq=False)
class Job:
    """One call of a kernel."""

    kernel: Kernel
    arrays: Sequence[Any]
    """NumPy arrays, and references to arrays that are in the object store already."""
    out: Any
    nbytes: int
    """Of what it reads and of its results, as far as they are known here."""
    future: Future[Any] = field(default_factory=Future)
    refers: bool = False
    """Whether it has references, which may turn out to be to errors."""
    deaths: int = 0
    """Actors that died while they may have been running it."""
    last: object = None
    """Where it died last."""

    @property
    def alone(self) -> bool:
        """Whether it travels by itself, since its end may be that of all that travel with it."""
        return self.refers or self.suspected

    @property
    def suspected(self) -> bool:
        """Whether an actor died of it, or of another that it had there; which, one cannot see: an
        answer is lost that was given a moment before the death."""
        return self.deaths > 0

    def begin(self) -> bool:
        """False where it was cancelled meanwhile."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def answer(self, result: Any) -> None:
        """Give the future its result, copied to where the caller wants it, if anywhere."""
        if self.out is None:
            self.future.set_result(result)
            return
        try:
            for target, value in zip(_several(self.out), _several(result), strict=True):
                np.copyto(target, value, casting="no")
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.out)


def job_of(kernel: Kernel, arrays: Sequence[Any], out: Any) -> Job:
    """A call that fits its kernel; what does not is refused here, before anything travels."""
    if any(isinstance(each, ObjectRef) for each in arrays):
        return _with_references(kernel, arrays, out)
    form = check(kernel, arrays, on_card=False)
    if out is not None:
        form.call(arrays).use_outputs(out)
    results = sum(math.prod(shape) * dtype.itemsize for shape, dtype in form.results)
    return Job(kernel, arrays, out, _nbytes(arrays) + results)


def _with_references(kernel: Kernel, arrays: Sequence[Any], out: Any) -> Job:
    """What they refer to is checked where it is read."""
    if out is not None:
        raise ArgumentTypeError(
            f"{kernel.name}: out= is for calls on arrays; the shapes of references are not known"
        )
    for index, each in enumerate(arrays):
        if isinstance(each, ObjectRef):
            continue
        if not isinstance(each, np.ndarray) or each.dtype.hasobject:
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is a {type(each).__name__}; it takes a NumPy "
                "array of numbers, or a reference to one in Ray's object store"
            )
    return Job(kernel, arrays, None, _nbytes(arrays), refers=True)


def _nbytes(arrays: Sequence[Any]) -> int:
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))


def _several(result: Any) -> Sequence[Array]:
    return result if isinstance(result, tuple | list) else (result,)
