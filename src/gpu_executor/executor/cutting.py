"""Large calls cut along their elements, so that several devices can run one of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_executor.call import Call, check
from gpu_executor.errors import ElementRangeError, GpuError, WrongResultError
from gpu_executor.executor.jobs import Arrays, read_bytes
from gpu_executor.executor.shared_jobs import Part, SharedJob
from gpu_executor.kernel import Kernel

UNIT_BYTES = 1 << 20
"""Of the inputs: a device is busy with so much for longer than it takes to hand it over."""
LEAST_UNITS = 4
"""What is shorter is run by one device."""


@dataclass(slots=True, eq=False)
class CutCall(SharedJob):
    """One call; its units are so many elements each, and a part of it is a call on slices."""

    call: Call = field(kw_only=True)
    unit: int = field(kw_only=True)
    """Elements."""

    @property
    def units(self) -> int:
        return -(-self.call.form.count // self.unit)

    def part(self, units: range) -> Part:
        taken = slice(units.start * self.unit, units.stop * self.unit)
        outs = tuple(each[taken] for each in self.call.outputs)
        return self._part(units, [tuple(each[taken] for each in self.call.inputs)], [outs])

    def _put_together(self, parts: list[Sequence[Any]]) -> None:
        for first, (outcome,) in zip(sorted(self._came), parts, strict=True):
            if isinstance(outcome, ElementRangeError | WrongResultError):
                self.answer([outcome.behind(first * self.unit)])
                return
            if isinstance(outcome, BaseException):
                self.answer([outcome])
                return
        self.answer([self.call.result()])


def cut(kernel: Kernel, arrays: Arrays, out: Any, future: Future[Any]) -> CutCall | None:
    """A call that devices can share; None where it is not worth it, or not possible.

    What does not fit the kernel is left to be refused by whoever runs it in one piece.
    """
    if read_bytes(arrays) < LEAST_UNITS * UNIT_BYTES or not _can_be_cut(kernel, arrays):
        return None
    try:
        form = check(kernel, arrays)
        call = form.call(arrays)
        if out is not None:
            call.use_outputs(out)
    except GpuError:
        return None
    call.make_outputs()
    nbytes = read_bytes(arrays)
    unit = max(form.count * UNIT_BYTES // nbytes, 1)
    outs = [tuple(call.results)]
    return CutCall(kernel, [arrays], outs, True, future, nbytes, call=call, unit=unit)


def _can_be_cut(kernel: Kernel, arrays: Arrays) -> bool:
    """Push constants that follow from shapes would be others for a piece."""
    whole = kernel.split != "elements" or kernel.push_of is not None
    return not whole and all(isinstance(each, np.ndarray) for each in arrays)
