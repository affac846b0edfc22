"""Membership of the group of prime order: by endomorphisms, and by multiplication by the order."""

from __future__ import annotations

import math

import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.endomorphism import Endomorphism, list_cube_root_maps
from gpu_executor.errors import CurveError
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.primes import moduli
from tests.support.curves_under_test import draw_points, find_outside_points, get_curve

LARGER = ["BLS12_381_G1", "BLS12_377_G1", "BLS12_381_G2", "BN254_G2", "BLS12_377_G2"]
"""The named curves with more points than the group of prime order."""


def find_cofactor(name: str) -> int:
    """The number of points of a curve divided by the order, by the formulas of its family."""
    if name == "BN254_G2":
        return 2 * moduli.BN254_Q - moduli.BN254_R
    z = moduli.BLS12_381_Z if name.startswith("BLS12_381") else moduli.BLS12_377_Z
    if name.endswith("G1"):
        return (z - 1) ** 2 // 3
    return (z**8 - 4 * z**7 + 5 * z**6 - 4 * z**4 + 6 * z**3 - 4 * z**2 - 4 * z + 13) // 9


def multiply_exactly(points: PointArray, scalar: int) -> PointArray:
    """Multiples of points by an integer that is not taken modulo the order."""
    arithmetic = get_arithmetic(points.curve.key)
    found = arithmetic.multiply(arithmetic.load(points.words()), [scalar] * points.size)
    return PointArray(points.curve, arithmetic.store(found, points.shape))


@pytest.mark.parametrize("name", LARGER)
def test_endomorphisms_find_the_points_of_the_group(name: str) -> None:
    curve = get_curve(name)
    assert curve.endomorphism is not None
    outside = find_outside_points(curve, 4)
    cleared = multiply_exactly(outside, find_cofactor(name))
    inside = curve.concatenate([draw_points(curve, 2, seed=1), curve.infinity(1), cleared])
    mixed = curve.concatenate([outside, inside[:4] + outside, inside])
    expected = [False] * 8 + [True] * 7
    assert mixed.is_on_curve().all()
    assert mixed.in_subgroup().tolist() == expected
    generator, b = curve.generator.tolist(), curve.key.b
    without = Curve(curve.field, 0, b, order=curve.order, generator=generator)
    assert without.endomorphism is None
    assert without.in_subgroup(mixed).tolist() == expected
    assert not cleared.is_infinity().all()  # some points with small x have a small order


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("BLS12_381_G1", (3, 11, 10177)),
        ("BLS12_377_G1", (2, 3, 7, 13, 499)),
        ("BLS12_381_G2", (13, 23)),
        ("BN254_G2", (10069,)),
    ],
)
def test_points_of_small_order_are_outside(name: str, factors: tuple[int, ...]) -> None:
    """Points whose order is a power of a small prime; that of BLS12-377 G2 has no such factor."""
    curve, cofactor = get_curve(name), find_cofactor(name)
    points = find_outside_points(curve, 3)
    for prime in factors:
        assert cofactor % prime == 0
        own, rest = cofactor, 1
        while own % prime == 0:
            own, rest = own // prime, rest * prime
        small = multiply_exactly(points, own * curve.order)
        finite = small[~small.is_infinity()]
        assert multiply_exactly(finite, rest).is_infinity().all()
        assert not finite.in_subgroup().any()
        assert not (finite + curve.generator).in_subgroup().any()


def test_the_cofactors_of_a_curve_and_its_twist_have_no_common_factor() -> None:
    """Which the check of points of a twist relies on; that of BN254 G1 is 1."""
    for family in ("BLS12_381", "BLS12_377"):
        assert math.gcd(find_cofactor(f"{family}_G1"), find_cofactor(f"{family}_G2")) == 1


@pytest.mark.parametrize("name", LARGER)
def test_points_off_the_curve_are_outside(name: str) -> None:
    curve = get_curve(name)
    data = curve.generator.words().copy()
    data.reshape(-1)[0] ^= 1
    off = PointArray(curve, data)
    assert not off.is_on_curve()
    assert not off.in_subgroup()


def test_an_endomorphism_without_its_eigenvalue_is_refused() -> None:
    curve = gx.curves.BLS12_381_G1
    wrong = [*list_cube_root_maps(curve.key.prime, 5), Endomorphism(1, 1, False, 2)]
    with pytest.raises(CurveError, match="no endomorphism multiplies the generator"):
        Curve(
            curve.field,
            0,
            4,
            order=curve.order,
            generator=curve.generator.tolist(),
            endomorphisms=wrong,
        )
