"""Field arithmetic on Python's integers: slow, and simple enough to be verified by reading it.

The tests, the smoke test and the soak test compare results with these functions. So this module
shares no code with the kernels and references that it checks.
"""

from collections.abc import Sequence

from gpu_executor.primes.prime import Prime


def add(prime: Prime, xs: Sequence[int], ys: Sequence[int]) -> list[int]:
    """Return x + y mod p."""
    return [(x + y) % prime.modulus for x, y in zip(xs, ys, strict=True)]


def sub(prime: Prime, xs: Sequence[int], ys: Sequence[int]) -> list[int]:
    """Return x - y mod p."""
    return [(x - y) % prime.modulus for x, y in zip(xs, ys, strict=True)]


def mont_mul(prime: Prime, xs: Sequence[int], ys: Sequence[int]) -> list[int]:
    """Return the Montgomery product x * y / R mod p."""
    r_inverse = pow(prime.r, -1, prime.modulus)
    return [x * y * r_inverse % prime.modulus for x, y in zip(xs, ys, strict=True)]
