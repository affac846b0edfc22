"""Square roots of arrays of elements, by the algorithm of Tonelli and Shanks.

The algorithm is written with operations of the field on whole arrays, so it runs where the array
is. For every element it does the same steps: a step that an element does not need has no effect on
it.
"""

from __future__ import annotations

import functools
from typing import Any

from gpu_executor.primes import PrimeOrExtension, extension
from gpu_executor.primes.extension import Scalar
from gpu_executor.primes.number_theory import two_adicity


def find_roots(field: Any, a: Any) -> Any:
    """Square roots of the elements of an array of `field`, a `FiniteField`; what is found for
    elements that are not squares has no meaning.

    With q - 1 = 2^s m, q the number of elements and m odd, r = a^((m + 1) / 2) is a root of a t for
    t = a^m, whose order is a power of two. Each step halves that order, and multiplies r by a root
    of what it multiplies t by. With s = 1, t = 1 for squares, and r is a root of a.
    """
    others = field.order - 1
    twos = two_adicity(others)
    root = field.power(a, ((others >> twos) - 1) // 2)
    rest = field.mul(field.square(root), a)
    root = field.mul(root, a)
    for level, factor in enumerate(_make_factors(field.layout)):
        done = field.equal(field.power(rest, 1 << (twos - 2 - level)), 1)
        if not done.all():
            root = field.where(done, root, field.mul(root, factor))
            square = extension.mul(field.layout, factor, factor)
            rest = field.where(done, rest, field.mul(rest, square))
    return root


@functools.cache
def _make_factors(field: PrimeOrExtension) -> tuple[Scalar, ...]:
    """Elements of the orders 2^s, 2^(s - 1), ..., 4: each is the square of the one before it."""
    others = extension.get_order(field) - 1
    twos = two_adicity(others)
    if twos == 1:
        return ()
    factor = extension.power(field, extension.find_non_square(field), others >> twos)
    factors = []
    for _ in range(twos - 1):
        factors.append(factor)
        factor = extension.mul(field, factor, factor)
    return tuple(factors)
