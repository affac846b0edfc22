"""Trust: a sample of what a device computed, computed again on the CPU.

Whole numbers must be the same. Floats need not: a device may fuse a product with a sum, add in
another order, flush what is nearly zero. They must agree to half of their digits, measured by the
largest value among those that are compared, and for kernels that are not made of elements by the
largest input too, since terms of a sum may cancel. That finds a broken device, not a sloppy kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.call import AnyArray, Array, Signature, SignatureCache
from gpu_executor.cpu.backend import compute_reference
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import SettingsError, WrongResultError
from gpu_executor.kernel import Kernel, Shape, to_native


class ResultChecker:
    """Checks a fraction of the elements of each call, one at least; or of the calls, where a kernel
    is not made of elements. Safe from several threads."""

    def __init__(self, fraction: float, seed: int | None = None) -> None:
        if not isinstance(fraction, int | float | np.number) or not 0 <= fraction <= 1:
            raise SettingsError(f"check is {fraction!r}; it is a part of the results, 0 to 1")
        self.fraction = fraction
        self._signatures = SignatureCache()
        self._draw = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self.checked = 0
        """Elements and whole calls."""
        self.unchecked = 0
        """Calls that could not be checked: their kernels have no reference."""

    def sample(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> ResultSample | None:
        """What is to be computed again of a call that is yet to run, which may overwrite its
        inputs; None: nothing of it. Arrays on a card are fetched as a whole."""
        try:
            signature = self._signatures.signature(kernel, arrays)
        except Exception:  # whatever it is: the backend comes upon it too, and says it
            return None
        if kernel.reference is None:
            with self._lock:
                self.unchecked += 1
            return None
        if kernel.split == "whole":
            whole = [np.array(_on_host(each)) for each in arrays] if self._drawn() else None
            return None if whole is None else ResultSample(signature, whole, None)
        if not signature.count:
            return None
        rows = signature.call([_on_host(each) for each in arrays]).inputs
        at = self._indices(signature.count)
        picked = [each[at] for each in rows]
        return ResultSample(
            signature, [each.astype(to_native(each.dtype), copy=False) for each in picked], at
        )

    def _indices(self, count: int) -> Array:
        """In order, none of them twice."""
        wanted = min(max(round(count * self.fraction), 1), count)
        with self._lock:
            self.checked += wanted
            if wanted == count:
                return np.arange(count)
            # Of a few among many NumPy makes no list of the many.
            return np.sort(self._draw.choice(count, wanted, replace=False, shuffle=False))

    def _drawn(self) -> bool:
        with self._lock:
            drawn = bool(self._draw.random() < self.fraction)
            self.checked += drawn
            return drawn


class ResultSample:
    """Inputs that are computed again, and their indices."""

    def __init__(self, signature: Signature, inputs: Sequence[Array], at: Array | None) -> None:
        self._signature, self._inputs = signature, inputs
        self._at = at
        """None: all of it."""

    def compare(self, result: Any, where: str) -> None:
        """Raise `WrongResultError` with the first index that is not what the CPU has."""
        kernel = self._signature.kernel
        results = result if isinstance(result, tuple) else (result,)
        found = [self._picked(output, _on_host(each)) for output, each in enumerate(results)]
        expected = [np.empty(each.shape, each.dtype) for each in found]
        with np.errstate(all="ignore"):  # a device overflows without a word
            compute_reference(kernel, self._inputs, expected)
        for output, (right, got) in enumerate(zip(expected, found, strict=True)):
            wrong = self._differ(right, got)
            if wrong.any():
                element = math.prod(self._element(output))
                first = int(np.argmax(wrong.reshape(-1, element).any(1)))
                index = first if self._at is None else int(self._at[first])
                raise WrongResultError(kernel.name, output, index, where)

    def _picked(self, output: int, result: Array) -> Array:
        if self._at is None:
            return result
        return np.asarray(result).reshape(-1, *self._element(output))[self._at]

    def _element(self, output: int) -> Shape:
        return self._signature.operands[self._signature.kernel.inputs + output].type.shape

    def _differ(self, right: Array, found: Array) -> Array:
        if found.dtype.kind not in "fc":
            return np.asarray(right != found)
        compared = [right] if self._at is not None else [right, *self._inputs]
        nearly = float(np.finfo(found.dtype).eps) ** 0.5 * max(map(_largest, compared))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(found - right) <= nearly
        same = (found == right) | (np.isnan(found) & np.isnan(right))
        return np.asarray(~(near | same))


def _on_host(array: AnyArray) -> Array:
    return array.numpy() if isinstance(array, DeviceArray) else array


def _largest(array: Array) -> float:
    """Of the finite values the largest, without its sign."""
    if array.dtype.kind not in "biufc":
        return 0.0
    sizes = np.abs(array[np.isfinite(array)]).astype(np.float64)
    return float(sizes.max(initial=np.finfo(np.float32).tiny))
