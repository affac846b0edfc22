"""One suite for fields on the host and on the card: every operation exact at every edge, and the
axioms of a field."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.fields import BLS12_381_FR, Field, FieldArray
from tests.support.fields_under_test import (
    CONFORMING,
    FIVE,
    FULL96,
    ONE_OF_EACH,
    THREE,
    Place,
    edges,
    in_both_places,
    ints,
    inverse_of,
    made,
    on_conforming_fields,
    on_every_field,
    on_one_of_each,
    products_along,
    some,
)

Gpu = gx.PersistentVulkanBackend
Operation = Callable[..., FieldArray]
Exact = Callable[..., int]

ELEMENTWISE: dict[str, tuple[int, Operation, Exact]] = {
    "add": (2, Field.add, lambda a, b: a + b),
    "sub": (2, Field.sub, lambda a, b: a - b),
    "mul": (2, Field.mul, lambda a, b: a * b),
    "neg": (1, Field.neg, lambda a: -a),
    "double": (1, Field.double, lambda a: 2 * a),
    "square": (1, Field.square, lambda a: a * a),
    "fma": (3, Field.fma, lambda a, b, c: a * b + c),
}
"""Operands, the operation, and its outcome on integers but for a multiple of p."""
ALL_BORDERS = 1000
on_kinds = pytest.mark.parametrize("field", [*ONE_OF_EACH, FULL96], ids=lambda field: field.name)
"""Each family of kernels, and an odd number of words. All other fields are compared with exact
integers, which satisfy the axioms; lavapipe compiles the kernels of 768 bits for seconds."""


def dot_of(field: Field, a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True)) % field.modulus


def in_rows(values: Sequence[int], columns: int) -> list[Sequence[int]]:
    return [values[start : start + columns] for start in range(0, len(values), columns)]


# --- element by element ---


def operands(field: Field) -> list[list[int]]:
    """Three lists: each edge with each, every border of a word or limb with some other, and any
    elements."""
    pairs = list(product(edges(field), repeat=2))
    third = random.Random(1).choices(edges(field), k=len(pairs))
    borders = edges(field, ALL_BORDERS)
    return [
        [*column, *borders[seed:], *borders[:seed], *some(field, 100, seed)]
        for seed, column in enumerate([*zip(*pairs, strict=True), third])
    ]


@in_both_places
@on_every_field
def test_every_operation_is_exact(gpu: Gpu, field: Field, place: Place) -> None:
    given = operands(field)
    arrays = [made(gpu, place, field, each) for each in given]
    for operation in ELEMENTWISE if field in CONFORMING else ("sub", "fma"):
        count, apply, exact = ELEMENTWISE[operation]
        result = apply(field, *arrays[:count])
        assert (result.field, result.form, result.on_device) == (field, field.form, place == "card")
        wanted = [exact(*row) % field.modulus for row in zip(*given[:count], strict=True)]
        assert ints(result) == wanted, operation


@in_both_places
@on_conforming_fields
def test_equality_tells_every_pair_of_edges_apart(gpu: Gpu, field: Field, place: Place) -> None:
    pairs = list(product(edges(field), repeat=2))
    a, b = (made(gpu, place, field, [pair[side] for pair in pairs]) for side in (0, 1))
    found = field.equal(a, b)
    assert (found.dtype, found.shape) == (np.dtype(bool), a.shape)
    assert found.tolist() == (a == b).tolist() == [x == y for x, y in pairs]
    assert (a != b).tolist() == [x != y for x, y in pairs]


@in_both_places
@on_conforming_fields
def test_elements_are_selected_by_a_condition(gpu: Gpu, field: Field, place: Place) -> None:
    values, others = some(field, 60, 1), some(field, 60, 2)
    condition = [i % 3 == 0 for i in range(60)]
    a, b = (made(gpu, place, field, each) for each in (values, others))
    wanted = [x if chosen else y for chosen, x, y in zip(condition, values, others, strict=True)]
    assert ints(field.select(condition, a, b)) == wanted
    by_zero = [x if chosen else 0 for chosen, x in zip(condition, values, strict=True)]
    assert ints(field.select(np.array(condition), a, 0)) == by_zero


def exponents(field: Field, place: Place) -> Iterator[int]:
    order, huge = field.modulus - 1, 4000 if place == "card" else 400
    yield from (0, 1, 2, 3, 65537, 2**32 - 1, 2**32, order, order + 1)
    yield from (-1, -2, -order, -order - 1, -(2**300) - 1)
    yield 2**huge + 2 ** (huge // 3) - 5


@in_both_places
@pytest.mark.parametrize("field", [*ONE_OF_EACH, THREE, FIVE, FULL96], ids=lambda field: field.name)
def test_powers_are_exact_by_any_exponent(gpu: Gpu, field: Field, place: Place) -> None:
    values = [*edges(field)[:12], *some(field, 5, 1)]
    array = made(gpu, place, field, values)
    for exponent in exponents(field, place):
        bases = values if exponent >= 0 else [inverse_of(field, value) for value in values]
        wanted = [pow(base, abs(exponent), field.modulus) for base in bases]
        assert ints(array**exponent) == wanted, exponent


# --- inverses ---


@in_both_places
@on_conforming_fields
def test_inverses_are_exact_and_zero_stays_zero(gpu: Gpu, field: Field, place: Place) -> None:
    values = [*edges(field), *some(field, 30, 1), 0]
    array = made(gpu, place, field, values)
    wanted = [inverse_of(field, value) for value in values]
    assert ints(field.inverse(array)) == ints(field.inverse(array, zero="zero")) == wanted
    assert ints(array) == values, "what came in stays"


@in_both_places
@on_conforming_fields
def test_an_inverse_of_zero_is_an_error_where_that_is_asked_for(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [1, field.modulus - 1, 0, 2, 0]
    array = made(gpu, place, field, values)
    with pytest.raises(ZeroDivisionError, match=f"^{field.name}: element 2 is 0"):
        field.inverse(array, zero="error")
    for part in (slice(2), slice(3, 4)):
        wanted = [inverse_of(field, value) for value in values[part]]
        assert ints(field.inverse(array[part], zero="error")) == wanted


# --- along rows ---


@in_both_places
@on_conforming_fields
def test_sums_and_products_along_rows_are_exact(gpu: Gpu, field: Field, place: Place) -> None:
    p, last = field.modulus, [field.modulus - 1] * 40  # the largest sums
    rows, others = (in_rows([*last, *some(field, 80, seed)], 40) for seed in (1, 2))
    a, b = (made(gpu, place, field, each) for each in (rows, others))
    assert ints(field.sum(a, axis=-1)) == [sum(row) % p for row in rows]
    assert ints(field.dot(a, b, axis=-1)) == [
        dot_of(field, x, y) for x, y in zip(rows, others, strict=True)
    ]
    nonzero = [[value or 1 for value in row] for row in rows]
    nonzero[1][3] = 0  # all behind it are 0, and the next row is not
    running = field.prefix_product(made(gpu, place, field, nonzero))
    assert ints(running) == [products_along(field, row) for row in nonzero]


@in_both_places
@on_one_of_each
def test_sums_of_all_elements_are_exact(gpu: Gpu, field: Field, place: Place) -> None:
    values, others = some(field, 120, 1), some(field, 120, 2)
    a, b = (made(gpu, place, field, in_rows(each, 24)) for each in (values, others))
    assert (field.sum(a).shape, ints(field.sum(a))) == ((), sum(values) % field.modulus)
    assert (field.dot(a, b).shape, ints(field.dot(a, b))) == ((), dot_of(field, values, others))


@in_both_places
@pytest.mark.parametrize("columns", [1, 2, 3, 16, 17, 31, 33, 100])
def test_rows_of_any_length_are_exact(gpu: Gpu, place: Place, columns: int) -> None:
    field = BLS12_381_FR
    rows = [[value or 1 for value in some(field, columns, seed)] for seed in (1, 2)]
    array = made(gpu, place, field, rows)
    assert ints(field.sum(array, axis=-1)) == [sum(row) % field.modulus for row in rows]
    assert ints(field.prefix_product(array)) == [products_along(field, row) for row in rows]
    inverses = [[inverse_of(field, value) for value in row] for row in rows]
    assert ints(field.inverse(array)) == inverses


# --- axioms ---


@st.composite
def triples(draw: st.DrawFn, field: Field) -> list[list[int]]:
    """Three lists of as many elements."""
    element = st.one_of(st.sampled_from(edges(field)), st.integers(0, field.modulus - 1))
    rows = draw(st.lists(st.tuples(element, element, element), min_size=1, max_size=5))
    return [list(column) for column in zip(*rows, strict=True)]


@settings(max_examples=6)
@given(data=st.data())
@in_both_places
@on_kinds
def test_the_axioms_of_a_field_hold(
    gpu: Gpu, field: Field, place: Place, data: st.DataObject
) -> None:
    values = data.draw(triples(field))
    a, b, c = (made(gpu, place, field, each) for each in values)
    zeros, ones = [0] * len(a), [1] * len(a)
    assert ints((a + b) + c) == ints(a + (b + c))
    assert ints((a * b) * c) == ints(a * (b * c))
    assert ints(a + b) == ints(b + a)
    assert ints(a * b) == ints(b * a)
    assert ints(a * (b + c)) == ints(a * b + a * c)
    assert ints(a + 0) == ints(a * 1) == values[0]
    assert ints(a + -a) == ints(a - a) == ints(a * 0) == zeros
    assert ints(a - b) == ints(a + -b)
    assert ints(a * field.inverse(a)) == [int(value != 0) for value in values[0]]
    assert ints(field.inverse(field.inverse(a))) == values[0]
    assert ints(a**0) == ones
    assert ints(a**3) == ints(field.square(a) * a)


@settings(max_examples=6)
@given(data=st.data())
@on_kinds
def test_both_places_give_the_same_words(gpu: Gpu, field: Field, data: st.DataObject) -> None:
    """Bit by bit, in the form that the field computes in: what the host says, the card says."""
    values = data.draw(triples(field))

    def chain(place: Place) -> list[FieldArray]:
        a, b, c = (made(gpu, place, field, each) for each in values)
        mixed = field.fma(a, b, c) - field.square(b)
        return [mixed, field.inverse(mixed), field.prefix_product(mixed), field.dot(mixed, a)]

    for here, there in zip(chain("host"), chain("card"), strict=True):
        assert here.form == there.form
        np.testing.assert_array_equal(here.numpy(), there.numpy())
