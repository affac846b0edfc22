"""Result check: the CPU recomputes a sample of each result and compares it.

Integers must be equal. Floats need not be: a device may use fused multiply-adds, sum in another
order or flush subnormal numbers to zero. Floats must agree to half of their digits, relative to the
largest value that is compared. For kernels that do not work element by element, the largest input
counts too, since the terms of a sum may cancel. Structs are compared field by field, so that their
padding does not count. The check finds a broken device, not an imprecise kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.call import (
    MAX_SIGNATURES,
    AnyArray,
    Array,
    Signature,
    SignatureCache,
    as_arrays,
)
from gpu_executor.common.lru import remember
from gpu_executor.cpu.reference import (
    arrange_inputs,
    arrange_outputs,
    compute_elements,
    compute_reference,
)
from gpu_executor.errors import SettingsError, WrongResultError
from gpu_executor.kernel import Argument, Kernel


class ResultChecker:
    """Draws the samples. Thread-safe.

    It checks a fraction of the elements of each call, at least one, if the kernel works element by
    element or has a `reference_at`. Otherwise it checks the first call of each signature as a
    whole, and then a fraction of the calls.
    """

    def __init__(self, fraction: float, seed: int | None = None) -> None:
        if not isinstance(fraction, int | float | np.number) or not 0 <= fraction <= 1:
            raise SettingsError(f"check is {fraction!r}; it must be a fraction from 0 to 1")
        self.fraction = fraction
        self._signatures = SignatureCache()
        self._checked_signatures: dict[Signature, bool] = {}
        """Signatures of calls that were checked as a whole."""
        self._random = np.random.default_rng(seed) if fraction else None
        """Draws the samples; None without checks, since `numpy.random` takes 10 ms to import."""
        self._lock = threading.Lock()
        self.checked = 0
        """Elements and whole calls that were checked."""
        self.unchecked = 0
        """Calls that could not be checked: their kernels have no reference, or they were recorded
        in a graph."""

    def sample(
        self,
        kernel: Kernel,
        arrays: Sequence[Any],
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> ResultSample | None:
        """Draw what to recompute, and copy its inputs if the call may overwrite them; None if
        nothing is checked. Called before the call runs. Device arrays are fetched as a whole."""
        try:
            arrays = as_arrays(kernel, arrays)
            signature = self._signatures.get(kernel, arrays, out_shape)
            keywords = signature.parameters.as_keywords(params)
        except Exception:  # the backend raises the same error when the call runs
            return None
        if kernel.split == "elements" and kernel.reference is not None:
            return self._sample_elements(signature, arrays, keywords)
        if kernel.reference_at is not None:
            indices = [self._draw_indices(operand.count) for operand in signature.outputs]
        elif kernel.reference is None:
            self.count_unchecked()
            return None
        elif self._draw_call(signature):
            indices = None
        else:
            return None
        inputs = arrange_inputs(signature, [_on_host(each) for each in arrays])
        if out is not None:
            inputs = [np.array(each) for each in inputs]
        return ResultSample(signature, inputs, keywords, indices)

    def count_unchecked(self) -> None:
        """Count a call that cannot be checked."""
        with self._lock:
            self.unchecked += 1

    def _sample_elements(
        self, signature: Signature, arrays: Sequence[AnyArray], params: Mapping[str, Any]
    ) -> ResultSample | None:
        if not signature.count:
            return None
        drawn = self._draw_indices(signature.count)
        inputs = arrange_inputs(signature, [_on_host(each) for each in arrays], drawn)
        return ResultSample(signature, inputs, params, [drawn] * len(signature.outputs))

    def _draw_indices(self, count: int) -> Array:
        """Distinct indices of elements, sorted."""
        wanted = min(max(round(count * self.fraction), 1), count)
        with self._lock:
            self.checked += wanted
            if wanted == count:
                return np.arange(count)
            # Without `shuffle`, NumPy does not build a permutation of all `count` indices.
            assert self._random is not None
            return np.sort(self._random.choice(count, wanted, replace=False, shuffle=False))

    def _draw_call(self, signature: Signature) -> bool:
        """Whether a call is checked as a whole."""
        with self._lock:
            drawn = signature not in self._checked_signatures
            if drawn:
                remember(self._checked_signatures, signature, True, MAX_SIGNATURES)
            else:
                drawn = self._random is not None and bool(self._random.random() < self.fraction)
            self.checked += drawn
            return drawn


class ResultSample:
    """What is recomputed of one call."""

    def __init__(
        self,
        signature: Signature,
        inputs: Sequence[Array],
        params: Mapping[str, Any],
        indices: Sequence[Array] | None,
    ) -> None:
        self._signature, self._params = signature, params
        self._inputs = inputs
        """Only the drawn elements if the kernel works element by element."""
        self._indices = indices
        """The indices of the drawn elements of each output; None for the whole call."""

    def compare(self, result: Any, where: str) -> None:
        """Raise `WrongResultError` with the first index at which the CPU's result differs."""
        results = result if isinstance(result, tuple) else (result,)
        found = self._select([_on_host(each) for each in results])
        expected = [np.empty(each.shape, each.dtype) for each in found]
        with np.errstate(all="ignore"):  # a device does not warn of overflow either
            self._compute(expected)
        returned = [each for each in self._signature.kernel.arguments if each.is_output]
        for output, (right, got) in enumerate(zip(expected, found, strict=True)):
            _copy_padding(returned[output], right, got)
            wrong = self._find_differences(right, got)
            if wrong.any():
                numbers = math.prod(returned[output].type.shape)
                first = int(np.argmax(wrong.reshape(-1, numbers).any(1)))
                index = first if self._indices is None else int(self._indices[output][first])
                raise WrongResultError(self._signature.kernel.name, output, index, where)

    def _select(self, results: Sequence[Array]) -> list[Array]:
        """The results, or their drawn elements."""
        arranged = arrange_outputs(self._signature, results)
        if self._indices is None:
            return arranged
        return [
            array.reshape(operand.count, *operand.type.shape)[drawn]
            for array, operand, drawn in zip(
                arranged, self._signature.outputs, self._indices, strict=True
            )
        ]

    def _compute(self, expected: Sequence[Array]) -> None:
        kernel, inputs, params = self._signature.kernel, self._inputs, self._params
        if self._indices is None or (kernel.split == "elements" and kernel.reference is not None):
            compute_reference(self._signature, inputs, expected, params)
        else:
            compute_elements(self._signature, self._indices, inputs, expected, params)

    def _find_differences(self, right: Array, found: Array) -> Array:
        """A mask of the numbers or structs that differ, beyond the tolerance for floats."""
        if found.dtype.names is not None:
            masks = [
                self._find_differences(right[name], found[name]).reshape(found.size, -1).any(1)
                for name in found.dtype.names
            ]
            return np.asarray(np.stack(masks).any(0)).reshape(found.shape)
        if found.dtype.kind not in "fc":
            return np.asarray(right != found)
        by_element = self._signature.kernel.split == "elements"
        compared = [right] if by_element else [right, *self._inputs]
        tolerance = float(np.finfo(found.dtype).eps) ** 0.5 * max(map(_find_largest, compared))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(found - right) <= tolerance
        same = (found == right) | (np.isnan(found) & np.isnan(right))
        return np.asarray(~(near | same))


def _copy_padding(argument: Argument, expected: Array, found: Array) -> None:
    """Make the padding of elements equal, such as the fourth number of a vec3: kernels do not write
    it, and a reference may leave anything there."""
    if argument.used and found.size:
        size = len(argument.used)
        padding = np.frombuffer(argument.used, np.uint8) == 0
        bytes_found = np.ascontiguousarray(found).reshape(-1).view(np.uint8).reshape(-1, size)
        expected.reshape(-1).view(np.uint8).reshape(-1, size)[:, padding] = bytes_found[:, padding]


def _on_host(array: AnyArray) -> Array:
    return array.numpy() if isinstance(array, DeviceArray) else array


def _find_largest(array: Array) -> float:
    """The largest magnitude among the finite values."""
    sizes = [
        np.abs(numbers[np.isfinite(numbers)]).astype(np.float64) for numbers in _list_numbers(array)
    ]
    return max(float(each.max(initial=np.finfo(np.float32).tiny)) for each in sizes)


def _list_numbers(array: Array) -> Iterator[Array]:
    """The arrays of numbers that an array consists of: itself, or the fields of its structs."""
    if array.dtype.names is None:
        yield array
        return
    for name in array.dtype.names:
        yield from _list_numbers(array[name])
