"""Polynomials over a field: coefficients along the last axis, the constant term first."""

from __future__ import annotations

import math

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernels.element_references import add, mul, square
from gpu_executor.ops import elementwise, indexing, powers
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    count_elements,
    get_shape,
)
from gpu_executor.ops.operation import operation
from gpu_executor.ops.scans import make_elements, make_scan_kernel
from gpu_executor.ops.transforms import TransformOptions, transform
from gpu_executor.primes import Prime

MAX_COEFFICIENTS = 1 << 15
"""Coefficients that one dispatch evaluates by Horner's rule. A longer polynomial is evaluated in
parts, because a software driver ends loops after 65,536 iterations."""
HOST_TERMS = 1 << 16
"""Coefficients times points that the host evaluates at once: bounds the temporary arrays."""

FORWARD = TransformOptions(order_out="reversed")
BACK = TransformOptions(inverse=True, order_in="reversed")


def resize(prime: Prime, x: ElementData, length: int) -> ElementData:
    """Polynomials of another length: truncated, or padded with zeros."""
    return x if get_shape(prime, x)[-1] == length else _resize(prime, x, length)


@operation
def _resize(prime: Prime, x: ElementData, length: int) -> ElementData:
    *leading, old = get_shape(prime, x)
    resized = np.zeros((*leading, length, *prime.element_shape), x.dtype)
    common = (*[slice(None)] * len(leading), slice(min(old, length)))
    resized[common] = np.asarray(x)[common]
    return resized


@_resize.by_steps
def _resize_by_steps(prime: Prime, x: DeviceArray, length: int) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    *leading, old = get_shape(prime, x)
    count = math.prod(leading) * length
    y = make_elements(device, prime, count)
    kernel = make_scan_kernel(device, prime, "resize")
    device.submit([Dispatch(kernel, (x, y), count, (length, old), grid_stride=True)])
    return y.reshape((*leading, length, *prime.element_shape))


def multiply(prime: Prime, a: ElementData, b: ElementData) -> ElementData:
    """The product of polynomials: three transforms of the next power of two, and n products."""
    shapes = [get_shape(prime, each) for each in (a, b)]
    for shape in shapes:
        if not shape or not shape[-1]:
            raise ArgumentShapeError(
                f"{prime.name}: a polynomial needs at least one coefficient along its last axis; "
                f"the shape is {shape}"
            )
    length = shapes[0][-1] + shapes[1][-1] - 1
    size = 1 << (length - 1).bit_length()
    first = transform(prime, a, FORWARD, size)
    second = first if b is a else transform(prime, b, FORWARD, size)
    product = elementwise.compute(prime, "mul", [first, second], commutes=True)
    found = transform(prime, product, BACK)
    # The coefficients of one polynomial are contiguous, so they need no copy.
    return found[:length] if len(get_shape(prime, found)) == 1 else resize(prime, found, length)


def evaluate(prime: Prime, coefficients: ElementData, points: ElementData) -> ElementData:
    """One polynomial of n coefficients at many points: n - 1 products and additions per point."""
    shape = get_shape(prime, coefficients)
    if len(shape) != 1 or not shape[0]:
        raise ArgumentShapeError(
            f"{prime.name}: expected one polynomial with at least one coefficient, found an array "
            f"of shape {shape}"
        )
    return _evaluate(prime, coefficients, points)


def divide_by_vanishing(prime: Prime, x: ElementData, n: int) -> tuple[ElementData, ElementData]:
    """Quotient and remainder of one polynomial by X^n - 1, which vanishes on the roots of order n.

    With k parts of n coefficients: (k - 1) n additions, and no product.
    """
    shape = get_shape(prime, x)
    if len(shape) != 1:
        raise ArgumentShapeError(
            f"{prime.name}: expected one polynomial, found an array of shape {shape}"
        )
    if n < 1:
        raise ArgumentShapeError(f"{prime.name}: n of X^n - 1 must be at least 1, not {n}")
    length = shape[0]
    rows = max(-(-length // n), 1)
    parts = elementwise.reshape(prime, resize(prime, x, rows * n), (rows, n))
    # X^n is 1 modulo X^n - 1: the remainder is the sum of all parts, and part j of the quotient is
    # the sum of the parts above j.
    sums = [parts[rows - 1]]
    for row in range(rows - 2, -1, -1):
        sums.append(elementwise.compute(prime, "add", [parts[row], sums[-1]], commutes=True))
    remainder = sums[-1] if rows > 1 else sums[-1].copy()
    quotient = indexing.concatenate(prime, sums[-2::-1], 0) if rows > 1 else resize(prime, x, 0)
    return resize(prime, quotient, max(length - n, 0)), remainder


@operation
def _evaluate(prime: Prime, coefficients: ElementData, points: ElementData) -> ElementData:
    own = np.asarray(coefficients)
    flat = np.asarray(points).reshape(-1, *prime.element_shape)
    values = np.empty_like(flat)
    step = max(HOST_TERMS // len(own), 1)
    for start in range(0, len(flat), step):
        some = slice(start, start + step)
        values[some] = _evaluate_by_halves(prime, own, flat[some])
    return values.reshape(points.shape)


@_evaluate.by_steps
def _evaluate_by_steps(prime: Prime, coefficients: DeviceArray, points: DeviceArray) -> DeviceArray:
    """Horner's rule in parts of MAX_COEFFICIENTS: value = value * x^MAX_COEFFICIENTS + part(x)."""
    device: ArrayDevice = points.storage.device
    count = count_elements(prime, points)
    kernel = make_scan_kernel(device, prime, "evaluate")
    starts = range(0, coefficients.shape[0], MAX_COEFFICIENTS)
    step = powers.power(prime, points, MAX_COEFFICIENTS, prime.form) if len(starts) > 1 else points
    total: ElementData | None = None
    for start in reversed(starts):
        part = coefficients[start : start + MAX_COEFFICIENTS]
        value = make_elements(device, prime, count)
        arrays = part, points, value
        device.submit([Dispatch(kernel, arrays, count, (part.shape[0],), grid_stride=True)])
        value = value.reshape(points.shape)
        total = value if total is None else elementwise.compute(prime, "fma", [total, step, value])
    assert isinstance(total, DeviceArray)
    return total


def _evaluate_by_halves(prime: Prime, coefficients: Words, points: Words) -> Words:
    """p(x) = even(x^2) + x odd(x^2), with one row of coefficients per point."""
    rows = np.broadcast_to(coefficients, (len(points), *coefficients.shape))
    while (half := rows.shape[1] // 2) > 0:
        even, odd = rows[:, : 2 * half : 2], rows[:, 1 : 2 * half : 2]
        x = np.repeat(points[:, None], half, axis=1)
        folded = add(prime, mul(prime, odd, x), even)
        rows = np.concatenate([folded, rows[:, 2 * half :]], axis=1)
        points = square(prime, points)
    return rows[:, 0]
