"""Number-theoretic transforms on the host, exact: one level of butterflies after the other.

What `ops.transform` does on a card, on words in the form that the field computes in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.fields.array import Words
from gpu_executor.kernels.element_references import add, mul, sub
from gpu_executor.ops.transform import TransformOptions, powers
from gpu_executor.primes import Prime, words


def transform(prime: Prime, x: Words, way: TransformOptions) -> Words:
    """Every row of (rows, 2^k); the prime has roots of unity of that order."""
    n, p = x.shape[1], prime.modulus
    order = reversal(n)
    root = prime.root_of_unity(n.bit_length() - 1)
    if way.order_in == "reversed":
        x = x[:, order]
    if way.inverse:
        y = _levels(prime, x[:, order], pow(root, -1, p))
        base = 1 if way.coset is None else pow(way.coset, -1, p)
        y = mul(prime, y, _powers(prime, base, n, scale=pow(n, -1, p)))
    else:
        if way.coset is not None:
            x = mul(prime, x, _powers(prime, way.coset, n))
        y = _levels(prime, x[:, order], root)
    return y[:, order] if way.order_out == "reversed" else y


def reversal(n: int) -> npt.NDArray[np.intp]:
    """The numbers below n, a power of two, in the order of their bits read backwards."""
    order = np.zeros(1, np.intp)
    while len(order) < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def _levels(prime: Prime, x: Words, root: int) -> Words:
    """From bit-reversed to natural order, by transforms of 2, 4, 8, ... elements in a row."""
    rows, n, *element = x.shape
    roots = _powers(prime, root, max(n // 2, 1))
    half = 1
    while half < n:
        pairs = x.reshape(rows, n // (2 * half), 2, half, *element)
        first = pairs[:, :, 0]
        second = mul(prime, pairs[:, :, 1], roots[:: n // (2 * half)])
        both: list[Any] = [add(prime, first, second), sub(prime, first, second)]
        x = np.stack(both, axis=2).reshape(x.shape)
        half *= 2
    return x


def _powers(prime: Prime, base: int, count: int, scale: int = 1) -> Words:
    """scale, scale * base, scale * base^2, ... in the form that the field computes in."""
    found = powers(base, count, scale, prime)
    return words.from_ints(prime, map(prime.in_form, found))
