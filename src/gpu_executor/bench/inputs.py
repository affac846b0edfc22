"""Inputs of benchmarks, and the check of the sums that several benchmarks time.

Inputs are random field elements; the same seed gives the same elements.
"""

from __future__ import annotations

import math
import random

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.kernels import load
from gpu_executor.primes import Prime, words

DISTINCT = 4_096
"""The number of distinct elements of a tiled array."""
CHECKED = 1_000
"""The number of elements of a result that are checked."""


def tile_elements(prime: Prime, count: int, seed: int) -> Array:
    """Return `count` elements below the modulus: `DISTINCT` random ones, repeated."""
    rng = random.Random(seed)
    ints = [rng.randrange(prime.modulus) for _ in range(min(count, DISTINCT))]
    return np.resize(words.from_ints(prime, ints), (count, *prime.element_shape))


def draw_elements(prime: Prime, shape: tuple[int, ...], seed: int) -> Array:
    """Draw independent random elements below the modulus.

    These are for transforms and comparisons with other packages, where repeated elements would show
    in the result or be served from caches. The highest word is drawn below the modulus's highest
    word, which keeps every element below the modulus without rejection sampling.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 1 << 32, (math.prod(shape), prime.words), np.uint32)
    drawn[:, -1] = rng.integers(0, prime.modulus_words[-1], len(drawn), np.uint32)
    return drawn.view(prime.column_dtype).reshape(*shape, *prime.element_shape)


def check_sums(what: str, a: Array, b: Array, result: Array) -> None:
    """Compare evenly spaced sums modulo the 381-bit prime, the first and last among them, with the
    reference.
    """
    kernel = load("bls12_381_fq_add")
    assert kernel.reference is not None
    sample = np.linspace(0, len(a) - 1, min(CHECKED, len(a)), dtype=np.intp)
    expected = kernel.reference(a[sample], b[sample])
    if len(result) != len(a) or not np.array_equal(result[sample], expected):
        raise AssertionError(f"{what}: wrong sums")
