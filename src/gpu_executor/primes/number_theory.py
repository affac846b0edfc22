"""Number theory on Python integers: primality, factoring, generators of a prime field's group."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, count, repeat
from math import gcd

from gpu_executor.errors import KernelError

# --- primality ---

# Miller-Rabin with these bases is a proof below this bound (Sorenson and Webster, 2015).
_PROVING_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PROVED_BELOW = 3_317_044_064_679_887_385_961_981
# Above the bound, a composite passes for at most one base in four, so it passes for 40 bases with a
# probability of at most 4^-40 = 2^-80.
_HASHED_BASES = 40


def is_prime(number: int) -> bool:
    """Return whether a number is prime, by Miller-Rabin: a proof below 3.3 * 10^24; above, wrong
    with probability at most 2^-80.
    """
    if number < 2:
        return False
    for prime in _PROVING_BASES:
        if number % prime == 0:
            return number == prime
    bases = _PROVING_BASES if number < _PROVED_BELOW else _hash_to_bases(number)
    return all(_is_strong_probable_prime(number, base) for base in bases)


def _hash_to_bases(number: int) -> tuple[int, ...]:
    """Return bases derived from a hash of the number.

    They are deterministic, so the same number always gets the same answer. They depend on the
    number, so nobody can construct a composite that passes a known set of bases.
    """
    # 16 bytes more than the number has: the bias of the reduction is then below 2^-128.
    size = (number.bit_length() + 7) // 8 + 16
    stream = hashlib.shake_256(number.to_bytes(size, "little")).digest(size * _HASHED_BASES)
    draws = (stream[start : start + size] for start in range(0, len(stream), size))
    return tuple(2 + int.from_bytes(draw, "little") % (number - 3) for draw in draws)


def _is_strong_probable_prime(number: int, base: int) -> bool:
    """Return whether an odd `number` passes one round of Miller-Rabin."""
    twos = two_adicity(number - 1)
    power = pow(base, number - 1 >> twos, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


# --- factoring ---

TRIAL_DIVISORS = range(3, 1 << 16, 2)
RHO_STEPS = 1 << 20
"""Budget of Pollard's rho for one number: it finds prime factors up to 2^36, and some larger ones.

The budget is a number of steps and not a time, so the same number always gets the same answer. A
search that uses the whole budget took 0.9, 1.5, 2.4 and 6.8 s at 128, 256, 384 and 768 bits (one
Neoverse-N1 core).
"""
# The number of differences multiplied together before one gcd is taken, which makes the gcd's cost
# negligible.
_RHO_BATCH = 256


@lru_cache
def find_odd_prime_factors(number: int) -> tuple[int, ...] | None:
    """Return the odd primes that divide `number`, ascending; None if `RHO_STEPS` did not
    suffice.
    """
    rest = divide_out(number, 2)
    primes = set()
    for divisor in TRIAL_DIVISORS:
        if rest % divisor == 0:
            primes.add(divisor)
            rest = divide_out(rest, divisor)
    search = _PollardRho(RHO_STEPS)
    parts = [rest]
    while parts:
        part = parts.pop()
        if part == 1:
            continue
        if is_prime(part):
            primes.add(part)
            continue
        found = search.find_divisor(part)
        if found is None:
            return None
        parts += [found, part // found]
    return tuple(sorted(primes))


def divide_out(number: int, divisor: int) -> int:
    """Divide `number` by `divisor` until `divisor` no longer divides it; return the quotient."""
    while number % divisor == 0:
        number //= divisor
    return number


def two_adicity(number: int) -> int:
    """Return the exponent of 2 in the factorization of `number`."""
    return (number & -number).bit_length() - 1


class _PollardRho:
    """Pollard's rho in Brent's variant; all searches of one object share one budget of steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def find_divisor(self, composite: int) -> int | None:
        """Return a proper divisor of an odd composite; None when the budget is used up."""
        constant = 1
        # If a walk closes its cycle modulo all prime factors at once, it finds only the composite
        # itself. Then try another walk, with another constant.
        while (found := self._walk(composite, constant)) == composite:
            constant += 1
        return found

    def _walk(self, composite: int, constant: int) -> int | None:
        """Iterate x -> x^2 + constant until two values are equal modulo some divisor.

        Returns that divisor, which is the composite itself if the two values are equal modulo all
        of its primes.
        """
        x = 2
        length = 1
        while self._steps > 0:
            # Brent: compare the next `length` values with this one saved value.
            saved = x
            for start in range(0, length, _RHO_BATCH):
                before, product = x, 1
                for _ in range(min(_RHO_BATCH, length - start)):
                    x = (x * x + constant) % composite
                    product = product * (saved - x) % composite
                self._steps -= min(_RHO_BATCH, length - start)
                if gcd(product, composite) != 1:
                    return self._repeat_batch(composite, constant, saved, before)
                if self._steps <= 0:
                    return None
            length *= 2
        return None

    @staticmethod
    def _repeat_batch(composite: int, constant: int, saved: int, x: int) -> int:
        """Repeat the last batch with one gcd a step: a batch may have found several primes."""
        while True:
            x = (x * x + constant) % composite
            if (found := gcd(saved - x, composite)) != 1:
                return found


# --- the multiplicative group modulo a prime ---


def compute_powers(modulus: int, base: int, length: int, scale: int = 1) -> Iterator[int]:
    """Return scale, scale * base, scale * base^2, ... modulo the modulus: `length` integers."""
    bases = repeat(base, length - 1)
    return accumulate(bases, lambda x, y: x * y % modulus, initial=scale % modulus)


def invert_all(numbers: Sequence[int], modulus: int, numerator: int = 1) -> list[int]:
    """Return numerator / x modulo a prime for each x in 0 .. modulus - 1; 0 for 0.

    By Montgomery's trick: one inversion, and three products per number.
    """
    product, before = 1, []
    for each in numbers:
        before.append(product)
        product = product * (each or 1) % modulus
    inverse = numerator * pow(product, -1, modulus) % modulus
    inverses = []
    for each, product in zip(reversed(numbers), reversed(before), strict=True):
        inverses.append(inverse * product % modulus if each else 0)
        inverse = inverse * (each or 1) % modulus
    inverses.reverse()
    return inverses


def check_factors(name: str, modulus: int, factors: Iterable[int]) -> tuple[int, ...]:
    """Check a caller's prime factors of p - 1 and return the odd ones, ascending.

    Raises KernelError unless each factor is prime and they are all the prime factors of p - 1.
    """
    odd = sorted({factor for factor in factors if factor != 2})
    rest = divide_out(modulus - 1, 2)
    for factor in odd:
        if not is_prime(factor):
            raise KernelError(f"{name}: factors has {factor}, which is not prime")
        if rest % factor:
            raise KernelError(f"{name}: factors has {factor}, which does not divide p - 1")
        rest = divide_out(rest, factor)
    if rest != 1:
        raise KernelError(
            f"{name}: factors lacks prime factors of p - 1; they leave {rest} unfactored"
        )
    return tuple(odd)


def find_generator(modulus: int, odd_factors: Iterable[int]) -> int:
    """Return the smallest generator of the multiplicative group, given the odd primes of p - 1."""
    # The order of an element divides p - 1; it is p - 1 unless it divides some (p - 1) / prime.
    exponents = [(modulus - 1) // prime for prime in (2, *odd_factors)]
    return next(
        element
        for element in count(2)
        if all(pow(element, exponent, modulus) != 1 for exponent in exponents)
    )


def find_non_residue(modulus: int) -> int:
    """Return the smallest quadratic non-residue: an x with x^((p - 1) / 2) != 1 (Euler's
    criterion).
    """
    return next(element for element in count(2) if pow(element, modulus // 2, modulus) != 1)
