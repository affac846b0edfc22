"""Polynomials on the host and on a device, compared with FLINT: products, values, interpolation,
division by X^n - 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, GpuError
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    SECP256K1_FQ,
    Field,
)
from gpu_executor.ops import polynomials
from tests.support.fields_under_test import (
    FULL96,
    Place,
    check_extension,
    draw_elements,
    in_every_place,
    list_edge_values,
    list_points,
    make_array,
    make_polynomial,
    to_ints,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
FIELDS = [FR, GOLDILOCKS, BABYBEAR, FULL96]
each_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
with_few_roots = pytest.mark.parametrize(
    "field", [*FIELDS, MERSENNE31, SECP256K1_FQ], ids=lambda field: field.name
)


def multiply_with_flint(field: Field, a: Sequence[int], b: Sequence[int]) -> list[int]:
    exact = make_polynomial(field, a) * make_polynomial(field, b)
    return [int(exact[i]) for i in range(len(a) + len(b) - 1)]


# --- products ---


@in_every_place
@each_field
def test_products_equal_those_of_flint(gpu: Gpu, field: Field, place: Place) -> None:
    # lavapipe compiles the passes of each length anew, which takes a second for many limbs.
    lengths = [(1, 1), (5, 1), (7, 6), (100, 37)]
    for long, short in lengths if field is BABYBEAR else lengths[1:3]:
        a, b = draw_elements(field, long, 1), draw_elements(field, short, 2)
        x, y = (make_array(gpu, place, field, each) for each in (a, b))
        assert (
            to_ints(field.poly_mul(x, y))
            == to_ints(field.poly_mul(y, x))
            == multiply_with_flint(field, a, b)
        )


@in_every_place
def test_every_row_is_multiplied(gpu: Gpu, place: Place) -> None:
    rows, other = (
        [draw_elements(BABYBEAR, 7, seed) for seed in range(3)],
        draw_elements(BABYBEAR, 4, 9),
    )
    x, y = (make_array(gpu, place, BABYBEAR, each) for each in (rows, other))
    wanted = [multiply_with_flint(BABYBEAR, row, other) for row in rows]
    assert to_ints(BABYBEAR.poly_mul(x, y)) == wanted
    assert to_ints(BABYBEAR.poly_mul(x, make_array(gpu, place, BABYBEAR, [other] * 3))) == wanted


@settings(max_examples=2)
@given(data=st.data())
@in_every_place
@each_field
def test_values_of_a_product_are_products_of_values(
    gpu: Gpu, field: Field, place: Place, data: st.DataObject
) -> None:
    element = st.one_of(st.sampled_from(list_edge_values(field)), st.integers(0, field.modulus - 1))
    rows = st.lists(element, min_size=3, max_size=6)
    a, b, at = (make_array(gpu, place, field, data.draw(rows)) for _ in range(3))
    found = field.poly_eval(field.poly_mul(a, b), at)
    assert to_ints(found) == to_ints(field.poly_eval(a, at) * field.poly_eval(b, at))


# --- values ---


@in_every_place
def test_squares_and_products_of_one_coefficient(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [1, 2, 3])
    assert to_ints(BABYBEAR.poly_mul(x, x)) == [1, 4, 10, 12, 9]
    rows = make_array(gpu, place, BABYBEAR, [[1, 2], [3, 4]])
    assert to_ints(BABYBEAR.poly_mul(rows, rows)) == [[1, 4, 4], [9, 24, 16]]
    one = BABYBEAR.poly_mul(x[:1], x[1:2])
    assert to_ints(one) == [2]
    square = BABYBEAR.poly_mul(x, x)
    square[0] = 7  # a product is an array of its own
    assert to_ints(x) == [1, 2, 3] and to_ints(square * 2) == [14, 8, 20, 24, 18]


@in_every_place
@with_few_roots
def test_values_equal_those_of_flint(gpu: Gpu, field: Field, place: Place) -> None:
    at = [0, 1, field.modulus - 1, *draw_elements(field, 18, 2)]
    y = make_array(gpu, place, field, at)
    for count in (1, 2, 7, 100):
        a = draw_elements(field, count, 1)
        x, exact = make_array(gpu, place, field, a), make_polynomial(field, a)
        wanted = [int(exact(point)) for point in at]
        assert to_ints(field.poly_eval(x, y)) == wanted
        in_rows = np.array(wanted, object).reshape(3, 7).tolist()
        assert to_ints(field.poly_eval(x, y.reshape(3, 7))) == in_rows
        assert to_ints(field.poly_eval(x, y[5])) == wanted[5]


@in_every_place
def test_long_polynomials_are_evaluated_in_parts(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(polynomials, "MAX_COEFFICIENTS", 16)
    monkeypatch.setattr(polynomials, "HOST_TERMS", 300)
    a, at = draw_elements(FR, 100, 1), draw_elements(FR, 20, 2)
    x, y = (make_array(gpu, place, FR, each) for each in (a, at))
    exact = make_polynomial(FR, a)
    assert to_ints(FR.poly_eval(x, y)) == [int(exact(point)) for point in at]


@pytest.mark.parametrize("field", [FR, FULL96, SECP256K1_FQ], ids=lambda field: field.name)
def test_rows_have_values_at_points_of_their_own(gpu: Gpu, field: Field) -> None:
    for length in (1, 2, 16, 128):
        at = [0, 1, field.modulus - 1, *draw_elements(field, 2, 2)]
        rows = [draw_elements(field, length, seed) for seed in range(len(at))]
        x: Any = gpu.to_device(field.encode(rows)).data
        exact = [int(make_polynomial(field, a)(y)) for a, y in zip(rows, at, strict=True)]
        found = field.array_type(field, polynomials.evaluate_rows(field.prime, x, at), field.form)
        assert to_ints(found) == exact
    for wrong in (x[:, :96], x[1:], x[:, :0]):
        with pytest.raises(ArgumentShapeError, match="a point for each row"):
            polynomials.evaluate_rows(field.prime, wrong, at)


@in_every_place
def test_points_are_integers_too(gpu: Gpu, place: Place) -> None:
    x, exact = make_array(gpu, place, FR, [1, 2, 3]), make_polynomial(FR, [1, 2, 3])
    for at in (5, -1, FR.modulus + 2, np.int64(7)):
        found = FR.poly_eval(x, at)
        assert (found.shape, found.on_device) == ((), place != "host")
        assert to_ints(found) == int(exact(int(at) % FR.modulus))
    for rows in ([[5, -1], [0, 9]], np.array([[5, -1], [0, 9]])):
        found = FR.poly_eval(x, rows)
        assert to_ints(found) == [[86, int(exact(FR.modulus - 1))], [1, 262]]
    assert FR.poly_eval(x, []).shape == (0,)
    assert to_ints(FR.poly_eval([1, 2, 3], x)) == [6, 17, 34]
    assert to_ints(FR.poly_mul(x, [-1, 1])) == [FR.modulus - 1, FR.modulus - 1, FR.modulus - 1, 3]


@pytest.mark.parametrize("at", [1.5, True, "5", None, np.array([0.5])], ids=str)
def test_points_of_other_types_are_rejected(at: Any) -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="integer"):
        FR.poly_eval(FR.encode([1, 2]), at)


@in_every_place
def test_no_points_give_no_values(gpu: Gpu, place: Place) -> None:
    for shape in ((0,), (3, 0)):
        at = make_array(gpu, place, FR, np.zeros(shape, object))
        assert FR.poly_eval(make_array(gpu, place, FR, [1, 2, 3]), at).shape == shape


# --- interpolation at roots of unity ---


@in_every_place
@each_field
@pytest.mark.parametrize("coset", [None, 5])
def test_interpolated_polynomials_have_the_given_values(
    gpu: Gpu, field: Field, place: Place, coset: int | None
) -> None:
    values = draw_elements(field, 16, 3)
    found = field.intt(make_array(gpu, place, field, values), coset=coset)
    at = make_array(gpu, place, field, list_points(field, 4, coset or 1))
    assert to_ints(field.poly_eval(found, at)) == values


@in_every_place
@each_field
@pytest.mark.parametrize(("blowup", "coset"), [(4, None), (1, 3)])
def test_a_low_degree_extension_has_the_values_of_the_same_polynomial(
    gpu: Gpu, field: Field, place: Place, blowup: int, coset: int | None
) -> None:
    rows = [draw_elements(field, 8, seed) for seed in (1, 2)]
    found = field.lde(make_array(gpu, place, field, rows), blowup, coset)
    points = list_points(field, (8 * blowup).bit_length() - 1, coset or 1)
    for values, extended in zip(rows, to_ints(found), strict=True):
        coefficients = [int(each) for each in interpolate_with_flint(field, values)]
        polynomial = make_polynomial(field, coefficients)
        assert extended == [int(polynomial(at)) for at in points]


@in_every_place
@pytest.mark.parametrize(
    ("field", "log_n", "blowup", "coset"),
    [
        (BABYBEAR, 0, 1, None),
        (BABYBEAR, 0, 8, 5),
        (BABYBEAR, 1, 1, 5),
        (BABYBEAR, 1, 2, None),
        (GOLDILOCKS, 1, 8, 5),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_rows_of_one_and_of_two_values_are_extended(
    gpu: Gpu, place: Place, field: Field, log_n: int, blowup: int, coset: int | None
) -> None:
    check_extension(gpu, place, field, log_n, blowup, coset)


def interpolate_with_flint(field: Field, values: Sequence[int]) -> list[int]:
    """The coefficients of the polynomial with these values at the roots of unity, by Lagrange."""
    points = list_points(field, len(values).bit_length() - 1)
    total = make_polynomial(field, [0])
    for at, value in zip(points, values, strict=True):
        term = make_polynomial(field, [value])
        for other in points:
            if other != at:
                inverse = pow(at - other, -1, field.modulus)
                term *= make_polynomial(field, [-other * inverse, inverse])
        total += term
    return [int(total[i]) for i in range(len(values))]


@pytest.mark.parametrize(
    ("blowup", "coset", "message"),
    [
        (3, None, "blowup must be a power of two, 1 or more, not 3"),
        (0, None, "blowup must be a power of two, 1 or more, not 0"),
        (True, None, "blowup must be an integer, not bool"),
        (
            2,
            BABYBEAR.modulus,
            f"coset must not be a multiple of the modulus, as {BABYBEAR.modulus}",
        ),
        (1 << 26, None, "a transform has at most"),
    ],
)
def test_extensions_that_do_not_exist_are_rejected(
    blowup: Any, coset: int | None, message: str
) -> None:
    with pytest.raises(GpuError, match=message):
        BABYBEAR.lde(BABYBEAR.encode([1, 2, 3, 4]), blowup, coset)


def test_an_element_without_axes_has_no_extension() -> None:
    with pytest.raises(GpuError, match=r"the shape is \(\)$"):
        BABYBEAR.lde(BABYBEAR.encode(5), 2)


# --- division by X^n - 1 ---


@in_every_place
@with_few_roots
def test_quotient_and_remainder_equal_those_of_flint(gpu: Gpu, field: Field, place: Place) -> None:
    for n in (1, 3, 16, 29, 30, 32):
        a = draw_elements(field, 30, n)
        found = field.poly_divide_vanishing(make_array(gpu, place, field, a), n)
        quotient, remainder = (to_ints(each) for each in found)
        exact = divmod(make_polynomial(field, a), make_polynomial(field, [-1, *[0] * (n - 1), 1]))
        assert quotient == [int(exact[0][i]) for i in range(max(30 - n, 0))]
        assert remainder == [int(exact[1][i]) for i in range(n)]


@in_every_place
def test_the_empty_polynomial_has_quotient_and_remainder_zero(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, FR, [])
    quotient, remainder = FR.poly_divide_vanishing(x, 3)
    assert (to_ints(quotient), to_ints(remainder)) == ([], [0, 0, 0])


# --- rejected arguments ---


@in_every_place
def test_arguments_that_are_not_polynomials_are_rejected(gpu: Gpu, place: Place) -> None:
    rows, single = make_array(gpu, place, FR, [[1, 2], [3, 4]]), make_array(gpu, place, FR, 5)
    none = make_array(gpu, place, FR, [])
    for a in (rows, single, none):
        with pytest.raises(gx.errors.ArgumentShapeError, match="expected one polynomial"):
            FR.poly_eval(a, rows)
    for a in (rows, single):
        with pytest.raises(gx.errors.ArgumentShapeError, match="expected one polynomial"):
            FR.poly_divide_vanishing(a, 2)
    with pytest.raises(gx.errors.ArgumentShapeError, match="must be at least 1, not 0"):
        FR.poly_divide_vanishing(rows[0], 0)
    for n in (2.0, True, "2"):
        with pytest.raises(gx.errors.ArgumentTypeError, match=r"n of X\^n - 1 must be an integer"):
            FR.poly_divide_vanishing(rows[0], n)  # type: ignore[arg-type]
    for a in (single, none):
        with pytest.raises(
            gx.errors.ArgumentShapeError, match="at least one coefficient along its last axis"
        ):
            FR.poly_mul(a, rows)


@in_every_place
def test_products_longer_than_the_largest_transform_are_rejected(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, MERSENNE31, [1, 2, 3])
    with pytest.raises(gx.errors.ArgumentShapeError, match=r"at most 2\^1 elements.*not 2\^3"):
        MERSENNE31.poly_mul(x, x)


def test_operands_in_different_places_are_rejected(gpu: Gpu) -> None:
    host = FR.encode([1, 2])
    there = gpu.to_device(host)
    for a, b in ((host, there), (there, host)):
        for use in (FR.poly_eval, FR.poly_mul):
            with pytest.raises(gx.errors.ArgumentTypeError, match="in different places"):
                use(a, b)
