"""Generators and roots of unity: every order checked exactly."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.errors import KernelError
from gpu_executor.primes import NAMED, Prime, number_theory
from gpu_executor.primes.number_theory import find_odd_prime_factors, is_prime

SMALL = [3, 5, 7, 17, 41, 257, 409, 65537, 2**61 - 1, 5 * 2**25 + 1]
PRIMES = [*NAMED.values(), *(Prime(f"{p}", p) for p in SMALL)]

# p - 1 = MULTIPLE * A * B with MULTIPLE = 16 * odd; no reasonable budget finds A or B.
A, B = 2**89 - 1, 2**107 - 1
MULTIPLE = next(m for m in range(16, 1 << 16, 16) if m & -m == 16 and is_prime(m * A * B + 1))
HARD = MULTIPLE * A * B + 1
HARD_FACTORS = (*(find_odd_prime_factors(MULTIPLE) or ()), A, B)

on_every_prime = pytest.mark.parametrize("prime", PRIMES, ids=lambda prime: prime.name)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small budget: using up the real one takes a second."""
    monkeypatch.setattr(number_theory, "RHO_STEPS", 1000)
    find_odd_prime_factors.cache_clear()


def generates(prime: Prime, element: int) -> bool:
    """Whether the order of an element is p - 1."""
    assert prime.odd_factors is not None
    quotients = [(prime.modulus - 1) // factor for factor in (2, *prime.odd_factors)]
    return all(pow(element, quotient, prime.modulus) != 1 for quotient in quotients)


@on_every_prime
def test_p_less_one_is_a_power_of_two_times_an_odd_part(prime: Prime) -> None:
    assert prime.odd_part % 2 == 1
    assert prime.odd_part << prime.two_adicity == prime.modulus - 1


@on_every_prime
def test_the_generator_is_the_smallest_there_is(prime: Prime) -> None:
    assert generates(prime, prime.generator)
    assert not any(generates(prime, smaller) for smaller in range(2, prime.generator))


@pytest.mark.parametrize("modulus", [3, 5, 7, 17, 41, 257, 409])
def test_the_powers_of_a_generator_are_all_elements_but_zero(modulus: int) -> None:
    generator = Prime("p", modulus).generator
    powers = {pow(generator, exponent, modulus) for exponent in range(modulus - 1)}
    assert powers == set(range(1, modulus))


@on_every_prime
def test_roots_of_unity_have_their_orders_and_are_squares_of_each_other(prime: Prime) -> None:
    p = prime.modulus
    roots = [prime.root_of_unity(log2) for log2 in range(prime.two_adicity + 1)]
    assert roots[:2] == [1, p - 1]
    assert [root * root % p for root in roots[1:]] == roots[:-1]
    for log2, root in enumerate(roots):
        assert root == pow(prime.generator, (p - 1) >> log2, p)
        assert 0 < root < p


@on_every_prime
def test_orders_that_do_not_divide_p_less_one_are_refused(prime: Prime) -> None:
    for beyond in (-1, 1, 40):
        log2 = -1 if beyond < 0 else prime.two_adicity + beyond
        with pytest.raises(KernelError, match=rf"order 2\^{log2}; .* 2\^{prime.two_adicity}$"):
            prime.root_of_unity(log2)


@settings(deadline=None, max_examples=50)
@given(st.integers(3, 2**48).map(lambda n: next(p for p in count(n) if is_prime(p))))
def test_generators_and_roots_of_random_primes(modulus: int) -> None:
    prime = Prime("p", modulus)
    assert generates(prime, prime.generator)
    top = prime.root_of_unity(prime.two_adicity)
    assert pow(top, 1 << (prime.two_adicity - 1), modulus) == modulus - 1


# --- where p - 1 is hard to factor ---


@pytest.mark.usefixtures("few_steps")
def test_a_generator_needs_the_factors_of_p_less_one() -> None:
    prime = Prime("hard", HARD)
    assert prime.odd_factors is None
    with pytest.raises(KernelError, match=r"hard: .*give factors=$"):
        _ = prime.generator


@pytest.mark.usefixtures("few_steps")
def test_without_factors_roots_of_unity_come_from_the_smallest_non_residue() -> None:
    prime = Prime("hard", HARD)
    squares = [x for x in range(2, 100) if pow(x, HARD // 2, HARD) == 1]
    smallest = next(x for x in range(2, 100) if x not in squares)
    assert prime.two_adicity == 4
    for log2 in range(5):
        root = prime.root_of_unity(log2)
        assert root == pow(smallest, (HARD - 1) >> log2, HARD)
        assert [pow(root, 1 << n, HARD) == 1 for n in range(log2 + 1)] == [False] * log2 + [True]


def test_given_factors_lead_to_the_generator() -> None:
    prime = Prime("hard", HARD, factors=HARD_FACTORS)
    assert prime.odd_factors == HARD_FACTORS
    assert generates(prime, prime.generator)
    assert not any(generates(prime, smaller) for smaller in range(2, prime.generator))
    assert prime.root_of_unity(4) == pow(prime.generator, (HARD - 1) >> 4, HARD)


def test_factors_may_be_unsorted_repeated_and_include_two() -> None:
    given_ = (B, 2, 2, *HARD_FACTORS, A)
    assert Prime("hard", HARD, factors=given_) == Prime("hard", HARD, factors=HARD_FACTORS)
    assert Prime("p", 65537, factors=(2,)).generator == 3


def test_primes_with_and_without_factors_differ() -> None:
    """Their roots of unity differ too."""
    assert Prime("hard", HARD, factors=HARD_FACTORS) != Prime("hard", HARD)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((A,), "lacks .* leave .* unfactored"),
        ((*HARD_FACTORS[:-2], A * B), "not prime"),
        ((*HARD_FACTORS, 2**61 - 1), "does not divide"),
        ((*HARD_FACTORS, 1), "not prime"),
        ((*HARD_FACTORS, -3), "not prime"),
        ((2,), "lacks .* leave .* unfactored"),
    ],
)
def test_wrong_factors_are_refused(factors: tuple[int, ...], words: str) -> None:
    with pytest.raises(KernelError, match=f"hard: .*{words}"):
        Prime("hard", HARD, factors=factors)


@pytest.mark.parametrize("prime", NAMED.values(), ids=NAMED)
def test_well_known_moduli_need_no_factors_under_any_name(
    prime: Prime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number_theory, "RHO_STEPS", 0)
    other = Prime("another name", prime.modulus)
    assert other.generator == prime.generator
    assert other.root_of_unity(other.two_adicity) == prime.root_of_unity(prime.two_adicity)


@pytest.mark.parametrize("modulus", [3, 2**31 - 1, 2**255 - 19])
def test_inverses_of_many_numbers_are_exact_and_zero_stays_zero(modulus: int) -> None:
    numbers = [0, 1, modulus - 1, 2, 0, modulus // 2, 0]
    for numerator in (1, 2, modulus - 1):
        wanted = [numerator * pow(each, -1, modulus) % modulus if each else 0 for each in numbers]
        assert number_theory.invert_all(numbers, modulus, numerator) == wanted
    assert number_theory.invert_all([], modulus) == []
