"""Polynomials over a field: coefficients along the last axis, the constant term first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernels.element_references import add, mul, square
from gpu_executor.kernels.passes import evaluate_rows_kernel
from gpu_executor.ops import elementwise, indexing, matrices, powers
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    count_elements,
    get_shape,
    with_f64_limbs,
)
from gpu_executor.ops.operation import operation
from gpu_executor.ops.scans import make_elements, make_scan_kernel
from gpu_executor.ops.transforms import TransformOptions, transform
from gpu_executor.primes import Prime, words

MAX_COEFFICIENTS = 1 << 15
"""Coefficients that one dispatch evaluates by Horner's rule. A longer polynomial is evaluated in
parts, because a software driver ends loops after 65,536 iterations."""
HOST_TERMS = 1 << 16
"""Coefficients times points that the host evaluates at once: bounds the temporary arrays."""

ROW_TERMS = 16
"""Coefficients that one invocation adds in a step of `evaluate_rows`: 21 polynomials of 2^12 took
0.43 ms from call to values on an NVIDIA H200, 0.46 with 8 and 0.49 with 32."""

DIRECT_TERMS = 1 << 20
"""Elements of the matrices of direct products: bounds the memory."""

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
    length = _find_length(prime, a, b)
    size = 1 << (length - 1).bit_length()
    found = _multiply_modulo(prime, a, b, size)
    # The coefficients of one polynomial are contiguous, so they need no copy.
    return found[:length] if len(get_shape(prime, found)) == 1 else resize(prime, found, length)


def _find_length(prime: Prime, a: ElementData, b: ElementData) -> int:
    """The coefficients of a product."""
    shapes = [get_shape(prime, each) for each in (a, b)]
    for shape in shapes:
        if not shape or not shape[-1]:
            raise ArgumentShapeError(
                f"{prime.name}: a polynomial needs at least one coefficient along its last axis; "
                f"the shape is {shape}"
            )
    return shapes[0][-1] + shapes[1][-1] - 1


def _multiply_modulo(prime: Prime, a: ElementData, b: ElementData, size: int) -> ElementData:
    """The product modulo X^size - 1 by transforms, size a power of two."""
    first = transform(prime, a, FORWARD, size)
    second = first if b is a else transform(prime, b, FORWARD, size)
    product = elementwise.compute(prime, "mul", [first, second], commutes=True)
    return transform(prime, product, BACK)


def multiply_in_any_field(prime: Prime, a: ElementData, b: ElementData) -> ElementData:
    """`multiply` where the field has roots of unity for it. Otherwise every coefficient of one
    factor is multiplied by every one of the other."""
    length = _find_length(prime, a, b)
    if (length - 1).bit_length() <= prime.two_adicity:
        return multiply(prime, a, b)
    shapes = [get_shape(prime, each) for each in (a, b)]
    leading = elementwise.find_common_shape(prime, [shape[:-1] for shape in shapes])
    rows = [
        elementwise.broadcast_to(prime, each, (*leading, shape[-1]))
        for each, shape in zip((a, b), shapes, strict=True)
    ]
    if not math.prod(leading):
        return resize(prime, rows[0], length)
    flat = (
        elementwise.reshape(prime, each, (math.prod(leading), shape[-1]))
        for each, shape in zip(rows, shapes, strict=True)
    )
    long, short = sorted(flat, key=lambda each: get_shape(prime, each)[-1], reverse=True)
    return elementwise.reshape(prime, multiply_directly(prime, long, short), (*leading, length))


def multiply_middle(prime: Prime, a: ElementData, b: ElementData, half: int) -> ElementData:
    """The coefficients half .. 2 half - 1 of the product of polynomials of 2 half coefficients and
    of at most half + 1; half is a power of two.

    Transforms compute the product modulo X^(2 half) - 1, where only the first half coefficients are
    others than those of the product.
    """
    if half.bit_length() <= prime.two_adicity:
        product = _multiply_modulo(prime, a, b, 2 * half)
    else:
        product = multiply_in_any_field(prime, a, b)
    axes = len(get_shape(prime, product)) - 1
    return product[(*[slice(None)] * axes, slice(half, 2 * half))]


@operation
def multiply_directly(prime: Prime, a: ElementData, b: ElementData) -> ElementData:
    """The products of rows of coefficients, as many in a as in b, without roots of unity; the rows
    of b are not longer. On the host by Kronecker's substitution: a row becomes one integer, whose
    digits are the coefficients."""
    left, right = (np.asarray(each) for each in (a, b))
    length = left.shape[1] + right.shape[1] - 1
    width = -(-(2 * prime.bits + right.shape[1].bit_length()) // 8)
    factor = 1 if prime.canonical else prime.r_inverse  # words of products have R twice
    found: list[int] = []
    for row, other in zip(left, right, strict=True):
        digits = (words.to_ints(prime, each) for each in (row, other))
        first, second = (
            int.from_bytes(b"".join(each.to_bytes(width, "little") for each in own), "little")
            for own in digits
        )
        product = (first * second).to_bytes(width * (length + 1), "little")
        coefficients = (product[at : at + width] for at in range(0, width * length, width))
        found += [int.from_bytes(each, "little") * factor % prime.modulus for each in coefficients]
    return words.from_ints(prime, found).reshape(len(left), length, *prime.element_shape)


@multiply_directly.by_steps
def _multiply_directly_by_steps(prime: Prime, a: DeviceArray, b: DeviceArray) -> ElementData:
    """Products of b with matrices whose row i has the coefficients of a behind i zeros.

    So many coefficients of b are multiplied at once that the matrices have about DIRECT_TERMS
    elements.
    """
    (rows, n), (_, m) = (get_shape(prime, each) for each in (a, b))
    step = min(max(DIRECT_TERMS // (rows * 2 * n), 1), m)
    total = elementwise.make_full(prime, (rows, n + m - 1), 0, a)
    for start in range(0, m, step):
        count = min(step, m - start)
        width = n + count - 1
        # Rows of n + count elements, read as rows of one element less, begin one element later.
        padded = elementwise.reshape(prime, resize(prime, a, width + 1), (rows, 1, width + 1))
        repeated = elementwise.broadcast_to(prime, padded, (rows, count, width + 1))
        flat = elementwise.reshape(prime, repeated, (rows, count * (width + 1)))
        shifted = resize(prime, flat, count * width)
        matrix = elementwise.reshape(prime, shifted, (rows, count, width))
        part = elementwise.reshape(prime, b[:, start : start + count], (rows, 1, count))
        product = matrices.multiply(prime, part, matrix)
        found = elementwise.reshape(prime, product, (rows, width))
        target = total[:, start : start + width]
        sums = elementwise.compute(prime, "add", [target, found], commutes=True)
        indexing.copy_items(prime, sums, target)
    return total


def evaluate(prime: Prime, coefficients: ElementData, points: ElementData) -> ElementData:
    """One polynomial of n coefficients at many points: n - 1 products and additions per point."""
    shape = get_shape(prime, coefficients)
    if len(shape) != 1 or not shape[0]:
        raise ArgumentShapeError(
            f"{prime.name}: expected one polynomial with at least one coefficient, found an array "
            f"of shape {shape}"
        )
    return _evaluate(prime, coefficients, points)


def evaluate_rows(prime: Prime, coefficients: DeviceArray, points: Sequence[int]) -> DeviceArray:
    """The values of rows of 2^k coefficients on a device, each at a point of its own, for primes of
    the family `wide`.

    A step makes m coefficients of t m: coefficient i is the sum of c[j m + i] x^(j m) over j < t.
    So the values depend on a few products after each other, while all others run side by side.
    """
    device: ArrayDevice = coefficients.storage.device
    rows, length = shape = get_shape(prime, coefficients)
    if length.bit_count() != 1 or rows != len(points):
        raise ArgumentShapeError(
            f"{prime.name}: expected rows of 2^k coefficients and a point for each row, found an "
            f"array of shape {shape} and {len(points)} points"
        )
    sizes, powers_of_points = [1], [[x % prime.modulus for x in points]]
    while (terms := min(ROW_TERMS, length // sizes[-1])) * sizes[-1] < length:
        sizes.append(sizes[-1] * terms)
        powers_of_points.append([pow(x, terms, prime.modulus) for x in powers_of_points[-1]])
    encoded = words.from_ints(prime, [prime.in_form(x) for each in powers_of_points for x in each])
    x = device.put(encoded.reshape(len(sizes), rows, *prime.element_shape))
    kernel = evaluate_rows_kernel(prime, f64_limbs=with_f64_limbs(device, prime))
    steps, found = [], coefficients
    for index in reversed(range(len(sizes))):
        values = make_elements(device, prime, rows * sizes[index])
        push_words = length // sizes[index], sizes[index]
        arrays = found, x[index], values
        steps.append(Dispatch(kernel, arrays, rows * sizes[index], push_words, grid_stride=True))
        found, length = values, sizes[index]
    device.submit(steps)
    return found


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
