"""Interpolation at arbitrary points: values of the results by FLINT, and Lagrange's formula."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, MERSENNE31, Field
from tests.support.fields_under_test import (
    FIVE,
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


def draw_points(field: Field, count: int) -> list[int]:
    """Different points in any order, 0 and p - 1 among them."""
    chosen = {0, field.modulus - 1} if count > 1 else set()
    draw = random.Random(count)
    while len(chosen) < count:
        chosen.add(draw.randrange(field.modulus))
    return draw.sample(sorted(chosen), count)


def check_interpolation(gpu: Gpu, place: Place, field: Field, count: int) -> None:
    x, y = draw_points(field, count), draw_elements(field, count, 2)
    found = field.interpolate(*(make_array(gpu, place, field, each) for each in (x, y)))
    assert (found.shape, found.on_device) == ((count,), place != "host")
    # There is one polynomial of degree below n with n given values.
    exact = make_polynomial(field, to_ints(found))
    assert [int(exact(each)) for each in x] == y


@in_every_place
@pytest.mark.parametrize(
    ("field", "counts"),
    [(BABYBEAR, (1, 2, 3, 4, 5)), (MERSENNE31, (1, 2, 3, 4, 5, 13))],
    ids=lambda each: getattr(each, "name", ""),
)
def test_interpolated_polynomials_have_the_given_values(
    gpu: Gpu, field: Field, counts: tuple[int, ...], place: Place
) -> None:
    """Of any number of points, in fields with roots of unity for products and without."""
    for count in counts:
        check_interpolation(gpu, place, field, count)


@in_every_place
def test_elements_of_many_limbs_are_interpolated(gpu: Gpu, place: Place) -> None:
    check_interpolation(gpu, place, FR, 3)


@in_every_place
def test_all_elements_of_a_field_may_be_points(gpu: Gpu, place: Place) -> None:
    check_interpolation(gpu, place, THREE, 3)
    check_interpolation(gpu, place, FIVE, 5)


def interpolate_by_lagrange(field: Field, x: Sequence[int], y: Sequence[int]) -> list[int]:
    total = make_polynomial(field, [0])
    for at, value in zip(x, y, strict=True):
        term = make_polynomial(field, [value])
        for other in x:
            if other != at:
                inverse = pow(at - other, -1, field.modulus)
                term *= make_polynomial(field, [-other * inverse, inverse])
        total += term
    return [int(total[i]) for i in range(len(x))]


@in_every_place
def test_rows_of_values_are_a_batch(gpu: Gpu, place: Place) -> None:
    x, rows = draw_points(FR, 6), [draw_elements(FR, 6, seed) for seed in range(3)]
    points, values = (make_array(gpu, place, FR, each) for each in (x, rows))
    found = FR.interpolate(points, values)
    assert to_ints(found) == [interpolate_by_lagrange(FR, x, row) for row in rows]
    assert FR.interpolate(points, values.reshape(3, 1, 6)).shape == (3, 1, 6)
    assert FR.interpolate(points, values[:0]).shape == (0, 6)
    assert (to_ints(points), to_ints(values)) == (x, rows), "the operands are unchanged"


def test_the_inverse_transform_is_interpolation_on_the_domain() -> None:
    y = FR.random(16, seed=1)
    assert (FR.interpolate(FR.domain(16), y) == FR.intt(y)).all()
    assert (FR.interpolate(FR.domain(16, coset=7), y) == FR.intt(y, coset=7)).all()


def test_integers_stand_for_points_and_values(gpu: Gpu) -> None:
    assert FR.interpolate([1, 2, -1], [1, 4, 1]).tolist() == [0, 0, 1]
    found = FR.interpolate(gpu.to_device(FR([1, 2])), [5, 7])
    assert found.on_device and found.tolist() == [3, 2]


@in_every_place
def test_a_repeated_point_is_an_error(gpu: Gpu, place: Place) -> None:
    y = make_array(gpu, place, FR, [1, 2, 3, 4, 5])
    for x, first in (([3, 1, 2, 1, 9], 1), ([3, 0, 2, 4, 0], 1), ([1] * 5, 0)):
        points = make_array(gpu, place, FR, x)
        with pytest.raises(ArgumentValueError, match=f"interpolate: point {first} is repeated"):
            to_ints(FR.interpolate(points, y) + 1)
    with pytest.raises(ArgumentValueError, match="point 0 is repeated"):
        FR.interpolate([1, FR.modulus + 1], [1, 2])


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([], [], r"takes at least one point, along one axis; the shape of x is \(0,\)"),
        ([[1, 2]], [1, 2], r"the shape of x is \(1, 2\)"),
        (1, 1, r"the shape of x is \(\)"),
        ([1, 2], [1, 2, 3], r"each of the 2 points along the last axis; the shape of y is \(3,\)"),
        ([1], 1, r"the shape of y is \(\)"),
    ],
    ids=str,
)
def test_points_and_values_of_other_shapes_are_rejected(x: Any, y: Any, words: str) -> None:
    with pytest.raises(ArgumentShapeError, match=words):
        FR.interpolate(x, y)


def test_points_and_values_in_different_places_are_rejected(gpu: Gpu) -> None:
    x = FR([1, 2])
    for a, b in ((x, gpu.to_device(x)), (gpu.to_device(x), x)):
        with pytest.raises(ArgumentTypeError, match="in different places"):
            FR.interpolate(a, b)
