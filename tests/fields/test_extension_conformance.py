"""One suite for extension fields on the host and on devices: every operation equals FLINT's."""

from __future__ import annotations

import itertools
import operator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.fields import (
    BLS12_377_FQ2,
    BLS12_381_FQ2,
    GOLDILOCKS3,
    ExtensionArray,
    ExtensionField,
)
from tests.support.extensions_under_test import (
    BABYBEAR4,
    EXTENSIONS,
    FIBONACCI,
    ODD_TOWER,
    TINY2,
    TINY3,
    TOWER,
    UNEVEN_TOWER,
    WIDE4,
    draw_tuples,
    from_flint,
    make_extension_array,
    on_every_extension,
    on_few_extensions,
    to_flint,
)
from tests.support.fields_under_test import Place, in_both_places, in_every_place

Gpu = gx.PersistentVulkanBackend
COUNT = 40
# Where a test leaves out the CPU backend: it computes as the host.


def draw_both(field: ExtensionField, count: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Random elements as tuples and as FLINT's."""
    values = draw_tuples(field, count, seed)
    return values, to_flint(field, values)


def check(found: ExtensionArray, field: ExtensionField, place: Place, wanted: list[Any]) -> None:
    """Check that a result is in its place and equals FLINT's elements."""
    assert (found.field, found.form, found.on_device) == (field, field.form, place != "host")
    assert found.tolist() == from_flint(field, wanted)


# --- element-wise operations ---


@in_both_places
@on_every_extension
def test_every_operation_is_exact(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    (a, x), (b, y), (c, z) = (draw_both(field, COUNT, seed) for seed in (1, 2, 3))
    b[:5], y[:5] = a[:5], x[:5]
    one, other, third = (make_extension_array(gpu, place, field, each) for each in (a, b, c))
    for found, wanted in (
        (one + other, map(operator.add, x, y)),
        (one - other, map(operator.sub, x, y)),
        (one * other, map(operator.mul, x, y)),
        (-one, map(operator.neg, x)),
        (field.double(one), map(operator.add, x, x)),
        (field.square(one), map(operator.mul, x, x)),
        (field.fma(one, other, third), map(lambda p, q, r: p * q + r, x, y, z)),
    ):
        check(found, field, place, list(wanted))
    equal = [p == q for p, q in zip(a, b, strict=True)]
    assert field.equal(one, other).tolist() == (one == other).tolist() == equal
    assert one.tolist() == a, "the operand is unchanged"


@in_both_places
@on_every_extension
def test_inverses_and_quotients_are_exact(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    (a, x), (b, _) = (draw_both(field, COUNT, seed) for seed in (1, 2))
    one, other = (make_extension_array(gpu, place, field, each) for each in (a, b))
    zero = field.encode(0).item()
    check(field.inverse(one), field, place, [each if each == 0 else 1 / each for each in x])
    divisor = field.encode([value if value != zero else 1 for value in b]).tolist()
    found = one / make_extension_array(gpu, place, field, divisor)
    wanted = [p / q for p, q in zip(x, to_flint(field, divisor), strict=True)]
    check(found, field, place, wanted)
    with pytest.raises(ZeroDivisionError, match="element 0 is 0"):
        (other / (one - one)).tolist()


@in_both_places
@pytest.mark.parametrize(
    "field", [BLS12_381_FQ2, BABYBEAR4, TOWER, TINY3], ids=lambda field: field.name
)
def test_powers_are_exact_for_any_exponent(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    a, x = draw_both(field, 6, 4)
    one = make_extension_array(gpu, place, field, a)
    order = field.order - 1
    # A device multiplies elements of a tower in dozens of dispatches.
    many = (0b1011011, -2, order, -order, 3 * order + 2)
    for exponent in (0, 1, 2, 7, -1, *(many if field is not TOWER or place == "host" else ())):
        wanted = [
            each**0 * (exponent == 0) if each == 0 else each ** (exponent % order) for each in x
        ]
        check(one**exponent, field, place, wanted)


def test_many_powers_on_the_host_equal_few() -> None:
    """From some hundred elements on NumPy computes them, otherwise Python's integers do."""
    array = BABYBEAR4.random(600, seed=5)
    found = array**12345
    assert found[:20].tolist() == (array[:20] ** 12345).tolist()
    assert found[-20:].tolist() == (array[-20:] ** 12345).tolist()


# --- over many elements ---


@in_every_place
@on_few_extensions
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 40)])
def test_sums_and_products_of_rows_are_exact(
    gpu: Gpu, field: ExtensionField, place: Place, shape: tuple[int, int]
) -> None:
    rows, columns = shape
    flat = [value for seed in range(rows) for value in draw_tuples(field, columns + 4, seed)[4:]]
    table = [flat[at : at + columns] for at in range(0, len(flat), columns)]
    exact = [to_flint(field, row) for row in table]
    array = make_extension_array(gpu, place, field, table)
    check(array.sum(axis=1), field, place, [reduce(operator.add, row) for row in exact])
    check(array.prod(axis=1), field, place, [reduce(operator.mul, row) for row in exact])
    by_column = [reduce(operator.add, column) for column in zip(*exact, strict=True)]
    check(array.sum(axis=0), field, place, by_column)
    prefixes = [from_flint(field, list(itertools.accumulate(row, operator.mul))) for row in exact]
    assert field.prefix_product(array).tolist() == prefixes
    sums = [from_flint(field, list(itertools.accumulate(row))) for row in exact]
    assert field.prefix_sum(array).tolist() == sums
    products = [reduce(operator.add, [p * p for p in row]) for row in exact]
    check(field.vecdot(array, array, axis=1), field, place, products)
    assert array.tolist() == table, "the operand is unchanged"
    total = reduce(operator.add, itertools.chain.from_iterable(exact))
    assert [array.sum().item()] == from_flint(field, [total])


@in_every_place
@on_few_extensions
@pytest.mark.parametrize(
    ("left", "right"), [((3, 5), (5, 2)), ((5,), (5,)), ((5,), (2, 5, 3)), ((2, 3, 5), (5,))]
)
def test_products_of_matrices_are_exact(
    gpu: Gpu, field: ExtensionField, place: Place, left: Any, right: Any
) -> None:
    a, b = field.random(left, seed=1), field.random(right, seed=2)
    exact = [
        np.array(to_flint(field, each.ravel().tolist()), object).reshape(each.shape)
        for each in (a, b)
    ]
    one, other = (make_extension_array(gpu, place, field, each.tolist()) for each in (a, b))
    wanted = np.asarray(np.matmul(*exact), object)
    found = one @ other
    assert found.shape == wanted.shape
    check(found.ravel(), field, place, wanted.ravel().tolist())


# --- conjugates and squares ---


@in_both_places
@on_every_extension
def test_frobenius_maps_and_norms_are_exact(gpu: Gpu, field: ExtensionField, place: Place) -> None:
    a, x = draw_both(field, 12, 6)
    array = make_extension_array(gpu, place, field, a)
    for times in (0, 1, 2, 5, -1):
        wanted = [each.frobenius(times % field.layout.total_degree) for each in x]
        check(array.frobenius(times), field, place, wanted)
    if field is not TOWER:
        norms = field.norm(array)
        assert (norms.field, norms.tolist()) == (field.base, [int(each.norm()) for each in x])
    if field.degree == 2:
        other = array.conjugate()
        if field.nonresidue is not None:
            first, second = array.coefficients
            assert (other == field.from_coefficients(first, -second)).all()
        product = (array * other).coefficients
        assert (product[0] == field.norm(array)).all() and (product[1] == 0).all()


@in_every_place
@pytest.mark.parametrize("field", [UNEVEN_TOWER, ODD_TOWER], ids=lambda field: field.name)
def test_frobenius_maps_may_move_coefficients(
    gpu: Gpu, field: ExtensionField, place: Place
) -> None:
    array = make_extension_array(gpu, place, field, field.random(10, seed=1).tolist())
    for times in (1, 2, 3):
        assert field.frobenius(array, times).tolist() == (array ** (7**times)).tolist()
    ones = field.inverse(array) * array
    assert (ones == 1).tolist() == (array != 0).tolist()


ON_DEVICES = [BLS12_381_FQ2, TINY3, BABYBEAR4]
"""Of even and odd degrees."""


@pytest.mark.parametrize(
    ("field", "place"),
    [
        *((field, "device") for field in ON_DEVICES),
        *((field, "host") for field in ON_DEVICES),
        *((each, "host") for each in (BLS12_377_FQ2, TINY2, TOWER, FIBONACCI, GOLDILOCKS3)),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_square_roots_are_found_where_there_are_some(
    gpu: Gpu, field: ExtensionField, place: Place
) -> None:
    zero, base = field.encode(0).item(), field.encode([2, 3, 5]).tolist()
    values = [
        zero,
        *base,
        *draw_tuples(field, 10, 7),
    ]  # elements of the base have roots without a first coefficient
    array = make_extension_array(gpu, place, field, values)
    flags = [each.is_square() for each in to_flint(field, values)]
    assert field.is_square(array).tolist() == flags
    signs = [(each != zero) * (1 if flag else -1) for each, flag in zip(values, flags, strict=True)]
    assert field.legendre(array).tolist() == signs
    roots = field.sqrt(array, nonsquare="zero")
    assert roots.on_device == (place != "host")
    squares = [value if flag else zero for value, flag in zip(values, flags, strict=True)]
    assert field.square(roots).tolist() == squares
    if field in ON_DEVICES:
        first = flags.index(False)
        with pytest.raises(ValueError, match=f"element {first} is not a square"):
            field.sqrt(array)
        assert field.sqrt(array[np.array(flags)]).tolist() == roots[np.array(flags)].tolist()


@pytest.mark.parametrize("field", [TINY2, TINY3], ids=lambda field: field.name)
def test_every_square_of_a_small_field_has_its_roots(field: ExtensionField) -> None:
    every = list(itertools.product(range(field.modulus), repeat=field.degree))
    array = field.encode(every)
    squares = field.square(array)
    roots = field.sqrt(squares)
    assert ((roots == array) | (roots == -array)).all()
    assert set(field.decode(array[field.is_square(array)])) == set(squares.tolist())


# --- axioms; host and device ---


@settings(max_examples=2)
@given(seed=st.integers(0, 2**32))
@in_both_places
@pytest.mark.parametrize(
    "field", [BLS12_381_FQ2, WIDE4, UNEVEN_TOWER, ODD_TOWER], ids=lambda f: f.name
)
def test_the_field_axioms_hold(gpu: Gpu, field: ExtensionField, place: Place, seed: int) -> None:
    drawn = [draw_tuples(field, 6, seed + each) for each in range(3)]
    a, b, c = (make_extension_array(gpu, place, field, each) for each in drawn)
    assert ((a * b) * c).tolist() == (a * (b * c)).tolist()
    assert (a * b).tolist() == (b * a).tolist()
    assert (a * (b + c)).tolist() == (a * b + a * c).tolist()
    assert (a + 0).tolist() == (a * 1).tolist() == drawn[0]
    assert (a - a).tolist() == (a * 0).tolist() == field.zeros(6).tolist()
    assert (a * field.inverse(a) == 1).tolist() == (a != 0).tolist()


@pytest.mark.parametrize("field", EXTENSIONS, ids=lambda field: field.name)
def test_host_and_device_compute_the_same_words(gpu: Gpu, field: ExtensionField) -> None:
    values = [draw_tuples(field, 20, seed) for seed in (1, 2)]

    def compute(place: Place) -> list[ExtensionArray]:
        a, b = (make_extension_array(gpu, place, field, each) for each in values)
        mixed = a * b - field.square(b)
        return [mixed, field.inverse(mixed), mixed.sum(), mixed.frobenius()]

    for here, there, cpu in zip(compute("host"), compute("device"), compute("cpu"), strict=True):
        assert here.form == there.form == cpu.form
        np.testing.assert_array_equal(here.words(), there.words())
        np.testing.assert_array_equal(here.words(), cpu.words())
