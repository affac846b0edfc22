"""The multiplicative group of a prime field: which elements generate what."""

from collections.abc import Iterable
from itertools import count

from gpu_executor.errors import KernelError
from gpu_executor.primes.factoring import without
from gpu_executor.primes.primality import is_prime


def two_adicity(number: int) -> int:
    """How often 2 divides `number`."""
    return (number & -number).bit_length() - 1


def checked_factors(name: str, modulus: int, factors: Iterable[int]) -> tuple[int, ...]:
    """The odd ones of a caller's prime factors of p - 1, ascending; refused unless they are all."""
    odd = sorted({factor for factor in factors if factor != 2})
    rest = modulus - 1 >> two_adicity(modulus - 1)
    for factor in odd:
        if not is_prime(factor):
            raise KernelError(f"{name}: {factor}, given as a prime factor of p - 1, is not prime")
        if rest % factor:
            raise KernelError(f"{name}: {factor}, given as a factor of p - 1, does not divide it")
        rest = without(rest, factor)
    if rest != 1:
        raise KernelError(f"{name}: the factors given leave {rest} of p - 1 unfactored")
    return tuple(odd)


def smallest_generator(modulus: int, odd_factors: Iterable[int]) -> int:
    """The smallest element whose powers are all but zero, given the odd primes of p - 1."""
    # The order of an element divides p - 1; it is p - 1 unless it divides some (p - 1) / prime.
    exponents = [(modulus - 1) // prime for prime in (2, *odd_factors)]
    return next(
        element
        for element in count(2)
        if all(pow(element, exponent, modulus) != 1 for exponent in exponents)
    )


def smallest_non_residue(modulus: int) -> int:
    """The smallest element that is no square: one whose ((p - 1) / 2)-th power is not 1."""
    return next(element for element in count(2) if pow(element, modulus // 2, modulus) != 1)
