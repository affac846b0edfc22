"""One suite for transforms on the host and on a device: every order and direction, cosets, batches.

Small transforms are compared with FLINT at all points, large ones at some points.
"""

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
    BLS12_381_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
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
    draw_elements,
    get_root,
    in_every_place,
    list_edge_values,
    make_array,
    make_polynomial,
    put_in_order,
    reverse_bits,
    to_ints,
    transform_naively,
)

Gpu = gx.PersistentVulkanBackend
Case = tuple[Place, Field, int]

FULL64 = Field(2**64 - 2**34 + 1, name="full 64 bits")
"""It has roots of unity of a large order like Goldilocks, and the products of wide primes."""
FAMILIES = [BLS12_381_FR, GOLDILOCKS, BABYBEAR]
on_families = pytest.mark.parametrize("field", FAMILIES, ids=lambda field: field.name)


def sizes(place: Place, field: Field, *log_ns: int) -> Iterator[Case]:
    return ((place, field, log_n) for log_n in log_ns if log_n <= field.prime.two_adicity)


def of(cases: Sequence[Case]) -> pytest.MarkDecorator:
    names = [f"{place}-{field.name}-{log_n}" for place, field, log_n in cases]
    return pytest.mark.parametrize(("place", "field", "log_n"), cases, ids=names)


IN_EVERY_ORDER: list[Case] = [
    *(case for field in CONFORMING for case in sizes("host", field, 1, 4)),
    *sizes("host", BABYBEAR, 0),
    # lavapipe takes half a second to compile a pass of many limbs, for each order.
    # Of 2^4 elements are those on cosets, too.
    *sizes("device", BABYBEAR, 0, 4),
    *sizes("device", GOLDILOCKS, 4),
    *sizes("device", BLS12_381_FR, 4),
    *sizes("device", FULL96, 3),
]
SMALL: list[Case] = [
    *sizes("device", GOLDILOCKS, 3, 5),
    *sizes("device", BLS12_381_FR, 0),
    *sizes("device", KOALABEAR, 6),
    *sizes("device", FULL64, 5),
    *(case for field in (MERSENNE31, THREE, FIVE) for case in sizes("device", field, 1, 2)),
]
LARGE: list[Case] = [
    *sizes("device", GOLDILOCKS, 16),
    *sizes("device", BABYBEAR, 17),
    *sizes("device", BLS12_381_FR, 13),
    *sizes("host", BLS12_381_FR, 12),
    *sizes("host", GOLDILOCKS, 14),
    *sizes("host", BABYBEAR, 15),
    *sizes("host", FULL96, 11),
    *sizes("host", FULL768, 9),
]
SAME_IN_EVERY_ORDER: list[Case] = [
    *sizes("device", BABYBEAR, 9),
    *sizes("host", BABYBEAR, 9),
    *sizes("host", BLS12_381_FR, 8),
]


# --- small transforms, all values ---


@of(IN_EVERY_ORDER)
def test_small_transforms_are_exact_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    check_transforms(gpu, place, field, log_n)
    check_transforms(gpu, place, field, log_n, coset=field.modulus - 1)


@of(SMALL)
def test_small_transforms_are_exact(gpu: Gpu, place: Place, field: Field, log_n: int) -> None:
    values = draw_elements(field, 1 << log_n, log_n)
    y = field.ntt(make_array(gpu, place, field, values))
    assert to_ints(y) == transform_naively(field, values)
    assert to_ints(field.intt(y)) == values


@pytest.mark.parametrize("log_n", [0, 4])
@in_every_place
@on_families
def test_transforms_on_any_coset_are_exact_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    for coset in (-5, 2**700 + 1):
        check_transforms(gpu, place, field, log_n, coset)


@in_every_place
@on_families
def test_special_polynomials_have_their_known_values(gpu: Gpu, field: Field, place: Place) -> None:
    p, n, root = field.modulus, 16, get_root(field, 4)
    x = [int(i == 1) for i in range(n)]
    known = {
        "0": ([0] * n, [0] * n),
        "constant": ([p - 1, *[0] * (n - 1)], [p - 1] * n),
        "X": (x, [pow(root, i, p) for i in range(n)]),
        "all p - 1": ([p - 1] * n, [-n % p, *[0] * (n - 1)]),
    }
    for coefficients, values in known.values():
        assert to_ints(field.ntt(make_array(gpu, place, field, coefficients))) == values


# --- large transforms, some values and the inverse ---


@of(LARGE)
def test_large_transforms_have_the_values_of_their_polynomials(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    n, p = 1 << log_n, field.modulus
    values = draw_elements(field, n, log_n)
    y = field.ntt(make_array(gpu, place, field, values))
    found, at, root = to_ints(y), make_polynomial(field, values), get_root(field, log_n)
    for i in (0, 1, 2, n // 2, n // 2 + 1, n - 1, *random.Random(1).sample(range(n), 3)):
        assert found[i] == int(at(pow(root, i, p))), i
    assert to_ints(field.intt(y)) == values


@of(SAME_IN_EVERY_ORDER)
def test_large_transforms_are_the_same_in_every_order(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    values = draw_elements(field, 1 << log_n, 2)
    wanted, on_a_coset = (
        to_ints(field.ntt(make_array(gpu, place, field, values), coset=coset))
        for coset in (None, 11)
    )
    at, p = make_polynomial(field, values), field.modulus
    assert on_a_coset[5] == int(at(11 * pow(get_root(field, log_n), 5, p) % p))
    for first, then in product(ORDERS, repeat=2):
        x = make_array(gpu, place, field, put_in_order(values, first))
        for coset, values_there in ((None, wanted), (11, on_a_coset)):
            y = field.ntt(x, coset=coset, order_in=first, order_out=then)
            assert to_ints(y) == put_in_order(values_there, then)
            back = field.intt(y, coset=coset, order_in=then, order_out=first)
            assert to_ints(back) == put_in_order(values, first)


# --- batches and slices ---


@in_every_place
@on_families
def test_every_row_of_a_batch_is_transformed(gpu: Gpu, field: Field, place: Place) -> None:
    rows = [draw_elements(field, 16, seed) for seed in range(6)]
    array = make_array(gpu, place, field, np.array(rows, object).reshape(3, 2, 16))
    y = field.ntt(array)
    assert y.shape == (3, 2, 16)
    assert to_ints(y.reshape(6, 16)) == [transform_naively(field, row) for row in rows]
    assert to_ints(field.intt(y).reshape(6, 16)) == rows
    reversed_order = field.ntt(array, order_out="reversed", coset=3)
    assert to_ints(reversed_order[1][1]) == reverse_bits(transform_naively(field, rows[3], 3))
    assert to_ints(field.intt(reversed_order, order_in="reversed", coset=3)) == to_ints(array)


@in_every_place
def test_batches_of_several_passes_are_exact(gpu: Gpu, place: Place) -> None:
    field, log_n = BABYBEAR, 9
    rows = [draw_elements(field, 1 << log_n, seed) for seed in range(5)]
    y = field.ntt(make_array(gpu, place, field, rows))
    for row, found in zip(rows, to_ints(y), strict=True):
        at = make_polynomial(field, row)
        for i in (1, 255, 256, 511):
            assert found[i] == int(at(pow(get_root(field, log_n), i, field.modulus)))
    for order in ORDERS:
        there = field.ntt(make_array(gpu, place, field, rows), order_out=order)
        assert to_ints(field.intt(there, order_in=order)) == rows


@in_every_place
@on_families
def test_a_slice_is_transformed_like_an_array(gpu: Gpu, field: Field, place: Place) -> None:
    values = draw_elements(field, 64, 1)
    x = make_array(gpu, place, field, values)
    for start in (1, 8, 48):
        part = x[start : start + 16]
        assert to_ints(field.ntt(part)) == transform_naively(field, values[start : start + 16])


@in_every_place
def test_no_rows_give_no_rows(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, np.zeros((0, 8), object))
    for y in (BABYBEAR.ntt(x), BABYBEAR.intt(x), BABYBEAR.ntt(x, coset=3)):
        assert (y.shape, to_ints(y)) == ((0, 8), [])


# --- properties ---


@in_every_place
@pytest.mark.parametrize(
    "field", [BLS12_381_FR, GOLDILOCKS, KOALABEAR], ids=lambda field: field.name
)
def test_pointwise_products_are_transforms_of_products(
    gpu: Gpu, field: Field, place: Place
) -> None:
    # lavapipe compiles passes of many limbs for a second each; other fields have two of them.
    for log_n, degree in ((5, 14),) if field is BLS12_381_FR else ((5, 14), (9, 200)):
        n = 1 << log_n
        a, b = draw_elements(field, degree + 1, 1), draw_elements(field, n - degree, 2)
        values = [
            field.ntt(
                make_array(gpu, place, field, [*each, *[0] * (n - len(each))]), order_out="reversed"
            )
            for each in (a, b)
        ]
        found = to_ints(field.intt(values[0] * values[1], order_in="reversed"))
        exact = make_polynomial(field, a) * make_polynomial(field, b)
        assert found == [int(exact[i]) for i in range(n)]


@settings(max_examples=4)
@given(data=st.data())
@in_every_place
@on_families
def test_transforms_are_linear(gpu: Gpu, field: Field, place: Place, data: st.DataObject) -> None:
    element = st.one_of(st.sampled_from(list_edge_values(field)), st.integers(0, field.modulus - 1))
    rows = st.lists(element, min_size=16, max_size=16)
    x, y = (make_array(gpu, place, field, data.draw(rows)) for _ in range(2))
    a, b = data.draw(element), data.draw(element)
    for change in (field.ntt, field.intt):
        assert to_ints(change(x * a + y * b)) == to_ints(change(x) * a + change(y) * b)


# --- rejected arguments ---


@in_every_place
@pytest.mark.parametrize("shape", [(3,), (0,), (4, 6), (5, 0), ()], ids=str)
def test_rows_whose_length_is_not_a_power_of_two_are_rejected(
    gpu: Gpu, place: Place, shape: tuple[int, ...]
) -> None:
    x = make_array(gpu, place, BABYBEAR, np.zeros(shape, object))
    length = shape[-1] if shape else 0
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        with pytest.raises(
            gx.errors.ArgumentShapeError, match=rf"rows of 2\^k elements, not of {length}"
        ):
            change(x)


@in_every_place
@pytest.mark.parametrize(
    ("field", "log_n"),
    [(MERSENNE31, 2), (Field(97), 6), (Field(2**255 - 19), 3)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_rows_longer_than_the_largest_order_of_a_root_are_rejected(
    gpu: Gpu, place: Place, field: Field, log_n: int
) -> None:
    x = make_array(gpu, place, field, [1] * (1 << log_n))
    for change in (field.ntt, field.intt):
        with pytest.raises(
            gx.errors.ArgumentShapeError,
            match=rf"at most 2\^{log_n - 1} elements.*not 2\^{log_n}",
        ):
            change(x)
    half = x[: len(x) // 2]
    assert to_ints(field.ntt(half)) == [len(half) % field.modulus, *[0] * (len(half) - 1)]
