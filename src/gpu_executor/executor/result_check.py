"""Result check: the CPU recomputes a sample of each result and compares it.

Integers must be equal. Floats need not be: a device may use fused multiply-adds, sum in another
order or flush subnormal numbers to zero. Floats must agree to half of their digits, relative to the
largest value that is compared. For kernels that do not work element by element, the largest input
counts too, since the terms of a sum may cancel. The check finds a broken device, not an imprecise
kernel.
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
    """Draws the samples. It checks a fraction of the elements of each call, at least one; or a
    fraction of the calls, for kernels that do not work element by element. Thread-safe."""

    def __init__(self, fraction: float, seed: int | None = None) -> None:
        if not isinstance(fraction, int | float | np.number) or not 0 <= fraction <= 1:
            raise SettingsError(f"check is {fraction!r}; it must be a fraction from 0 to 1")
        self.fraction = fraction
        self._signatures = SignatureCache()
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self.checked = 0
        """Elements and whole calls that were checked."""
        self.unchecked = 0
        """Calls that could not be checked, since their kernels have no reference."""

    def sample(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> ResultSample | None:
        """Draw and copy the inputs to recompute; None if nothing is checked. Called before the call
        runs, since the call may overwrite its inputs. Device arrays are fetched as a whole."""
        try:
            signature = self._signatures.get(kernel, arrays)
        except Exception:  # the backend raises the same error when the call runs
            return None
        if kernel.reference is None:
            with self._lock:
                self.unchecked += 1
            return None
        if kernel.split == "whole":
            whole = [np.array(_on_host(each)) for each in arrays] if self._draw_call() else None
            return None if whole is None else ResultSample(signature, whole, None)
        if not signature.count:
            return None
        rows = signature.make_call([_on_host(each) for each in arrays]).inputs
        at = self._draw_indices(signature.count)
        picked = [each[at] for each in rows]
        return ResultSample(
            signature, [each.astype(to_native(each.dtype), copy=False) for each in picked], at
        )

    def _draw_indices(self, count: int) -> Array:
        """Distinct indices of elements, sorted."""
        wanted = min(max(round(count * self.fraction), 1), count)
        with self._lock:
            self.checked += wanted
            if wanted == count:
                return np.arange(count)
            # Without `shuffle`, NumPy does not build a permutation of all `count` indices.
            return np.sort(self._random.choice(count, wanted, replace=False, shuffle=False))

    def _draw_call(self) -> bool:
        """Whether a whole call is checked."""
        with self._lock:
            drawn = bool(self._random.random() < self.fraction)
            self.checked += drawn
            return drawn


class ResultSample:
    """The inputs of a call to recompute, and their indices."""

    def __init__(self, signature: Signature, inputs: Sequence[Array], at: Array | None) -> None:
        self._signature, self._inputs = signature, inputs
        self._at = at
        """Indices of the elements; None for the whole call."""

    def compare(self, result: Any, where: str) -> None:
        """Raise `WrongResultError` with the first index at which the CPU's result differs."""
        kernel = self._signature.kernel
        results = result if isinstance(result, tuple) else (result,)
        found = [self._select(output, _on_host(each)) for output, each in enumerate(results)]
        expected = [np.empty(each.shape, each.dtype) for each in found]
        with np.errstate(all="ignore"):  # a device does not warn of overflow either
            compute_reference(kernel, self._inputs, expected)
        for output, (right, got) in enumerate(zip(expected, found, strict=True)):
            wrong = self._find_differences(right, got)
            if wrong.any():
                element = math.prod(self._get_element_shape(output))
                first = int(np.argmax(wrong.reshape(-1, element).any(1)))
                index = first if self._at is None else int(self._at[first])
                raise WrongResultError(kernel.name, output, index, where)

    def _select(self, output: int, result: Array) -> Array:
        """The sampled elements of a result."""
        if self._at is None:
            return result
        return np.asarray(result).reshape(-1, *self._get_element_shape(output))[self._at]

    def _get_element_shape(self, output: int) -> Shape:
        return self._signature.operands[self._signature.kernel.inputs + output].type.shape

    def _find_differences(self, right: Array, found: Array) -> Array:
        """A mask of the numbers that differ, beyond the tolerance for floats."""
        if found.dtype.kind not in "fc":
            return np.asarray(right != found)
        compared = [right] if self._at is not None else [right, *self._inputs]
        tolerance = float(np.finfo(found.dtype).eps) ** 0.5 * max(map(_find_largest, compared))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(found - right) <= tolerance
        same = (found == right) | (np.isnan(found) & np.isnan(right))
        return np.asarray(~(near | same))


def _on_host(array: AnyArray) -> Array:
    return array.numpy() if isinstance(array, DeviceArray) else array


def _find_largest(array: Array) -> float:
    """The largest magnitude among the finite values."""
    if array.dtype.kind not in "biufc":
        return 0.0
    sizes = np.abs(array[np.isfinite(array)]).astype(np.float64)
    return float(sizes.max(initial=np.finfo(np.float32).tiny))
