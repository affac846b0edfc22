"""Curves over extension fields: small ones against the definition of the group law, G2 against
other libraries."""

from __future__ import annotations

import pickle
import random
from itertools import pairwise, product
from typing import Any

import pytest
from py_arkworks_bls12381 import G2Point, Scalar
from py_ecc import optimized_bls12_381, optimized_bn128

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError, CurveError, PointError
from gpu_executor.fields import ExtensionArray, ExtensionField, Field
from gpu_executor.primes import extension
from tests.support.curves_under_test import NAMED_G2, draw_points, encode_points, get_curve

G2 = gx.curves.BLS12_381_G2
Element = tuple[int, ...]
ExtensionPoint = tuple[Element, Element] | None

SMALL = [
    Curve(
        ExtensionField(Field(7), -1, 2),
        (1, 0),
        (6, 6),
        order=23,
        generator=((6, 1), (1, 1)),
        name="small 7^2 0",
    ),  # 2 * 23 points
    Curve(
        ExtensionField(Field(13), 2, 2),
        (0, 0),
        (12, 10),
        order=19,
        generator=((9, 4), (8, 6)),
        name="small 13^2 0",
    ),  # 9 * 19 points
    Curve(
        ExtensionField(Field(7), 2, 3),
        (0, 0, 0),
        (4, 2, 3),
        order=127,
        generator=((2, 6, 0), (5, 1, 5)),
        name="small 7^3 1",
    ),  # 3 * 127 points
    Curve(
        ExtensionField(Field(5), 2, 4),
        (4, 0, 2, 2),
        (4, 0, 3, 4),
        order=23,
        generator=((2, 4, 0, 3), (0, 4, 3, 1)),
        name="small 5^4 1",
    ),  # 26 * 23 points
]


def list_points(curve: Curve) -> list[ExtensionPoint]:
    """All points, infinity first."""
    layout, key = curve.field.layout, curve.key
    elements = list(product(range(key.prime.modulus), repeat=key.degree))
    roots: dict[Element, list[Element]] = {}
    for y in elements:
        roots.setdefault(extension.mul(layout, y, y), []).append(y)
    found: list[ExtensionPoint] = [None]
    for x in elements:
        cube = extension.mul(layout, extension.mul(layout, x, x), x)
        linear = extension.add(layout, extension.mul(layout, key.a, x), key.b)
        found += [(x, y) for y in roots.get(extension.add(layout, cube, linear), [])]
    return found


def add_points(curve: Curve, one: ExtensionPoint, two: ExtensionPoint) -> ExtensionPoint:
    """The sum of two points by the definition of the group law."""
    layout, p = curve.field.layout, curve.key.prime.modulus

    def multiply(x: Element, y: Element) -> Element:
        found: Element = extension.mul(layout, x, y)
        return found

    def subtract(x: Element, y: Element) -> Element:
        return tuple((c - d) % p for c, d in zip(x, y, strict=True))

    if one is None or two is None:
        return two if one is None else one
    (x1, y1), (x2, y2) = one, two
    if x1 == x2 and y1 == subtract((0,) * len(y2), y2):
        return None
    if one == two:
        square = multiply(x1, x1)
        numerator = tuple((3 * c + d) % p for c, d in zip(square, curve.key.a, strict=True))
        denominator = tuple(2 * c % p for c in y1)
    else:
        numerator, denominator = subtract(y2, y1), subtract(x2, x1)
    slope = multiply(numerator, extension.inverse(layout, denominator))
    x = subtract(subtract(multiply(slope, slope), x1), x2)
    return x, subtract(multiply(slope, subtract(x1, x)), y1)


small = pytest.mark.parametrize("curve", SMALL, ids=lambda curve: curve.name)


@small
def test_sums_of_all_pairs(curve: Curve) -> None:
    points = list_points(curve)
    draw = random.Random(1)
    pairs = list(product(points, repeat=2))
    pairs = (
        pairs
        if len(pairs) <= 1000
        else [
            *draw.sample(pairs, 500),
            *((point, point) for point in points),
            *((None, point) for point in points),
        ]
    )
    first, second = (encode_points(curve, [pair[at] for pair in pairs]) for at in (0, 1))
    assert (first + second).tolist() == [add_points(curve, *pair) for pair in pairs]
    assert ((first + second) - second == first).all()
    opposite = encode_points(curve, points)
    assert (opposite + -opposite).is_infinity().all()


@small
def test_multiples_of_all_points(curve: Curve) -> None:
    points = list_points(curve)[:15]
    array, sums = encode_points(curve, points), [None] * len(points)
    for scalar in range(min(curve.order, 25)):
        assert (array * scalar).tolist() == sums
        pairs = zip(sums, points, strict=True)
        sums = [add_points(curve, *pair) for pair in pairs]  # type: ignore[misc]


@small
def test_every_point_is_on_the_curve_and_some_in_the_group(curve: Curve) -> None:
    points = encode_points(curve, list_points(curve))
    assert points.is_on_curve().all()
    assert points.in_subgroup().sum() == curve.order
    assert points.sum().tolist() == points.reshape(1, -1).sum(axis=1).tolist()[0]


def test_coordinates_are_arrays_of_the_extension_field() -> None:
    points = draw_points(G2, 3, seed=1)
    assert isinstance(points.x, ExtensionArray)
    assert points.x.field == G2.field == gx.fields.BLS12_381_FQ2
    assert points.x.shape == (3,)
    assert (G2.from_affine(points.x, points.y) == points).all()
    pairs = points.tolist()
    assert (G2.from_affine([x for x, _ in pairs], [y for _, y in pairs]) == points).all()
    assert points.numpy().shape == (3, 2, 2, 6)
    assert (pickle.loads(pickle.dumps(points)) == points).all()
    x, y = points.x, points.y
    assert (y * y == x * x * x + (4, 4)).all()


def test_bad_coordinates_are_named() -> None:
    (x, y), other = G2.generator.tolist(), (5, 6)
    with pytest.raises(PointError, match="bls12_381_g2: point 1: x and y are not on the curve"):
        G2.from_affine([x, other], [y, y])
    with pytest.raises(PointError, match="point 1: y is not below the modulus"):
        G2.from_affine([x, x], [y, (y[0], G2.field.modulus)])
    with pytest.raises(ArgumentTypeError, match="x is an array of bls12_381_fq, and the curve is"):
        G2.from_affine(gx.fields.BLS12_381_FQ.encode([1]), [y])


def test_curves_over_towers_are_refused() -> None:
    base = ExtensionField(Field(7), -1)
    tower = ExtensionField(base, (1, 2))
    with pytest.raises(CurveError, match="curves over towers of extensions are not supported"):
        Curve(tower, 0, 1, order=5, generator=(1, 1))


def test_tuples_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="b must be an integer, or a tuple of 2 integers"):
        Curve(gx.fields.BN254_FQ2, 0, (1, 2, 3), order=5, generator=(1, 1))


@pytest.mark.parametrize(
    ("name", "library"),
    [("BLS12_381_G2", optimized_bls12_381), ("BN254_G2", optimized_bn128)],
)
def test_multiples_and_sums_are_those_of_py_ecc(name: str, library: Any) -> None:
    curve = get_curve(name)
    draw = random.Random(2)
    scalars = [0, 1, 2, curve.order - 1, *(draw.randrange(curve.order) for _ in range(3))]
    expected = [library.multiply(library.G2, scalar) for scalar in scalars]

    def normalize(point: Any) -> Any:
        if library.is_inf(point):
            return None
        return tuple(tuple(map(int, each.coeffs)) for each in library.normalize(point))

    points = curve.generator * scalars
    assert points.tolist() == [normalize(each) for each in expected]
    sums = [library.add(one, two) for one, two in pairwise(expected)]
    assert (points[:-1] + points[1:]).tolist() == [normalize(each) for each in sums]


def to_arkworks(scalar: int) -> Any:
    return Scalar.from_le_bytes(scalar.to_bytes(32, "little"))


@pytest.mark.parametrize("count", [3, 40])
def test_msm_is_that_of_arkworks(count: int) -> None:
    points = draw_points(G2, count, seed=3)
    scalars = [pow(3, 40 + 31 * at, G2.order) for at in range(count)]
    theirs = [G2Point.from_compressed_bytes(bytes(each)) for each in points.to_bytes()]
    expected = G2Point.multiexp_unchecked(theirs, [to_arkworks(each) for each in scalars])
    found = G2.msm(points, scalars)
    assert found.to_bytes().tobytes() == bytes(expected.to_compressed_bytes())


def test_compressed_bytes_are_those_of_arkworks() -> None:
    scalars = [0, 1, 2, 3, G2.order - 1, G2.order - 2, 12345]
    expected = [bytes((G2Point() * to_arkworks(k)).to_compressed_bytes()) for k in scalars]
    points = G2.generator * scalars
    assert [each.tobytes() for each in points.to_bytes()] == expected
    assert (G2.from_bytes(expected) == points).all()


@pytest.mark.parametrize("name", NAMED_G2)
def test_points_on_devices_of_the_cpu_backend(name: str) -> None:
    curve, cpu = get_curve(name), gx.CpuBackend()
    points = draw_points(curve, 4, seed=4)
    there = cpu.to_device(points)
    assert there.shape == (4,)
    assert (there + there[::-1]).to_host().tolist() == (points + points[::-1]).tolist()
    assert there.in_subgroup().all()
    assert curve.msm(there, [1, 2, 3, 4]).to_host() == curve.msm(points, [1, 2, 3, 4])


def test_repr_shows_coefficients() -> None:
    assert repr(G2.generator) == (
        "<PointArray () of bls12_381_g2 on the host, affine: "
        "((0x24aa2b..., 0x13e02b...), (0xce5d52..., 0x606c4a...))>"
    )
