"""Named curves against other libraries: py_ecc and arkworks."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from py_arkworks_bls12381 import G1Point, Scalar
from py_ecc import optimized_bls12_381, optimized_bn128
from py_ecc.secp256k1 import secp256k1

import gpu_executor as gx
from tests.support.curves_under_test import draw_points, encode_points

G1 = gx.curves.BLS12_381_G1


def draw_scalars(order: int, count: int, seed: int) -> list[int]:
    """Random scalars, and those at the ends of the range."""
    draw = random.Random(seed)
    edges = [0, 1, 2, order - 1, order // 2]
    return [*edges, *(draw.randrange(order) for _ in range(count - len(edges)))]


def to_arkworks(scalar: int) -> Any:
    return Scalar.from_le_bytes(scalar.to_bytes(32, "little"))


@pytest.mark.parametrize(
    ("name", "library"),
    [("BLS12_381_G1", optimized_bls12_381), ("BN254_G1", optimized_bn128)],
)
def test_multiples_and_sums_are_those_of_py_ecc(name: str, library: Any) -> None:
    curve = getattr(gx.curves, name)
    scalars = draw_scalars(curve.order, 12, seed=3)
    expected = [library.multiply(library.G1, scalar) for scalar in scalars]
    points = curve.generator * scalars

    def normalize(point: Any) -> Any:
        return None if library.is_inf(point) else tuple(map(int, library.normalize(point)))

    assert points.tolist() == [normalize(each) for each in expected]
    sums = [library.add(one, two) for one, two in pairwise(expected)]
    assert (points[:-1] + points[1:]).tolist() == [normalize(each) for each in sums]
    total = expected[0]
    for each in expected[1:]:
        total = library.add(total, each)
    assert points.sum().tolist() == normalize(total)


def test_multiples_and_sums_are_those_of_py_ecc_on_secp256k1() -> None:
    curve = gx.curves.SECP256K1
    scalars = draw_scalars(curve.order, 12, seed=4)[1:]
    expected = [secp256k1.multiply(secp256k1.G, scalar) for scalar in scalars]
    points = curve.generator * scalars
    assert points.tolist() == expected
    sums = [secp256k1.add(one, two) for one, two in pairwise(expected)]
    assert (points[:-1] + points[1:]).tolist() == sums


@pytest.mark.parametrize("count", [1, 7, 32, 33, 150])
def test_msm_is_that_of_arkworks(count: int) -> None:
    points = draw_points(G1, count, seed=5)
    scalars = draw_scalars(G1.order, max(count, 5), seed=6)[-count:]
    own = G1.msm(points, scalars)
    theirs = [G1Point.from_compressed_bytes_unchecked(bytes(each)) for each in points.to_bytes()]
    expected = G1Point.multiexp_unchecked(theirs, [to_arkworks(each) for each in scalars])
    assert own.to_bytes().tobytes() == bytes(expected.to_compressed_bytes())


def test_many_multiples_of_one_point_are_those_of_arkworks() -> None:
    scalars = draw_scalars(G1.order, 60, seed=8)
    expected = [bytes((G1Point() * to_arkworks(k)).to_compressed_bytes()) for k in scalars]
    assert [each.tobytes() for each in (G1.generator * scalars).to_bytes()] == expected


def test_compressed_bytes_are_those_of_arkworks() -> None:
    scalars = draw_scalars(G1.order, 20, seed=7)
    expected = [bytes((G1Point() * to_arkworks(k)).to_compressed_bytes()) for k in scalars]
    points = G1.generator * scalars
    assert [each.tobytes() for each in points.to_bytes()] == expected
    assert (G1.from_bytes(expected) == points).all()


def test_points_outside_the_group_are_found_as_arkworks_finds_them() -> None:
    """Points of the curve with small x, and their multiples by the cofactor."""
    p, found = G1.field.modulus, []
    for x in range(20):
        y_squared = (x**3 + 4) % p
        y = pow(y_squared, (p + 1) // 4, p)
        if y * y % p == y_squared:
            found.append((x, y))
    outside = encode_points(G1, found)
    cofactor = G1.cofactor
    assert cofactor is not None
    points = G1.concatenate([outside, outside * cofactor])
    theirs = [G1Point.from_compressed_bytes_unchecked(bytes(each)) for each in points.to_bytes()]
    inside = [each.is_in_subgroup() for each in theirs]
    assert points.in_subgroup().tolist() == inside
    assert inside == [False] * len(found) + [True] * len(found)
