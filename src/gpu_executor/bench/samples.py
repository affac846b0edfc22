"""Field elements to measure with: random, valid, and the same every time."""

from __future__ import annotations

import random

import numpy as np

from gpu_executor.call import Array
from gpu_executor.primes import Prime, words

DIFFERENT = 4_096


def elements(prime: Prime, count: int, seed: int) -> Array:
    """`count` elements below the modulus; a few thousand different ones, repeated."""
    draw = random.Random(seed)
    ints = [draw.randrange(prime.modulus) for _ in range(min(count, DIFFERENT))]
    rows = words.from_ints(prime, ints)
    return np.resize(rows, (count, *prime.element_shape))
