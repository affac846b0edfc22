"""Which calls may be run again: kernels are pure, but outputs may lie over inputs."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.executor.jobs import Arrays


class Overwritten:
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


def not_repeatable(arrays: Arrays, out: Any, *, moves: bool = True) -> str | None:
    """Why a call must not be made again, if so; `moves`: on a device that was opened since."""
    if moves and not all(isinstance(each, np.ndarray) for each in arrays):
        return "its arrays were on the card that failed"
    if in_place(arrays, out):
        return "its output is one of its inputs, which may be overwritten"
    return None


def not_again(arrays: Arrays, out: Any, written: Overwritten, *, gone: bool) -> str | None:
    """The same for a call in a batch that failed."""
    if written.any_of(arrays):
        return "an output of its batch is one of its inputs, which may be overwritten"
    return not_repeatable(arrays, out, moves=gone)


def in_place(arrays: Arrays, out: Any) -> bool:
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
