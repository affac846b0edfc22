"""Trust: a sample of what a device computed, computed again on the CPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.errors import WrongResultError
from gpu_executor.executor.jobs import Arrays
from gpu_executor.kernel import Kernel


class Checking:
    """Checks a fraction of the elements of each call, one at least; or of the calls, where a kernel
    is not made of elements."""

    def __init__(self, fraction: float, seed: int | None = None) -> None:
        self.fraction = fraction
        self._draw = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self.checked = 0
        """Elements and whole calls."""

    def check(self, kernel: Kernel, arrays: Arrays, result: Any, where: str) -> None:
        """Raise `WrongResultError` with the first index that is not what the CPU has."""
        if kernel.reference is None or not all(isinstance(each, np.ndarray) for each in arrays):
            return
        results = result if isinstance(result, tuple) else (result,)
        if kernel.split == "elements":
            self._check_elements(kernel, arrays, results, where)
        elif self._drawn(1):
            self._compare(kernel, kernel.reference(*arrays), results, None, where)

    def _check_elements(
        self, kernel: Kernel, arrays: Arrays, results: tuple[Array, ...], where: str
    ) -> None:
        assert kernel.reference is not None and kernel.types is not None
        own = len(kernel.types[0].shape)
        shape = arrays[0].shape[: arrays[0].ndim - own]
        count = int(np.prod(shape))
        at = self._sample(count)
        if not len(at):
            return
        inputs, outputs = kernel.types[: kernel.inputs], kernel.types[kernel.inputs :]
        picked = [_rows(each, type_.shape)[at] for each, type_ in zip(arrays, inputs, strict=True)]
        found = tuple(
            _rows(each, type_.shape)[at] for each, type_ in zip(results, outputs, strict=True)
        )
        self._compare(kernel, kernel.reference(*picked), found, at, where)

    def _compare(
        self,
        kernel: Kernel,
        computed: Any,
        found: tuple[Array, ...],
        at: Array | None,
        where: str,
    ) -> None:
        expected = computed if isinstance(computed, tuple | list) else (computed,)
        for output, (right, got) in enumerate(zip(expected, found, strict=True)):
            wrong = np.asarray(right).reshape(got.shape) != got
            differ = np.nonzero(wrong.reshape(len(got) if got.ndim else 1, -1).any(1))[0]
            if len(differ):
                index = int(differ[0] if at is None else at[differ[0]])
                raise WrongResultError(
                    f"{kernel.name} on {where}: element {index} of output {output} is not what "
                    "the CPU computes; the device is left alone from now on"
                )

    def _sample(self, count: int) -> Array:
        """Indices, in order."""
        wanted = min(max(round(count * self.fraction), 1), count)
        with self._lock:
            self.checked += wanted
            if wanted == count:
                return np.arange(count)
            return np.unique(self._draw.integers(0, count, wanted))

    def _drawn(self, count: int) -> bool:
        with self._lock:
            chosen = bool(self._draw.random() < self.fraction)
            self.checked += count * chosen
            return chosen


def _rows(array: Array, element: tuple[int, ...]) -> Array:
    return array.reshape(-1, *element)
