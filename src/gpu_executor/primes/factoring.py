"""The odd primes that divide a number, where they are found soon."""

from functools import lru_cache
from math import gcd

from gpu_executor.primes.primality import is_prime

TRIAL_DIVISORS = range(3, 1 << 16, 2)
RHO_STEPS = 1 << 20
"""Steps of Pollard's rho for one number: they find primes up to 2^36, and some larger ones.

They are counted and not timed, so that the same number always gets the same answer. When they do
not suffice, they took 0.9, 1.5, 2.4 and 6.8 s at 128, 256, 384 and 768 bits (a Neoverse-N1 core).
"""
# Differences multiplied up before one gcd is taken of all: the gcd then costs next to nothing.
_RHO_BATCH = 256


@lru_cache
def odd_prime_factors(number: int) -> tuple[int, ...] | None:
    """The odd primes that divide `number`, ascending; None where the steps did not suffice."""
    rest = without(number, 2)
    primes = set()
    for divisor in TRIAL_DIVISORS:
        if rest % divisor == 0:
            primes.add(divisor)
            rest = without(rest, divisor)
    search = _Search(RHO_STEPS)
    parts = [rest]
    while parts:
        part = parts.pop()
        if part == 1:
            continue
        if is_prime(part):
            primes.add(part)
            continue
        found = search.divisor(part)
        if found is None:
            return None
        parts += [found, part // found]
    return tuple(sorted(primes))


def without(number: int, divisor: int) -> int:
    """`number` divided by `divisor` as often as it goes."""
    while number % divisor == 0:
        number //= divisor
    return number


class _Search:
    """Pollard's rho in Brent's form, with a number of steps for all its searches together."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def divisor(self, composite: int) -> int | None:
        """A divisor of an odd composite, neither 1 nor itself; None when the steps are used up."""
        constant = 1
        # Walks that meet modulo every prime at once tell nothing; others do, with other constants.
        while (found := self._one_walk(composite, constant)) == composite:
            constant += 1
        return found

    def _one_walk(self, composite: int, constant: int) -> int | None:
        """Walk x -> x^2 + constant until two places agree modulo a divisor.

        The divisor is the composite itself where they agree modulo all its primes at once.
        """
        fast = 2
        length = 1
        while self._steps > 0:
            # Brent: compare the next `length` places with the one place that was kept.
            kept = fast
            for start in range(0, length, _RHO_BATCH):
                before, product = fast, 1
                for _ in range(min(_RHO_BATCH, length - start)):
                    fast = (fast * fast + constant) % composite
                    product = product * (kept - fast) % composite
                self._steps -= min(_RHO_BATCH, length - start)
                if gcd(product, composite) != 1:
                    return self._first_meeting(composite, constant, kept, before)
                if self._steps <= 0:
                    return None
            length *= 2
        return None

    @staticmethod
    def _first_meeting(composite: int, constant: int, kept: int, fast: int) -> int:
        """The last batch again, step by step: of several primes met in it, the first."""
        while True:
            fast = (fast * fast + constant) % composite
            if (found := gcd(kept - fast, composite)) != 1:
                return found
