"""The NumPy field arithmetic, compared with Python integers."""

import functools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.cpu import field_oracle
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.primes import NAMED, Prime, words
from gpu_executor.primes.prime import MAX_BITS

SIZES = [
    NAMED["bls12_381_fq"],
    NAMED["bls12_381_fr"],
    Prime("three", 3),
    Prime("2^31-1", 2**31 - 1),
    Prime("2^32-5", 2**32 - 5),
    Prime("33 bits", 2**32 + 15),
    Prime("goldilocks", 2**64 - 2**32 + 1),
    Prime("2^89-1", 2**89 - 1),
    Prime("full 96 bits", 2**96 - 17),
    Prime("97 bits", 2**96 + 61),
    Prime("2^127-1", 2**127 - 1),
    Prime("secp256k1", 2**256 - 2**32 - 977),
    Prime("2^255-19", 2**255 - 19),
    Prime("2^521-1", 2**521 - 1),
    # The most and largest limbs: the float64 sums come closest to 2^53.
    Prime("full 768 bits", 2**MAX_BITS - 825),
    Prime("random 768 bits", (random.Random(5).getrandbits(MAX_BITS) | 1 << 767) - 2366),
]


def multiply(prime: Prime, xs: Sequence[int], ys: Sequence[int]) -> list[int]:
    return [x * y % prime.modulus for x, y in zip(xs, ys, strict=True)]


MODULI = {prime.modulus for prime in SIZES}
PRIMES = [*SIZES, *(prime for prime in NAMED.values() if prime.modulus not in MODULI)]
PAIRS = {"add": (words.add, field_oracle.add), "sub": (words.sub, field_oracle.sub)}
PAIRS["mont_mul"] = (words.mont_mul, field_oracle.mont_mul)
PAIRS["mul"] = (words.mul, multiply)

on_every_prime = pytest.mark.parametrize("prime", PRIMES, ids=lambda prime: prime.name)
on_some_primes = pytest.mark.parametrize("prime", PRIMES[:8], ids=lambda prime: prime.name)
"""Of 1, 2, 3, 8 and 12 words."""

Fast = Callable[[Prime, words.Elements, words.Elements], words.Elements]
Slow = Callable[[Prime, list[int], list[int]], list[int]]


@functools.cache
def edges(prime: Prime) -> list[int]:
    """Values at which carries, borrows and reductions change."""
    p = prime.modulus
    powers = [1 << bit for bit in range(0, prime.bits + 1, 8)]
    near = [power + off for power in powers for off in (-1, 0, 1)]
    values = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1, prime.r_mod_p, prime.r2_mod_p]
    return sorted({value % p for value in (*values, *near, *(p - value for value in near))})


@functools.cache
def elements(prime: Prime) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(edges(prime)), st.integers(0, prime.modulus - 1))


def random_ints(prime: Prime, count: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(prime.modulus) for _ in range(count)]


def check(prime: Prime, fast: Fast, slow: Slow, xs: list[int], ys: list[int]) -> None:
    a, b = words.from_ints(prime, xs), words.from_ints(prime, ys)
    out = fast(prime, a, b)
    assert out.dtype == prime.column_dtype
    assert out.shape == (len(xs), *prime.element_shape)
    assert words.to_ints(prime, out) == slow(prime, xs, ys)
    assert words.to_ints(prime, a) == xs
    assert words.to_ints(prime, b) == ys


@on_every_prime
@settings(deadline=None, max_examples=6)
@given(data=st.data())
def test_random_and_edge_values_agree_with_exact_integers(
    prime: Prime, data: st.DataObject
) -> None:
    # Drawing takes longer than computing, so all operations share the pairs.
    pairs = data.draw(st.lists(st.tuples(elements(prime), elements(prime)), max_size=20))
    for fast, slow in PAIRS.values():
        check(prime, fast, slow, [x for x, _ in pairs], [y for _, y in pairs])


@on_every_prime
def test_every_pair_of_edge_values(prime: Prime) -> None:
    values = edges(prime)[:24] + edges(prime)[-24:]
    for fast, slow in PAIRS.values():
        check(prime, fast, slow, [x for x in values for _ in values], values * len(values))


@pytest.mark.parametrize("prime", [PRIMES[0], PRIMES[3], PRIMES[7]], ids=lambda prime: prime.name)
@pytest.mark.parametrize("count", [0, 1, 2, *(words.BLOCK + off for off in (-1, 0, 1))])
def test_counts_around_a_block(prime: Prime, count: int) -> None:
    for fast, slow in PAIRS.values():
        check(prime, fast, slow, random_ints(prime, count, 1), random_ints(prime, count, 2))


@on_some_primes
def test_counts_of_several_blocks(prime: Prime) -> None:
    count = 2 * words.BLOCK + 77
    xs, ys = random_ints(prime, count, 3), random_ints(prime, count, 4)
    for fast, slow in PAIRS.values():
        check(prime, fast, slow, xs, ys)


@on_every_prime
def test_products_next_to_a_multiple_of_the_modulus(prime: Prime) -> None:
    """There the quotient that is estimated in float64 does not tell the sign of what is left."""
    p, xs = prime.modulus, [x or 1 for x in random_ints(prime, 200, 7)]
    inverses = [pow(x, -1, p) for x in xs]
    for wanted in (1, 2, p - 1, p - 2, p // 2, p // 2 + 1, p >> 17, p - (p >> 17)):
        for scale, fast in ((1, words.mul), (prime.r, words.mont_mul)):
            ys = [wanted * scale * inverse % p for inverse in inverses]
            found = fast(prime, words.from_ints(prime, xs), words.from_ints(prime, ys))
            assert words.to_ints(prime, found) == [wanted % p] * len(xs)


@on_some_primes
@pytest.mark.parametrize("count", [1, words.BLOCK + 3])
def test_powers_agree_with_exact_integers_in_both_forms(prime: Prime, count: int) -> None:
    p, xs = prime.modulus, [*edges(prime), *random_ints(prime, count, 8)][-count:]
    canonical = words.from_ints(prime, xs)
    montgomery = words.from_ints(prime, [x * prime.r % p for x in xs])
    for exponent in (1, 2, 3, 22, 257) if count == 1 else (1, 22):
        wanted = [pow(x, exponent, p) for x in xs]
        assert words.to_ints(prime, words.power(prime, canonical, exponent, "canonical")) == wanted
        found = words.to_ints(prime, words.power(prime, montgomery, exponent, "montgomery"))
        assert found == [each * prime.r % p for each in wanted]
    assert words.to_ints(prime, canonical) == xs


@on_some_primes
def test_strided_and_many_dimensional_arrays(prime: Prime) -> None:
    shape = (4, 6, 5, *prime.element_shape)
    a = words.from_ints(prime, random_ints(prime, 120, 5)).reshape(shape)[::2, ::-1, 1:]
    b = words.from_ints(prime, random_ints(prime, 120, 6)).reshape(shape)[1::2, :, :-1]
    a.flags.writeable = b.flags.writeable = False
    xs, ys = words.to_ints(prime, a), words.to_ints(prime, b)
    for fast, slow in PAIRS.values():
        out = fast(prime, a, b)
        assert out.shape == a.shape
        assert words.to_ints(prime, out) == slow(prime, xs, ys)


@on_some_primes
def test_one_array_as_both_operands_in_fortran_order(prime: Prime) -> None:
    xs = random_ints(prime, 50)
    a = np.asfortranarray(words.from_ints(prime, xs))
    for fast, slow in PAIRS.values():
        assert words.to_ints(prime, fast(prime, a, a)) == slow(prime, xs, xs)


@on_every_prime
def test_montgomery_form_and_back(prime: Prime) -> None:
    xs = [*edges(prime), *random_ints(prime, 20)]
    x = words.from_ints(prime, xs)
    into = words.from_ints(prime, [prime.r2_mod_p] * len(xs))
    one = words.from_ints(prime, [1] * len(xs))
    inside = words.mont_mul(prime, x, into)
    assert words.to_ints(prime, inside) == [value * prime.r % prime.modulus for value in xs]
    assert words.to_ints(prime, words.mont_mul(prime, inside, one)) == xs


@on_every_prime
def test_integers_survive_conversion_to_words_and_back(prime: Prime) -> None:
    values = [0, 1, prime.modulus, prime.r - 1, *random_ints(prime, 10)]
    array = words.from_ints(prime, iter(values))
    assert words.to_ints(prime, array) == values
    assert array.flags.writeable
    assert array.tobytes() == b"".join(v.to_bytes(prime.element_bytes, "little") for v in values)
    assert array.dtype == prime.column_dtype


@pytest.mark.parametrize("value", [-1, 2**384])
def test_integers_that_do_not_fit_the_words_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        words.from_ints(NAMED["bls12_381_fq"], [value])


@on_every_prime
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_first_not_below(prime: Prime, data: st.DataObject) -> None:
    p = prime.modulus
    near = st.sampled_from([v for v in (0, p - 1, p, p + 1, prime.r - 1) if v < prime.r])
    values = data.draw(st.lists(st.one_of(near, elements(prime), st.integers(0, prime.r - 1))))
    expected = next((at for at, value in enumerate(values) if value >= p), None)
    assert words.first_not_below(prime, words.from_ints(prime, values)) == expected


@on_every_prime
def test_first_not_below_is_exact_in_every_word(prime: Prime) -> None:
    p = prime.modulus
    for word in range(prime.words):
        for value in (p + (1 << 32 * word), p - (1 << 32 * word)):
            if 0 <= value < prime.r:
                array = words.from_ints(prime, [value])
                assert words.first_not_below(prime, array) == (0 if value >= p else None)


@pytest.mark.parametrize("prime", PRIMES[:3], ids=lambda prime: prime.name)
@pytest.mark.parametrize("at", [0, words.BLOCK - 1, words.BLOCK, 2 * words.BLOCK + 1])
def test_first_not_below_across_blocks(prime: Prime, at: int) -> None:
    values = [prime.modulus - 1] * (2 * words.BLOCK + 3)
    array = words.from_ints(prime, values)
    assert words.first_not_below(prime, array) is None
    array[[at, -1]] = words.from_ints(prime, [prime.modulus])[0]
    assert words.first_not_below(prime, array) == at
    assert words.first_not_below(prime, array[::-1]) == 0
    assert words.first_not_below(prime, array[:at]) is None


def test_wrong_dtypes_and_shapes_are_refused() -> None:
    prime = NAMED["bls12_381_fq"]
    good = words.from_ints(prime, [1, 2])
    with pytest.raises(ArgumentTypeError, match="uint64"):
        words.add(prime, good.astype(np.uint32), good)
    with pytest.raises(ArgumentShapeError, match="6 columns"):
        words.mont_mul(prime, good[:, :4], good[:, :4])
    with pytest.raises(ArgumentShapeError, match="differ"):
        words.sub(prime, good, good[:1])
    with pytest.raises(ArgumentShapeError, match="6 columns"):
        words.first_not_below(prime, np.array(1, np.uint64))
