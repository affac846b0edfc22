"""Sums, running products, inverses and values of polynomials on the host, exact.

What `ops.scans` does on a card, on words in the form that the field computes in. Every step takes
all pairs at once, so that NumPy is called as often as the elements can be halved.
"""

from __future__ import annotations

import numpy as np

from gpu_executor.fields.array import Words
from gpu_executor.kernels.element_references import add, mul, square
from gpu_executor.primes import Prime, words

FEW = 16
"""So many are inverted each by itself, as integers."""
COEFFICIENTS_AT_ONCE = 1 << 16
"""Of a polynomial's evaluation, counted once for every point: what is in between takes memory."""


def sum_rows(prime: Prime, x: Words) -> Words:
    """The sum of each row of (rows, columns); there is a column at least."""
    while (half := x.shape[1] // 2) > 0:
        sums = add(prime, x[:, :half], x[:, half : 2 * half])
        x = np.concatenate([sums, x[:, 2 * half :]], axis=1)
    return x[:, 0].copy()


def running_products(prime: Prime, x: Words) -> Words:
    """y[i] = x[0] * x[1] * ... * x[i] in every row of (rows, columns)."""
    columns = x.shape[1]
    y = x.copy()
    if columns < 2:
        return y
    # The products up to every second element, from pairs; each with one more for those between.
    ends = running_products(prime, mul(prime, x[:, :-1:2], x[:, 1::2]))
    y[:, 1::2] = ends
    y[:, 2::2] = mul(prime, ends[:, : (columns - 1) // 2], x[:, 2::2])
    return y


def invert(prime: Prime, x: Words) -> Words:
    """1 / x, and 0 where x is, by Montgomery's trick: three products an element."""
    zero = (x == 0).reshape(len(x), prime.columns).all(axis=1)
    nonzero = x.copy()
    nonzero[zero] = words.from_ints(prime, [prime.one])
    y = _invert(prime, nonzero)
    y[zero] = 0
    return y


def _invert(prime: Prime, x: Words) -> Words:
    if len(x) <= FEW:
        # 1 / (x R) is brought into the field's form twice, to become R / x.
        found = (pow(each, -1, prime.modulus) for each in words.to_ints(prime, x))
        ints = [prime.in_form(prime.in_form(each)) for each in found]
        return words.from_ints(prime, ints).reshape(x.shape)
    half = len(x) // 2
    a, b, rest = x[:half], x[half : 2 * half], x[2 * half :]
    inverses = _invert(prime, np.concatenate([mul(prime, a, b), rest]))
    both = inverses[:half]
    return np.concatenate([mul(prime, both, b), mul(prime, both, a), inverses[half:]])


def evaluate(prime: Prime, coefficients: Words, points: Words) -> Words:
    """One polynomial, the constant first, at each point."""
    values = np.empty_like(points)
    step = max(COEFFICIENTS_AT_ONCE // len(coefficients), 1)
    for start in range(0, len(points), step):
        some = slice(start, start + step)
        values[some] = _evaluate(prime, coefficients, points[some])
    return values


def _evaluate(prime: Prime, coefficients: Words, points: Words) -> Words:
    """By even and odd coefficients: p(x) = e(x^2) + x o(x^2), in a row for every point."""
    rows = np.broadcast_to(coefficients, (len(points), *coefficients.shape))
    while (half := rows.shape[1] // 2) > 0:
        even, odd = rows[:, : 2 * half : 2], rows[:, 1 : 2 * half : 2]
        by = np.repeat(points[:, None], half, axis=1)
        folded = add(prime, mul(prime, odd, by), even)
        rows = np.concatenate([folded, rows[:, 2 * half :]], axis=1)
        points = square(prime, points)
    return rows[:, 0]
