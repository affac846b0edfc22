"""Factoring, against FLINT's."""

from __future__ import annotations

import pytest
from flint import fmpz
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.primes import factoring
from gpu_executor.primes.factoring import odd_prime_factors, without

MERSENNE_31, MERSENNE_61 = 2**31 - 1, 2**61 - 1


def expected(number: int) -> tuple[int, ...]:
    return tuple(sorted(int(prime) for prime, _ in fmpz(number).factor() if prime != 2))


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.integers(1, 1000), st.integers(1, 2**64)))
def test_against_flint(number: int) -> None:
    assert odd_prime_factors(number) == expected(number)


@pytest.mark.parametrize(
    "number",
    [
        1,
        2**767,
        3**200,
        MERSENNE_31**2,  # a walk may meet modulo both at once
        MERSENNE_31**3 * 2**5,
        MERSENNE_61 * MERSENNE_31,
        MERSENNE_61 * 3**2 * 5,
        65537**2 * 65539**2,
        (2**32 - 5) * (2**32 - 17) * (2**32 - 65),
        2**64 - 1,
    ],
)
def test_powers_and_products_of_large_primes(number: int) -> None:
    assert odd_prime_factors(number) == expected(number)


def test_a_large_prime_left_over_is_found_by_being_prime() -> None:
    assert odd_prime_factors(2**4 * 3 * (2**521 - 1)) == (3, 2**521 - 1)


def test_giving_up_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    number = MERSENNE_61 * (2**89 - 1)
    monkeypatch.setattr(factoring, "RHO_STEPS", 5000)
    odd_prime_factors.cache_clear()
    assert odd_prime_factors(number) is None
    assert odd_prime_factors(2 * number) is None


@given(st.integers(1, 10**6), st.integers(2, 50), st.integers(0, 10))
def test_without(number: int, divisor: int, power: int) -> None:
    rest = without(number * divisor**power, divisor)
    assert rest % divisor != 0
    assert number * divisor**power % rest == 0
