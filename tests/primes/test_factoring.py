"""Factoring, compared with FLINT."""

from __future__ import annotations

import pytest
from flint import fmpz
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.primes import number_theory
from gpu_executor.primes.number_theory import divide_out, find_odd_prime_factors

MERSENNE_31, MERSENNE_61 = 2**31 - 1, 2**61 - 1


def factor_with_flint(number: int) -> tuple[int, ...]:
    return tuple(sorted(int(prime) for prime, _ in fmpz(number).factor() if prime != 2))


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.integers(1, 1000), st.integers(1, 2**64)))
def test_factors_agree_with_flint(number: int) -> None:
    assert find_odd_prime_factors(number) == factor_with_flint(number)


@pytest.mark.parametrize(
    "number",
    [
        1,
        2**767,
        3**200,
        MERSENNE_31**2,  # a walk may find both factors at once
        MERSENNE_31**3 * 2**5,
        MERSENNE_61 * MERSENNE_31,
        MERSENNE_61 * 3**2 * 5,
        65537**2 * 65539**2,
        (2**32 - 5) * (2**32 - 17) * (2**32 - 65),
        2**64 - 1,
    ],
)
def test_powers_and_products_of_large_primes(number: int) -> None:
    assert find_odd_prime_factors(number) == factor_with_flint(number)


def test_a_large_cofactor_is_recognized_as_prime() -> None:
    assert find_odd_prime_factors(2**4 * 3 * (2**521 - 1)) == (3, 2**521 - 1)


def test_a_used_up_budget_returns_none(monkeypatch: pytest.MonkeyPatch) -> None:
    number = MERSENNE_61 * (2**89 - 1)
    monkeypatch.setattr(number_theory, "RHO_STEPS", 5000)
    find_odd_prime_factors.cache_clear()
    assert find_odd_prime_factors(number) is None
    assert find_odd_prime_factors(2 * number) is None


@given(st.integers(1, 10**6), st.integers(2, 50), st.integers(0, 10))
def test_divide_out_removes_every_power(number: int, divisor: int, power: int) -> None:
    rest = divide_out(number * divisor**power, divisor)
    assert rest % divisor != 0
    assert number * divisor**power % rest == 0
