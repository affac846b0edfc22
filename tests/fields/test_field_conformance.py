"""One suite for fields on the host and on a device: every operation is exact at every edge value,
and the field axioms hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product

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
    FULL768,
    ONE_OF_EACH,
    THREE,
    Place,
    draw_elements,
    in_every_place,
    invert,
    list_edge_values,
    make_array,
    multiply_prefixes,
    on_conforming_fields,
    on_every_field,
    on_one_of_each,
    to_ints,
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
"""The number of operands, the operation, and the operation on integers before reduction."""
ALL_BOUNDARIES = 1000
on_fewer_fields = pytest.mark.parametrize(
    "field", [*ONE_OF_EACH, FULL96, THREE, FIVE], ids=lambda field: field.name
)
"""What takes several dispatches depends on a field's kernels, which all fields are tested with."""
on_kinds = pytest.mark.parametrize("field", [*ONE_OF_EACH, FULL96], ids=lambda field: field.name)
"""A field of each kernel family, and one with an odd number of words. The other fields are compared
with exact integers, which satisfy the axioms; lavapipe takes seconds to compile 768-bit kernels."""


def dot_exactly(field: Field, a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True)) % field.modulus


def split_rows(values: Sequence[int], columns: int) -> list[Sequence[int]]:
    return [values[start : start + columns] for start in range(0, len(values), columns)]


# --- element-wise operations ---


def make_operands(field: Field) -> list[list[int]]:
    """Three lists: all pairs of edge values, all values around boundaries of words and limbs, and
    random elements."""
    pairs = list(product(list_edge_values(field), repeat=2))
    third = random.Random(1).choices(list_edge_values(field), k=len(pairs))
    boundaries = list_edge_values(field, ALL_BOUNDARIES)
    return [
        [*column, *boundaries[seed:], *boundaries[:seed], *draw_elements(field, 100, seed)]
        for seed, column in enumerate([*zip(*pairs, strict=True), third])
    ]


@in_every_place
@on_every_field
def test_every_operation_is_exact(gpu: Gpu, field: Field, place: Place) -> None:
    given = make_operands(field)
    arrays = [make_array(gpu, place, field, each) for each in given]
    # lavapipe compiles 768-bit kernels for seconds; test_element_kernels.py has the others.
    operations = list(ELEMENTWISE) if field in CONFORMING else ["sub", "fma"]
    if field is FULL768 and place == "device":
        operations = ["fma"]
    for operation in operations:
        count, apply, exact = ELEMENTWISE[operation]
        result = apply(field, *arrays[:count])
        assert (result.field, result.form, result.on_device) == (
            field,
            field.form,
            place != "host",
        )
        wanted = [exact(*row) % field.modulus for row in zip(*given[:count], strict=True)]
        assert to_ints(result) == wanted, operation


@in_every_place
@on_conforming_fields
def test_equality_is_exact_for_every_pair_of_edge_values(
    gpu: Gpu, field: Field, place: Place
) -> None:
    pairs = list(product(list_edge_values(field), repeat=2))
    a, b = (make_array(gpu, place, field, [pair[side] for pair in pairs]) for side in (0, 1))
    found, canonical = field.equal(a, b), [each.in_form("canonical") for each in (a, b)]
    assert (found.dtype, found.shape) == (np.dtype(bool), a.shape)
    assert found.tolist() == (a == b).tolist() == [x == y for x, y in pairs]
    for one, other in (canonical, (a, canonical[1])):
        assert (one == other).tolist() == found.tolist()
    assert (a != b).tolist() == [x != y for x, y in pairs]


@in_every_place
@on_conforming_fields
def test_select_follows_the_condition(gpu: Gpu, field: Field, place: Place) -> None:
    values, others = draw_elements(field, 60, 1), draw_elements(field, 60, 2)
    condition = [i % 3 == 0 for i in range(60)]
    a, b = (make_array(gpu, place, field, each) for each in (values, others))
    wanted = [x if chosen else y for chosen, x, y in zip(condition, values, others, strict=True)]
    assert to_ints(field.select(condition, a, b)) == wanted
    by_zero = [x if chosen else 0 for chosen, x in zip(condition, values, strict=True)]
    assert to_ints(field.select(np.array(condition), a, 0)) == by_zero


def list_exponents(field: Field, place: Place) -> Iterator[int]:
    order, huge = field.modulus - 1, 4000 if place == "device" else 400
    yield from (0, 1, 2, 3, 65537, 2**32 - 1, 2**32, order, order + 1)
    yield from (-1, -2, -order, -order - 1, -(2**300) - 1)
    yield 2**huge + 2 ** (huge // 3) - 5


@in_every_place
@pytest.mark.parametrize("field", [*ONE_OF_EACH, THREE, FIVE, FULL96], ids=lambda field: field.name)
def test_powers_are_exact_for_any_exponent(gpu: Gpu, field: Field, place: Place) -> None:
    values = [*list_edge_values(field)[:12], *draw_elements(field, 5, 1)]
    array = make_array(gpu, place, field, values)
    for exponent in list_exponents(field, place):
        bases = values if exponent >= 0 else [invert(field, value) for value in values]
        wanted = [pow(base, abs(exponent), field.modulus) for base in bases]
        assert to_ints(array**exponent) == wanted, exponent


# --- inverses ---


@in_every_place
@on_fewer_fields
def test_inverses_are_exact_and_the_inverse_of_zero_is_zero(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 30, 1), 0]
    array = make_array(gpu, place, field, values)
    wanted = [invert(field, value) for value in values]
    assert to_ints(field.inverse(array)) == to_ints(field.inverse(array, zero="zero")) == wanted
    assert to_ints(array) == values, "what came in stays"


@in_every_place
@on_fewer_fields
def test_the_inverse_of_zero_is_an_error_if_requested(gpu: Gpu, field: Field, place: Place) -> None:
    values = [1, field.modulus - 1, 0, 2, 0]
    array = make_array(gpu, place, field, values)
    with pytest.raises(ZeroDivisionError, match=f"^{field.name}: element 2 is 0"):
        to_ints(field.inverse(array, zero="error"))
    for part in (slice(2), slice(3, 4)):
        wanted = [invert(field, value) for value in values[part]]
        assert to_ints(field.inverse(array[part], zero="error")) == wanted


# --- sums and products of rows ---


@in_every_place
@on_fewer_fields
def test_sums_dot_products_and_prefix_products_of_rows_are_exact(
    gpu: Gpu, field: Field, place: Place
) -> None:
    p, last = field.modulus, [field.modulus - 1] * 40  # the largest possible sums
    rows, others = (split_rows([*last, *draw_elements(field, 80, seed)], 40) for seed in (1, 2))
    a, b = (make_array(gpu, place, field, each) for each in (rows, others))
    assert to_ints(field.sum(a, axis=-1)) == [sum(row) % p for row in rows]
    assert to_ints(field.vecdot(a, b)) == [
        dot_exactly(field, x, y) for x, y in zip(rows, others, strict=True)
    ]
    nonzero = [[value or 1 for value in row] for row in rows]
    nonzero[1][3] = 0  # zero from here to the end of this row only
    running = field.prefix_product(make_array(gpu, place, field, nonzero))
    assert to_ints(running) == [multiply_prefixes(field, row) for row in nonzero]
    sums = [[each % p for each in accumulate(row)] for row in rows]
    assert to_ints(field.prefix_sum(a)) == sums


@in_every_place
@on_one_of_each
def test_sums_of_all_elements_are_exact(gpu: Gpu, field: Field, place: Place) -> None:
    values, others = draw_elements(field, 120, 1), draw_elements(field, 120, 2)
    a, b = (make_array(gpu, place, field, split_rows(each, 24)) for each in (values, others))
    assert (field.sum(a).shape, to_ints(field.sum(a))) == ((), sum(values) % field.modulus)
    total = field.dot(a.ravel(), b.ravel())
    assert (total.shape, to_ints(total)) == ((), dot_exactly(field, values, others))


@in_every_place
@pytest.mark.parametrize("columns", [1, 2, 3, 16, 17, 31, 33, 100])
def test_rows_of_any_length_are_exact(gpu: Gpu, place: Place, columns: int) -> None:
    field = BLS12_381_FR
    rows = [[value or 1 for value in draw_elements(field, columns, seed)] for seed in (1, 2)]
    array = make_array(gpu, place, field, rows)
    assert to_ints(field.sum(array, axis=-1)) == [sum(row) % field.modulus for row in rows]
    assert to_ints(field.prefix_product(array)) == [multiply_prefixes(field, row) for row in rows]
    inverses = [[invert(field, value) for value in row] for row in rows]
    assert to_ints(field.inverse(array)) == inverses


# --- axioms ---


@st.composite
def draw_triples(draw: st.DrawFn, field: Field) -> list[list[int]]:
    """Three lists of elements, all of one length."""
    element = st.one_of(st.sampled_from(list_edge_values(field)), st.integers(0, field.modulus - 1))
    rows = draw(st.lists(st.tuples(element, element, element), min_size=1, max_size=5))
    return [list(column) for column in zip(*rows, strict=True)]


@settings(max_examples=3)
@given(data=st.data())
@in_every_place
@on_kinds
def test_the_field_axioms_hold(gpu: Gpu, field: Field, place: Place, data: st.DataObject) -> None:
    values = data.draw(draw_triples(field))
    a, b, c = (make_array(gpu, place, field, each) for each in values)
    zeros, ones = [0] * len(a), [1] * len(a)
    assert to_ints((a + b) + c) == to_ints(a + (b + c))
    assert to_ints((a * b) * c) == to_ints(a * (b * c))
    assert to_ints(a + b) == to_ints(b + a)
    assert to_ints(a * b) == to_ints(b * a)
    assert to_ints(a * (b + c)) == to_ints(a * b + a * c)
    assert to_ints(a + 0) == to_ints(a * 1) == values[0]
    assert to_ints(a + -a) == to_ints(a - a) == to_ints(a * 0) == zeros
    assert to_ints(a - b) == to_ints(a + -b)
    assert to_ints(a * field.inverse(a)) == [int(value != 0) for value in values[0]]
    assert to_ints(field.inverse(field.inverse(a))) == values[0]
    assert to_ints(a**0) == ones
    assert to_ints(a**3) == to_ints(field.square(a) * a)


@settings(max_examples=3)
@given(data=st.data())
@on_kinds
def test_host_and_device_compute_the_same_words(
    gpu: Gpu, field: Field, data: st.DataObject
) -> None:
    """The words are compared in the form in which the field computes."""
    values = data.draw(draw_triples(field))

    def compute(place: Place) -> list[FieldArray]:
        a, b, c = (make_array(gpu, place, field, each) for each in values)
        mixed = field.fma(a, b, c) - field.square(b)
        return [mixed, field.inverse(mixed), field.prefix_product(mixed), field.vecdot(mixed, a)]

    for here, there in zip(compute("host"), compute("device"), strict=True):
        assert here.form == there.form
        np.testing.assert_array_equal(here.words(), there.words())
