"""Folding, the step that FRI repeats: from the values of a polynomial on a domain of n points to
those of a random combination of its parts on a domain of n / arity points.

With f(x) = f_0(x^a) + x f_1(x^a) + ... + x^(a-1) f_(a-1)(x^a), a the arity, the folded polynomial
is f_0(y) + alpha f_1(y) + ... + alpha^(a-1) f_(a-1)(y). It takes a - 1 butterflies for each of its
values: log2 a levels, each of which folds by 2, with alpha, alpha^2, alpha^4 and so on.

Values are elements of a prime field or of an extension, and the domain is in the prime field. A
product by a constant of an extension is a product by a matrix of prime elements, so the same code
serves every extension. On a device folding is one dispatch, which reads each value once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernels.element_references import add, mul, sub
from gpu_executor.kernels.passes import fold_kernel
from gpu_executor.ops.elementwise import ElementData, Words, get_shape, with_f64_limbs
from gpu_executor.ops.operation import operation
from gpu_executor.ops.transforms import Order, check_length, make_bit_reversal, make_power_words
from gpu_executor.primes import Prime, PrimeOrExtension, extension, words
from gpu_executor.primes.extension import Scalar

ARITIES = (2, 4, 8, 16)


@dataclass(frozen=True)
class FoldOptions:
    """How values are folded."""

    log_arity: int
    order: Order
    """Of the values in a row, and of the results."""
    alpha: Scalar
    """An element of the field of the results."""
    coset: int = 1
    """The factor g of the points g w^i."""

    @property
    def arity(self) -> int:
        """How many values become one."""
        return 1 << self.log_arity


def fold(
    field: PrimeOrExtension, layout: PrimeOrExtension, x: ElementData, options: FoldOptions
) -> ElementData:
    """Fold every row, which is the last axis; `layout` is that of the values: the field of the
    results, or its prime field."""
    prime = layout if isinstance(layout, Prime) else layout.prime
    shape = get_shape(layout, x)
    log_n = check_length(prime, shape)
    if log_n < options.log_arity:
        raise ArgumentShapeError(
            f"{field.name}: folding by {options.arity} takes rows of at least {options.arity} "
            f"values; the shape is {shape}"
        )
    result_shape = (*shape[:-1], shape[-1] >> options.log_arity, *field.element_shape)
    rows = math.prod(shape[:-1])
    flat = x.reshape(rows, shape[-1], count_coefficients(layout), *prime.element_shape)
    return _fold(prime, field, flat, options).reshape(result_shape)


def count_coefficients(layout: PrimeOrExtension) -> int:
    """The prime elements in an element."""
    return 1 if isinstance(layout, Prime) else layout.total_degree


def _make_matrix(field: PrimeOrExtension, factor: Scalar) -> list[int]:
    """The matrix of the product by a constant: row c has the integers of its product by the c-th
    element of the basis."""
    if isinstance(field, Prime):
        return [factor]
    degree = field.total_degree
    basis = ([int(i == c) for i in range(degree)] for c in range(degree))
    rows = (extension.mul(field, extension.unflatten(field, each), factor) for each in basis)
    return [integer for row in rows for integer in extension.flatten(row)]


def _make_factors(prime: Prime, field: PrimeOrExtension, options: FoldOptions) -> Words:
    """The matrices of the products by (alpha / (g z^j))^(2^level), z the root of unity of order a,
    for each level those of j = 0, 1, ...; then 1 / a."""
    p = prime.modulus
    root = pow(prime.root_of_unity(options.log_arity), -1, p)
    inverse_coset, alpha = pow(options.coset, -1, p), options.alpha
    integers: list[int] = []
    for level in range(options.log_arity):
        for j in range(options.arity >> (level + 1)):
            scale = inverse_coset * pow(root, j, p) % p
            factor = extension.mul(field, alpha, extension.embed(field, scale))
            integers += _make_matrix(field, factor)
        alpha = extension.mul(field, alpha, alpha)
        root, inverse_coset = root * root % p, inverse_coset * inverse_coset % p
    integers.append(pow(options.arity, -1, p))
    return words.from_ints(prime, [prime.in_form(each) for each in integers])


@operation
def _fold(
    prime: Prime, field: PrimeOrExtension, x: ElementData, options: FoldOptions
) -> ElementData:
    """Values (rows, n, coefficients, ...) to results (rows, n / arity, coefficients, ...)."""
    values, arity = np.asarray(x), options.arity
    if options.order == "reversed":
        values = values[:, make_bit_reversal(values.shape[1])]
    rows, n, own, *element = values.shape
    degree, results = count_coefficients(field), n // arity
    factors = _make_factors(prime, field, options)
    scale, matrices = factors[-1], factors[:-1].reshape(arity - 1, degree, degree, *element)
    inverse_root = pow(prime.root_of_unity(n.bit_length() - 1), -1, prime.modulus)
    points = make_power_words(prime, inverse_root, results)
    parts = [values.reshape(rows, arity, results, own, *element)[:, :, :, c] for c in range(own)]
    at = 0
    while (half := parts[0].shape[1] // 2) > 0:
        firsts, seconds = (
            [each[:, some] for each in parts] for some in (np.s_[:half], np.s_[half:])
        )
        differences = [
            mul(prime, sub(prime, a, b), points) for a, b in zip(firsts, seconds, strict=True)
        ]
        sums: list[Words] = [add(prime, a, b) for a, b in zip(firsts, seconds, strict=True)]
        sums += [np.zeros_like(sums[0])] * (degree - len(sums))
        # A shorter operand repeats, so each factor is there for all results.
        here = np.repeat(matrices[at : at + half, None], results, axis=1)
        parts = [
            functools.reduce(
                functools.partial(add, prime),
                [mul(prime, each, here[:, :, c, k]) for c, each in enumerate(differences)],
                sums[k],
            )
            for k in range(degree)
        ]
        at, points = at + half, mul(prime, points, points)
    folded = np.stack([mul(prime, each[:, 0], scale) for each in parts], axis=2)
    return folded[:, make_bit_reversal(results)] if options.order == "reversed" else folded


@_fold.by_steps
def _fold_by_steps(
    prime: Prime, field: PrimeOrExtension, x: DeviceArray, options: FoldOptions
) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    rows, n, own, *element = x.shape
    results, degree = n // options.arity, count_coefficients(field)
    folded = device.empty((rows, results, degree, *element), x.dtype)
    if not rows:
        return folded
    log_n, log_results = n.bit_length() - 1, results.bit_length() - 1
    low_bits = (log_results + 1) // 2
    low, high = device.cache(
        ("fold", prime, log_n, log_results),
        lambda: _put_points(device, prime, log_n, (low_bits, log_results - low_bits)),
    )
    factors = device.put(_make_factors(prime, field, options))
    kernel = fold_kernel(
        prime, options.log_arity, degree, own, f64_limbs=with_f64_limbs(device, prime)
    )
    push_words = log_results, low_bits, int(options.order == "reversed")
    arrays = x, low, high, factors, folded
    device.submit([Dispatch(kernel, arrays, rows * results, push_words, grid_stride=True)])
    return folded


def _put_points(
    device: ArrayDevice, prime: Prime, log_n: int, bits: Sequence[int]
) -> tuple[DeviceArray, DeviceArray]:
    """The inverses of the first points of the domain, the powers of 1 / w: the lowest ones, and
    those in steps of so many."""
    low_bits, high_bits = bits
    root = pow(prime.root_of_unity(log_n), -1, prime.modulus)
    step = pow(root, 1 << low_bits, prime.modulus)
    low = make_power_words(prime, root, 1 << low_bits)
    return device.put(low), device.put(make_power_words(prime, step, 1 << high_bits))
