"""Primes: which moduli are accepted, and the constants derived from one."""

import math
import pickle

import numpy as np
import pytest

from gpu_executor.errors import KernelError
from gpu_executor.primes import (
    BLS12_381_FQ,
    BLS12_381_FR,
    NAMED,
    LimbLayout,
    Prime,
    choose_limb_layout,
)
from gpu_executor.primes.prime import (
    LIMB_BITS,
    MAX_BITS,
    MAX_LIMBS,
    MAX_MODULUS_BYTES,
    WORD_BITS,
    is_prime,
)

# As published; the package derives them from the curve's parameter instead.
PUBLISHED_Q = int(
    "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf"
    "6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
    16,
)
PUBLISHED_R = int("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001", 16)
BLS12_381_X = -0xD201000000010000

MERSENNE_61 = 2**61 - 1
MERSENNE_127 = 2**127 - 1
WORD_COUNTS = range(1, MAX_BITS // WORD_BITS + 1)


def sieve(limit: int) -> set[int]:
    candidates = set(range(2, limit))
    for number in range(2, int(limit**0.5) + 1):
        if number in candidates:
            candidates -= set(range(number * number, limit, number))
    return candidates


def multiply_chernick(m: int) -> int:
    """The product (6m+1)(12m+1)(18m+1), a Carmichael number if all three are prime."""
    factors = [step * m + 1 for step in (6, 12, 18)]
    assert all(map(is_prime, factors))
    return math.prod(factors)


def test_primality_agrees_with_a_sieve() -> None:
    limit = 20_000
    assert {number for number in range(-3, limit) if is_prime(number)} == sieve(limit)


@pytest.mark.parametrize("exponent", [31, 61, 89, 107, 127, 521, 607])
def test_mersenne_primes_are_prime(exponent: int) -> None:
    assert is_prime(2**exponent - 1)


@pytest.mark.parametrize("exponent", [67, 101, 257, 523, 751])
def test_composite_mersenne_numbers_are_not_prime(exponent: int) -> None:
    assert not is_prime(2**exponent - 1)


@pytest.mark.parametrize(
    "composite",
    [
        9,
        561,  # Carmichael numbers
        1729,
        56052361,
        multiply_chernick(2**30 + 611),
        multiply_chernick(2**100 + 8580),
        3215031751,  # strong pseudoprime to 2, 3, 5, 7
        3825123056546413051,  # to the first 9 primes
        318665857834031151167461,  # to the first 12
        3317044064679887385961981,  # to the first 13
        MERSENNE_61**2,
        MERSENNE_61 * MERSENNE_127,
        PUBLISHED_Q * PUBLISHED_R,
    ],
)
def test_composites_are_refused(composite: int) -> None:
    with pytest.raises(KernelError, match="not prime"):
        Prime("composite", composite)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (4, "even"),
        (2**64, "even"),
        (2, "less than 3"),
        (1, "less than 3"),
        (0, "less than 3"),
        (-7, "less than 3"),
        (2**MAX_BITS + 1, "769 bits"),
    ],
)
def test_even_small_and_too_large_moduli_are_refused(number: int, words: str) -> None:
    with pytest.raises(KernelError, match=words) as raised:
        Prime("refused", number)
    assert isinstance(raised.value, ValueError)
    assert "refused" in str(raised.value)


def test_the_bls12_381_primes_are_the_published_ones() -> None:
    assert BLS12_381_FQ.modulus == PUBLISHED_Q
    assert BLS12_381_FR.modulus == PUBLISHED_R
    assert (BLS12_381_FQ.bits, BLS12_381_FR.bits) == (381, 255)
    assert (BLS12_381_FQ.words, BLS12_381_FR.words) == (12, 8)


def test_bls12_381_curve_has_a_subgroup_of_order_r_and_embedding_degree_12() -> None:
    q, r = BLS12_381_FQ.modulus, BLS12_381_FR.modulus
    trace = BLS12_381_X + 1
    assert (q + 1 - trace) % r == 0
    assert [degree for degree in range(1, 13) if pow(q, degree, r) == 1] == [12]


@pytest.mark.parametrize(
    ("modulus", "words", "base", "shape"),
    [
        (3, 1, np.uint32, ()),
        (2**31 - 1, 1, np.uint32, ()),
        (2**32 - 5, 1, np.uint32, ()),
        (2**64 - 2**32 + 1, 2, np.uint64, ()),
        (2**89 - 1, 3, np.uint32, (3,)),
        (PUBLISHED_R, 8, np.uint64, (4,)),
        (PUBLISHED_Q, 12, np.uint64, (6,)),
        (2**521 - 1, 17, np.uint32, (17,)),
    ],
)
def test_element_dtype(modulus: int, words: int, base: type, shape: tuple[int, ...]) -> None:
    prime = Prime("p", modulus)
    assert prime.words == words
    assert prime.element_dtype == np.dtype((base, shape))
    assert (prime.column_dtype, prime.element_shape) == (np.dtype(base), shape)
    assert prime.element_dtype.itemsize == prime.element_bytes == 4 * words
    assert np.zeros(5, prime.element_dtype).shape == (5, *shape)


@pytest.mark.parametrize("prime", NAMED.values(), ids=lambda prime: prime.name)
def test_montgomery_constants(prime: Prime) -> None:
    p = prime.modulus
    r_inverse = pow(2, -32 * prime.words, p)
    assert prime.r == 2 ** (32 * prime.words)
    assert 0 < prime.r_mod_p < p
    assert prime.r_mod_p * r_inverse % p == 1
    assert 0 < prime.r2_mod_p < p
    assert prime.r2_mod_p * r_inverse % p == prime.r_mod_p
    assert len(prime.modulus_words) == prime.words
    assert sum(word << 32 * at for at, word in enumerate(prime.modulus_words)) == p


@pytest.mark.parametrize("prime", NAMED.values(), ids=lambda prime: prime.name)
def test_limb_constants(prime: Prime) -> None:
    p, layout = prime.modulus, prime.limbs
    limbs = layout.split(p)
    assert len(limbs) == layout.count
    assert all(0 <= limb < 1 << layout.bits for limb in limbs)
    assert sum(limb << layout.bits * at for at, limb in enumerate(limbs)) == p
    inverse = layout.negative_inverse(p)
    assert 0 <= inverse < 1 << layout.bits
    # Adding low * inverse * p clears the lowest limb.
    assert all((low + low * inverse * p) % (1 << layout.bits) == 0 for low in (1, 12345, 2**27 - 1))


def test_limb_layouts_are_those_measured_fastest() -> None:
    assert choose_limb_layout(12) == LimbLayout(bits=30, count=13, shift=6)
    assert choose_limb_layout(8) == LimbLayout(bits=29, count=9, shift=5)
    assert BLS12_381_FQ.limbs == choose_limb_layout(12)
    assert BLS12_381_FR.limbs == choose_limb_layout(8)


@pytest.mark.parametrize("words", WORD_COUNTS)
def test_every_limb_layout_holds_its_words_and_fits_the_push_constants(words: int) -> None:
    layout = choose_limb_layout(words)
    assert layout.bits in LIMB_BITS
    assert layout.count * layout.bits == 32 * words + layout.shift
    assert 0 <= layout.shift < layout.bits
    assert layout.count <= MAX_LIMBS == 26
    assert 4 * layout.count <= MAX_MODULUS_BYTES == 104
    for bits in LIMB_BITS:
        other = LimbLayout.covering(words, bits)
        assert (other.count, other.bits) >= (layout.count, layout.bits)


@pytest.mark.parametrize("value", [-1, 2**56])
def test_split_refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        LimbLayout(28, 2, 24).split(value)


def test_primes_compare_hash_and_pickle_by_value() -> None:
    again = Prime("bls12_381_fq", PUBLISHED_Q)
    assert again == BLS12_381_FQ
    assert hash(again) == hash(BLS12_381_FQ)
    assert pickle.loads(pickle.dumps(BLS12_381_FQ)) == BLS12_381_FQ
    assert Prime("bls12_381_fq", PUBLISHED_Q, canonical=True) != BLS12_381_FQ


@pytest.mark.parametrize("prime", NAMED.values(), ids=lambda prime: prime.name)
def test_forms(prime: Prime) -> None:
    p = prime.modulus
    assert prime.form == ("canonical" if prime.canonical else "montgomery")
    assert prime.one == (1 if prime.canonical else prime.r_mod_p)
    for value in (0, 1, p - 1, p, -1, 12345 * p + 6):
        assert 0 <= prime.in_form(value) < p
        assert prime.in_form(value) == value * prime.one % p


def test_only_goldilocks_and_mersenne31_are_canonical() -> None:
    assert [name for name, prime in NAMED.items() if prime.canonical] == [
        "goldilocks",
        "mersenne31",
    ]
    assert not Prime("p", 2**31 - 1).canonical
