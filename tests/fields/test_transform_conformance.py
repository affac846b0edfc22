"""One suite for transforms on the host and on the card: exact in every order and direction, on
cosets and in batches, for small ones against sums of powers, for large ones at some points."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_377_FQ,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    SECP256K1,
    Field,
)
from tests.support.fields_under_test import (
    CONFORMING,
    FIVE,
    FULL96,
    FULL768,
    ORDERS,
    THREE,
    Place,
    check_transforms,
    edges,
    in_both_places,
    in_order,
    in_reverse,
    ints,
    made,
    naive_transform,
    polynomial,
    root_of,
    some,
)

Gpu = gx.PersistentVulkanBackend
Case = tuple[Place, Field, int]

FULL64 = Field(2**64 - 2**34 + 1, name="full 64 bits")
"""Roots of unity of order 2^34, like Goldilocks, and products like those of longer primes."""
FAMILIES = [BLS12_381_FR, GOLDILOCKS, BABYBEAR]
on_families = pytest.mark.parametrize("field", FAMILIES, ids=lambda field: field.name)


def sizes(place: Place, field: Field, *log_ns: int) -> Iterator[Case]:
    return ((place, field, log_n) for log_n in log_ns if log_n <= field.prime.two_adicity)


def of(cases: Sequence[Case]) -> pytest.MarkDecorator:
    names = [f"{place}-{field.name}-{log_n}" for place, field, log_n in cases]
    return pytest.mark.parametrize(("place", "field", "log_n"), cases, ids=names)


IN_EVERY_ORDER: list[Case] = [
    *(case for field in CONFORMING for case in sizes("host", field, 0, 1, 2, 5)),
    # lavapipe compiles a pass of many limbs for half a second, and another for each order.
    *sizes("card", BABYBEAR, *range(7)),
    *sizes("card", GOLDILOCKS, 0, 1, 5),
    *sizes("card", FULL64, 3),
    *sizes("card", BLS12_381_FR, 0, 4),
    *(case for field in (MERSENNE31, THREE, FIVE) for case in sizes("card", field, 0, 1, 2)),
    *sizes("card", FULL96, 3),
]
SMALL: list[Case] = [
    *(case for field in (BLS12_381_FR, GOLDILOCKS) for case in sizes("card", field, 1, 2, 3, 6)),
    *sizes("card", KOALABEAR, 1, 5),
    *sizes("card", FULL64, 2, 6),
    *sizes("card", SECP256K1, 1),
]
LARGE: list[Case] = [
    *sizes("card", GOLDILOCKS, 8, 9, 16),
    *sizes("card", BABYBEAR, 8, 9, 17),
    *sizes("card", BLS12_381_FR, 9, 13),
    *sizes("card", BN254_FR, 8),
    *sizes("card", BLS12_377_FQ, 9),
    *sizes("card", FULL64, 13),
    *sizes("card", KOALABEAR, 12),
    *sizes("host", BLS12_381_FR, 12),
    *sizes("host", GOLDILOCKS, 14),
    *sizes("host", BABYBEAR, 15),
    *sizes("host", FULL96, 11),
    *sizes("host", FULL768, 9),
]
SAME_IN_EVERY_ORDER: list[Case] = [
    *sizes("card", GOLDILOCKS, 9),
    *sizes("card", BABYBEAR, 9, 12),
    *sizes("host", BABYBEAR, 9),
    *sizes("host", BLS12_381_FR, 8),
]


# --- small ones, whole ---


@of(IN_EVERY_ORDER)
def test_small_transforms_are_exact_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    check_transforms(gpu, place, field, log_n)
    check_transforms(gpu, place, field, log_n, coset=field.modulus - 1)


@of(SMALL)
def test_small_transforms_are_exact(gpu: Gpu, place: Place, field: Field, log_n: int) -> None:
    values = some(field, 1 << log_n, log_n)
    y = field.ntt(made(gpu, place, field, values))
    assert ints(y) == naive_transform(field, values)
    assert ints(field.intt(y)) == values


@pytest.mark.parametrize("log_n", [0, 4])
@in_both_places
@on_families
def test_transforms_on_any_coset_are_exact_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    for coset in (7, -5, field.modulus + 3, 2**700 + 1):
        check_transforms(gpu, place, field, log_n, coset)


@in_both_places
@on_families
def test_special_polynomials_have_the_values_known(gpu: Gpu, field: Field, place: Place) -> None:
    p, n, root = field.modulus, 16, root_of(field, 4)
    x = [int(i == 1) for i in range(n)]
    known = {
        "0": ([0] * n, [0] * n),
        "constant": ([p - 1, *[0] * (n - 1)], [p - 1] * n),
        "X": (x, [pow(root, i, p) for i in range(n)]),
        "all p - 1": ([p - 1] * n, [-n % p, *[0] * (n - 1)]),
    }
    for coefficients, values in known.values():
        assert ints(field.ntt(made(gpu, place, field, coefficients))) == values


# --- large ones, at some points and back ---


@of(LARGE)
def test_large_transforms_have_the_values_of_their_polynomials(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    n, p = 1 << log_n, field.modulus
    values = some(field, n, log_n)
    y = field.ntt(made(gpu, place, field, values))
    found, at, root = ints(y), polynomial(field, values), root_of(field, log_n)
    for i in (0, 1, 2, n // 2, n // 2 + 1, n - 1, *random.Random(1).sample(range(n), 3)):
        assert found[i] == int(at(pow(root, i, p))), i
    assert ints(field.intt(y)) == values


@of(SAME_IN_EVERY_ORDER)
def test_large_transforms_are_the_same_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    values = some(field, 1 << log_n, 2)
    wanted, on_a_coset = (
        ints(field.ntt(made(gpu, place, field, values), coset=coset)) for coset in (None, 11)
    )
    at, p = polynomial(field, values), field.modulus
    assert on_a_coset[5] == int(at(11 * pow(root_of(field, log_n), 5, p) % p))
    for first, then in product(ORDERS, repeat=2):
        x = made(gpu, place, field, in_order(values, first))
        for coset, values_there in ((None, wanted), (11, on_a_coset)):
            y = field.ntt(x, coset=coset, order_in=first, order_out=then)
            assert ints(y) == in_order(values_there, then)
            back = field.intt(y, coset=coset, order_in=then, order_out=first)
            assert ints(back) == in_order(values, first)


# --- batches and parts ---


@in_both_places
@on_families
def test_every_row_of_a_batch_is_transformed(gpu: Gpu, field: Field, place: Place) -> None:
    rows = [some(field, 16, seed) for seed in range(6)]
    array = made(gpu, place, field, np.array(rows, object).reshape(3, 2, 16))
    y = field.ntt(array)
    assert y.shape == (3, 2, 16)
    assert ints(y.reshape(6, 16)) == [naive_transform(field, row) for row in rows]
    assert ints(field.intt(y).reshape(6, 16)) == rows
    reversed_order = field.ntt(array, order_out="reversed", coset=3)
    assert ints(reversed_order[1][1]) == in_reverse(naive_transform(field, rows[3], 3))
    assert ints(field.intt(reversed_order, order_in="reversed", coset=3)) == ints(array)


@in_both_places
def test_batches_of_several_passes_are_exact(gpu: Gpu, place: Place) -> None:
    field, log_n = BABYBEAR, 9
    rows = [some(field, 1 << log_n, seed) for seed in range(5)]
    y = field.ntt(made(gpu, place, field, rows))
    for row, found in zip(rows, ints(y), strict=True):
        at = polynomial(field, row)
        for i in (1, 255, 256, 511):
            assert found[i] == int(at(pow(root_of(field, log_n), i, field.modulus)))
    for order in ORDERS:
        there = field.ntt(made(gpu, place, field, rows), order_out=order)
        assert ints(field.intt(there, order_in=order)) == rows


@in_both_places
@on_families
def test_a_part_of_an_array_is_transformed_as_one(gpu: Gpu, field: Field, place: Place) -> None:
    values = some(field, 64, 1)
    x = made(gpu, place, field, values)
    for start in (1, 8, 48):
        part = x[start : start + 16]
        assert ints(field.ntt(part)) == naive_transform(field, values[start : start + 16])


@in_both_places
def test_no_rows_give_no_rows(gpu: Gpu, place: Place) -> None:
    x = made(gpu, place, BABYBEAR, np.zeros((0, 8), object))
    for y in (BABYBEAR.ntt(x), BABYBEAR.intt(x), BABYBEAR.ntt(x, coset=3)):
        assert (y.shape, ints(y)) == ((0, 8), [])


# --- what transforms are for ---


@in_both_places
@pytest.mark.parametrize(
    "field", [BLS12_381_FR, FULL64, GOLDILOCKS, KOALABEAR], ids=lambda field: field.name
)
def test_products_of_values_are_values_of_products(gpu: Gpu, field: Field, place: Place) -> None:
    for log_n, degree in ((5, 14), (9, 200)):
        n = 1 << log_n
        a, b = some(field, degree + 1, 1), some(field, n - degree, 2)
        values = [
            field.ntt(
                made(gpu, place, field, [*each, *[0] * (n - len(each))]), order_out="reversed"
            )
            for each in (a, b)
        ]
        found = ints(field.intt(values[0] * values[1], order_in="reversed"))
        exact = polynomial(field, a) * polynomial(field, b)
        assert found == [int(exact[i]) for i in range(n)]


@settings(max_examples=10)
@given(data=st.data())
@in_both_places
@on_families
def test_transforms_are_linear(gpu: Gpu, field: Field, place: Place, data: st.DataObject) -> None:
    element = st.one_of(st.sampled_from(edges(field)), st.integers(0, field.modulus - 1))
    rows = st.lists(element, min_size=16, max_size=16)
    x, y = (made(gpu, place, field, data.draw(rows)) for _ in range(2))
    a, b = data.draw(element), data.draw(element)
    for change in (field.ntt, field.intt):
        assert ints(change(x * a + y * b)) == ints(change(x) * a + change(y) * b)


# --- what cannot be ---


@in_both_places
@pytest.mark.parametrize("shape", [(3,), (0,), (4, 6), (5, 0), ()], ids=str)
def test_rows_of_no_power_of_two_are_refused(
    gpu: Gpu, place: Place, shape: tuple[int, ...]
) -> None:
    x = made(gpu, place, BABYBEAR, np.zeros(shape, object))
    length = shape[-1] if shape else 0
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        with pytest.raises(
            gx.errors.ArgumentShapeError, match=rf"rows of 2\^k elements, not of {length}"
        ):
            change(x)


@in_both_places
@pytest.mark.parametrize(
    ("field", "log_n"),
    [(MERSENNE31, 2), (Field(97), 6), (Field(2**255 - 19), 3)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_rows_longer_than_the_order_of_any_root_are_refused(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    x = made(gpu, place, field, [1] * (1 << log_n))
    for change in (field.ntt, field.intt):
        with pytest.raises(
            gx.errors.ArgumentShapeError,
            match=rf"at most 2\^{log_n - 1} elements.*not 2\^{log_n}",
        ):
            change(x)
    half = x[: len(x) // 2]
    assert ints(field.ntt(half)) == [len(half) % field.modulus, *[0] * (len(half) - 1)]
