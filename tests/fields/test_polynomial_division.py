"""Quotients and remainders of polynomials, compared with FLINT's."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementDivisionError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, MERSENNE31, SECP256K1_FQ, Field
from gpu_executor.ops import polynomials
from tests.support.fields_under_test import (
    THREE,
    Place,
    draw_elements,
    in_every_place,
    make_array,
    make_polynomial,
    to_ints,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR


def draw_divisor(field: Field, degree: int, seed: int) -> list[int]:
    """Coefficients, the highest one of which is not 0."""
    *rest, last = draw_elements(field, degree + 1, seed)
    return [*rest, last or 1]


def check_division(gpu: Gpu, place: Place, field: Field, length: int, degree: int) -> None:
    a, b = draw_elements(field, length, 1), draw_divisor(field, degree, 2)
    quotient, remainder = divmod(make_polynomial(field, a), make_polynomial(field, b))
    for zeros in ([], [0, 0, 0]):
        x, y = (make_array(gpu, place, field, each) for each in (a, b + zeros))
        found = field.poly_divmod(x, y)
        assert all(each.on_device == (place != "host") for each in found)
        assert to_ints(found[0]) == [int(quotient[i]) for i in range(max(length - degree, 0))]
        assert to_ints(found[1]) == [int(remainder[i]) for i in range(degree)]
        assert (to_ints(x), to_ints(y)) == (a, b + zeros), "the operands are unchanged"


@in_every_place
@pytest.mark.parametrize(
    "field", [BABYBEAR, MERSENNE31, SECP256K1_FQ, THREE], ids=lambda field: field.name
)
def test_quotients_and_remainders_equal_those_of_flint(
    gpu: Gpu, field: Field, place: Place
) -> None:
    """Of any lengths, in fields with roots of unity for products and without."""
    for length, degree in [(1, 0), (5, 0), (3, 4), (7, 6), (7, 7), (20, 6), (20, 17)]:
        check_division(gpu, place, field, length, degree)


@in_every_place
def test_elements_of_many_limbs_are_divided(gpu: Gpu, place: Place) -> None:
    for length, degree in [(2, 1), (9, 5)]:
        check_division(gpu, place, FR, length, degree)


@in_every_place
def test_direct_products_of_many_terms_are_computed_in_parts(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    monkeypatch.setattr(polynomials, "DIRECT_TERMS", 200)
    for length, degree in [(40, 10), (40, 33)]:
        check_division(gpu, place, MERSENNE31, length, degree)


@in_every_place
def test_rows_are_divided_by_one_polynomial(gpu: Gpu, place: Place) -> None:
    rows, b = [draw_elements(BABYBEAR, 9, seed) for seed in range(3)], draw_divisor(BABYBEAR, 4, 7)
    array = make_array(gpu, place, BABYBEAR, rows)
    quotients, remainders = BABYBEAR.poly_divmod(array, make_array(gpu, place, BABYBEAR, b))
    exact = [divmod(make_polynomial(BABYBEAR, a), make_polynomial(BABYBEAR, b)) for a in rows]
    assert to_ints(quotients) == [[int(q[i]) for i in range(5)] for q, _ in exact]
    assert to_ints(remainders) == [[int(r[i]) for i in range(4)] for _, r in exact]
    some = BABYBEAR.poly_divmod(array.reshape(3, 1, 9)[:, :, ::-1], b)
    assert [each.shape for each in some] == [(3, 1, 5), (3, 1, 4)]


@in_every_place
def test_polynomials_without_rows_or_coefficients_are_divided(gpu: Gpu, place: Place) -> None:
    for shape, quotient, remainder in [((0,), (0,), (2,)), ((0, 5), (0, 3), (0, 2))]:
        x = make_array(gpu, place, FR, FR.zeros(shape).ints())
        found = FR.poly_divmod(x, [1, 2, 3])
        assert [each.shape for each in found] == [quotient, remainder]
        assert not any(each.to_host().words().any() for each in found)


def test_integers_stand_for_coefficients(gpu: Gpu) -> None:
    assert [each.tolist() for each in FR.poly_divmod([-1, 0, 1], [1, 1])] == [
        [FR.modulus - 1, 1],
        [0],
    ]
    quotient, remainder = FR.poly_divmod(gpu.to_device(FR([6, 5, 1])), [2, 1])
    assert quotient.on_device and (quotient.tolist(), remainder.tolist()) == ([3, 1], [0])


@in_every_place
def test_a_quotient_is_an_array_of_its_own(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, FR, [1, 2, 3])
    for found in (*FR.poly_divmod(x, [1]), *FR.poly_divmod(x, [0, 0, 0, 1])):
        found[...] = 7
    assert to_ints(x) == [1, 2, 3]


@in_every_place
def test_the_polynomial_0_divides_nothing(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, FR, [1, 2, 3])
    for b in ([0], [0, 0], []):
        with pytest.raises(ElementDivisionError, match="divides by the polynomial 0"):
            FR.poly_divmod(x, make_array(gpu, place, FR, b))
    with pytest.raises(ZeroDivisionError):
        FR.poly_divmod(x, [FR.modulus])


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (FR(5), [1, 2], "along its last axis, and a has no axes"),
        (FR([1, 2]), [[1, 2]], r"divides by one polynomial.*the shape of b is \(1, 2\)"),
        (FR([1, 2]), 5, r"the shape of b is \(\)"),
    ],
    ids=str,
)
def test_what_is_no_polynomial_is_rejected(a: Any, b: Any, words: str) -> None:
    with pytest.raises(ArgumentShapeError, match=words):
        FR.poly_divmod(a, b)


def test_operands_in_different_places_or_of_other_types_are_rejected(gpu: Gpu) -> None:
    x = FR([1, 2])
    for a, b in ((x, gpu.to_device(x)), (gpu.to_device(x), x)):
        with pytest.raises(ArgumentTypeError, match="in different places"):
            FR.poly_divmod(a, b)
    with pytest.raises(ArgumentTypeError, match="was given to an operation of"):
        FR.poly_divmod(x, BABYBEAR([1, 2]))
    with pytest.raises(ArgumentTypeError, match="not an integer"):
        FR.poly_divmod(x, [1.5, 2])
