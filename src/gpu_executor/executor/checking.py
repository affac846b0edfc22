"""Trust: a sample of what a device computed, computed again on the CPU.

Whole numbers must be the same. Floats need not: a device may fuse a product with a sum, add in
another order, flush what is nearly zero. They must agree to half of their digits, measured by the
largest value among those that are compared, and for kernels that are not made of elements by the
largest input too, since terms of a sum may cancel. That finds a broken device, not a sloppy kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.call import AnyArray, Array
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import SettingsError, WrongResultError
from gpu_executor.kernel import Kernel, Shape, native


class Checking:
    """Checks a fraction of the elements of each call, one at least; or of the calls, where a kernel
    is not made of elements. Safe from several threads."""

    def __init__(self, fraction: float, seed: int | None = None) -> None:
        if not 0 <= fraction <= 1:
            raise SettingsError(f"check is {fraction}; it is a part of the results, 0 to 1")
        self.fraction = fraction
        self._draw = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self.checked = 0
        """Elements and whole calls."""
        self.unchecked = 0
        """Calls that could not be checked: their kernels have no reference."""

    def sample(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> Sample | None:
        """What is to be computed again of a call that is yet to run, which may overwrite its
        inputs; None: nothing of it. Arrays on a card are fetched as a whole."""
        if kernel.reference is None:
            with self._lock:
                self.unchecked += 1
            return None
        if len(arrays) != kernel.inputs or not all(_is_array(each) for each in arrays):
            return None  # the call will be refused
        if kernel.split == "whole":
            whole = [np.array(_on_host(each)) for each in arrays] if self._drawn() else None
            return None if whole is None else Sample(kernel, whole, None)
        rows = [
            _rows(_on_host(array), shape)
            for array, shape in zip(arrays, _shapes(kernel)[: kernel.inputs], strict=True)
        ]
        if any(len(each) != len(rows[0]) for each in rows) or not len(rows[0]):
            return None
        at = self._indices(len(rows[0]))
        picked = [each[at] for each in rows]
        return Sample(kernel, [each.astype(native(each.dtype)) for each in picked], at)

    def _indices(self, count: int) -> Array:
        """In order."""
        wanted = min(max(round(count * self.fraction), 1), count)
        with self._lock:
            at = np.arange(count)
            if wanted < count:
                at = np.unique(self._draw.integers(0, count, wanted))
            self.checked += len(at)
            return at

    def _drawn(self) -> bool:
        with self._lock:
            drawn = bool(self._draw.random() < self.fraction)
            self.checked += drawn
            return drawn


class Sample:
    """Inputs that are computed again, and their indices."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Array], at: Array | None) -> None:
        self._kernel, self._inputs = kernel, inputs
        self._at = at
        """None: all of it."""

    def compare(self, result: Any, where: str) -> None:
        """Raise `WrongResultError` with the first index that is not what the CPU has."""
        assert self._kernel.reference is not None
        with np.errstate(all="ignore"):  # a device overflows without a word
            computed = self._kernel.reference(*self._inputs)
        expected = computed if isinstance(computed, tuple | list) else (computed,)
        results = result if isinstance(result, tuple) else (result,)
        shapes = _shapes(self._kernel)[self._kernel.inputs :]
        for output, (right, got) in enumerate(zip(expected, results, strict=True)):
            found = _rows(_on_host(got), shapes[output])
            found = found if self._at is None else found[self._at]
            wrong = self._differ(np.asarray(right).reshape(found.shape), found)
            if wrong.any():
                first = int(np.argmax(wrong.reshape(len(found), -1).any(1)))
                index = first if self._at is None else int(self._at[first])
                raise WrongResultError(self._kernel.name, output, index, where)

    def _differ(self, right: Array, found: Array) -> Array:
        if found.dtype.kind not in "fc":
            return np.asarray(right != found)
        compared = [right] if self._at is not None else [right, *self._inputs]
        nearly = float(np.finfo(found.dtype).eps) ** 0.5 * max(map(_largest, compared))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(found - right) <= nearly
        same = (found == right) | (np.isnan(found) & np.isnan(right))
        return np.asarray(~(near | same))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | DeviceArray)


def _on_host(array: AnyArray) -> Array:
    return array.numpy() if isinstance(array, DeviceArray) else array


def _shapes(kernel: Kernel) -> list[Shape]:
    """Of one element of each array."""
    if kernel.types is None:
        return [()] * (kernel.inputs + kernel.outputs)
    return [type_.shape for type_ in kernel.types]


def _rows(array: Array, element: Shape) -> Array:
    return np.asarray(array).reshape(-1, *element)


def _largest(array: Array) -> float:
    """Of the finite values the largest, without its sign."""
    if array.dtype.kind not in "biufc":
        return 0.0
    sizes = np.abs(array[np.isfinite(array)]).astype(np.float64)
    return float(sizes.max(initial=np.finfo(np.float32).tiny))
