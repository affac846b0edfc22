"""Forms: the outcome of checking a call, remembered for the next call with arrays like its."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from gpu_executor.call import AnyArray, Call, Form, check
from gpu_executor.errors import ArgumentTypeError, GpuError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import remember

REMEMBERED = 1024


def kinds(arrays: Sequence[AnyArray]) -> list[Hashable]:
    """What tells the forms of calls apart."""
    return [(type(array), array.dtype, array.shape) for array in arrays]


class Forms:
    """One of these belongs to a backend; `on_card` says whether it takes arrays on the card."""

    def __init__(self, *, on_card: bool = True) -> None:
        self._on_card = on_card
        self._known: dict[Hashable, Form] = {}

    def form(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> Form:
        """The form of a call; what does not fit the kernel raises in words."""
        try:
            key = (id(kernel), *kinds(arrays))
        except AttributeError:
            return check(
                kernel, arrays, on_card=self._on_card
            )  # something among them is no array: the check says so
        form = self._known.get(key)
        if form is None:
            form = check(kernel, arrays, on_card=self._on_card)
            # The form keeps the kernel, so that its id stays its own.
            remember(self._known, key, form, REMEMBERED)
        return form

    def job(self, kernel: Kernel, job: Sequence[AnyArray], index: int, out: Any) -> Call:
        """A job of a batch as a call; what is wrong with it is said with its index."""
        try:
            if not isinstance(job, tuple | list):
                raise ArgumentTypeError(f"a job is a tuple of arrays, not a {type(job).__name__}")
            call = self.form(kernel, job).call(job)
            call.job = index
            if out is not None:
                call.use_outputs(out)
        except GpuError as error:
            error.args = (f"job {index}: {error}",)
            raise
        return call
