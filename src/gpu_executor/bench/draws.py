"""Random field elements, all of them drawn: where repeats would show in the result or be cached."""

from __future__ import annotations

import math

import numpy as np

from gpu_executor.call import Array
from gpu_executor.primes import Prime


def drawn(prime: Prime, shape: tuple[int, ...], seed: int) -> Array:
    """Words of elements below the modulus, and the same every time.

    The highest word is drawn below the modulus's own, which keeps all below it without trying.
    """
    draw = np.random.default_rng(seed)
    words = draw.integers(0, 1 << 32, (math.prod(shape), prime.words), np.uint32)
    words[:, -1] = draw.integers(0, prime.modulus_words[-1], len(words), np.uint32)
    return words.view(prime.column_dtype).reshape(*shape, *prime.element_shape)
