"""Every pair of points of small curves, against the definition of the group law."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gpu_executor.curves import Curve
from tests.support.curves_under_test import (
    OVER_MERSENNE31,
    SMALL,
    add_ints,
    draw_points,
    encode_points,
    list_points,
    multiply_ints,
)

small = pytest.mark.parametrize("curve", SMALL, ids=lambda curve: curve.name)


@small
def test_every_sum_and_difference(curve: Curve) -> None:
    points = list_points(curve)
    pairs = list(product(points, repeat=2))
    first, second = (encode_points(curve, [pair[at] for pair in pairs]) for at in (0, 1))
    expected = [add_ints(curve, *pair) for pair in pairs]
    assert (first + second).tolist() == expected
    assert ((first + second) - second).tolist() == [pair[0] for pair in pairs]
    assert (first == second).tolist() == [one == two for one, two in pairs]


@small
def test_every_double_and_negative(curve: Curve) -> None:
    points = list_points(curve)
    array = encode_points(curve, points)
    assert array.double().tolist() == [add_ints(curve, point, point) for point in points]
    assert (array + -array).is_infinity().all()
    assert (-array).tolist() == [
        point and (point[0], -point[1] % curve.field.modulus) for point in points
    ]


@small
def test_every_multiple(curve: Curve) -> None:
    points = list_points(curve)
    array = encode_points(curve, points)
    for scalar in range(curve.order):
        expected = [multiply_ints(curve, scalar, point) for point in points]
        assert (array * scalar).tolist() == expected
        assert (scalar * array).tolist() == expected


@small
def test_many_multiples_of_every_point(curve: Curve) -> None:
    """They come from tables of the point's multiples, where points of small order repeat."""
    scalars = [k % curve.order for k in range(curve.order + 20)]
    for point in list_points(curve):
        expected = [multiply_ints(curve, scalar, point) for scalar in scalars]
        assert (encode_points(curve, [point]) * scalars).tolist() == expected


@small
def test_membership_of_every_point(curve: Curve) -> None:
    points = list_points(curve)
    array = encode_points(curve, points)
    inside = [multiply_ints(curve, curve.order, point) is None for point in points]
    assert array.in_subgroup().tolist() == inside
    assert sum(inside) == curve.order
    assert len(points) == curve.order * (curve.cofactor or len(points) // curve.order)
    assert array.is_on_curve().all()
    assert array.is_infinity().tolist() == [point is None for point in points]


@small
def test_sums_of_all_points(curve: Curve) -> None:
    points = list_points(curve)
    expected = None
    for point in points:
        expected = add_ints(curve, expected, point)
    assert encode_points(curve, points).sum().tolist() == expected


@small
@pytest.mark.parametrize("count", [0, 1, 2, 31, 33, 200])
def test_msm_of_repeated_points_and_scalars(curve: Curve, count: int) -> None:
    """Few different points and digits: equal and opposite points meet in every bucket."""
    draw = np.random.default_rng(count)
    points = list_points(curve)
    chosen = [points[at] for at in draw.integers(0, len(points), count)]
    scalars = draw.integers(0, curve.order, count).tolist()
    expected = None
    for point, scalar in zip(chosen, scalars, strict=True):
        expected = add_ints(curve, expected, multiply_ints(curve, scalar, point))
    assert curve.msm(encode_points(curve, chosen), scalars).tolist() == expected


def test_batches_of_msms_with_scalars_of_one_column() -> None:
    curve = SMALL[4]
    points = encode_points(curve, list_points(curve)[:12]).reshape(2, 1, 6)
    scalars = [[1, 2, 3, 4, 5, 6], [22, 0, 1, 7, 8, 9], [0, 0, 0, 0, 0, 1]]
    found = curve.msm(points, scalars)
    assert found.shape == (2, 3)
    assert (found == (points * scalars).sum(axis=-1)).all()
    assert (found == curve.msm(points, np.array(scalars, np.uint32))).all()


def test_a_curve_over_a_field_in_canonical_form() -> None:
    curve = OVER_MERSENNE31
    points = draw_points(curve, 40, seed=1)
    ints = points.tolist()
    scalars = list(range(2147451000, 2147451040))
    assert (points + points[::-1]).tolist() == [
        add_ints(curve, *pair) for pair in zip(ints, ints[::-1], strict=True)
    ]
    multiples = [multiply_ints(curve, k, point) for k, point in zip(scalars, ints, strict=True)]
    assert (points * scalars).tolist() == multiples
    expected = None
    for point in multiples:
        expected = add_ints(curve, expected, point)
    assert curve.msm(points, scalars).tolist() == expected
    assert points.x.field.form == "canonical"
