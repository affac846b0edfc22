"""Curves that tests use, a group law that is independent of the package's, and oracles."""

from __future__ import annotations

import itertools
import random
from itertools import product
from typing import Any

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.point_encoding import PointEncoding
from gpu_executor.fields import MERSENNE31, ExtensionField, Field
from gpu_executor.ops.host_points import get_arithmetic

IntPoint = tuple[int, int] | None
"""A point over a prime field: x and y, or None for the point at infinity."""

NAMED_G1 = ["BLS12_381_G1", "BN254_G1", "BLS12_377_G1", "PALLAS", "VESTA", "SECP256K1"]
"""The named curves over prime fields."""
NAMED_G2 = ["BLS12_381_G2", "BN254_G2", "BLS12_377_G2"]
"""The named curves over extension fields."""
NAMED_CURVES = [*NAMED_G1, *NAMED_G2]


def make_small(p: int, a: int, b: int, order: int, generator: tuple[int, int]) -> Curve:
    """A curve over a field of few elements."""
    return Curve(Field(p), a, b, order=order, generator=generator, name=f"small {p} {a} {b}")


SMALL = [
    make_small(17, 2, 2, 19, (0, 6)),  # a generator with x = 0
    make_small(43, 0, 2, 13, (24, 18)),  # 4 * 13 points, some of order 2
    make_small(61, -3, 3, 73, (0, 8)),
    make_small(97, 0, 1, 7, (63, 51)),  # 12 * 7 points
    make_small(101, 2, 1, 23, (69, 87)),  # 4 * 23 points
]
"""a = 0 and not, all points in the group or a part of them, points of order 2, 3 and 4."""
OVER_MERSENNE31 = Curve(MERSENNE31, 5, 155, order=2147451083, generator=(2, 28751600), name="m31")
"""Over a field that is stored in canonical form."""
FILLS_LIMBS = make_small(0x28F5BF02FDC7D, 0, 2, 0x28F5BECFCA971, (1, 575775226409639))
"""100 times the prime is just below 2^56: numbers of curve kernels fill two limbs of 28 bits."""
FILLS_WORDS = make_small(0xFFFFFFDA56C91125, 0, 18, 0xFFFFFFD956C71023, (1, 1398174035627390523))
"""The prime and the order are just below 2^64."""
WITH_HALVES = Curve(
    Field(0xAFC0000000000059EC20000000000B808ED),
    0,
    2,
    order=0x20000000000000083,
    generator=(0x29BA0CE60DD6FA0BCFDBEE5286091CF18A4, 0xDAD4D5BE9B0CA7853B2D234DEF2E018E31),
    name="with halves",
)
"""Scalars have halves, and points have residues; with a short order, as kernels of few limbs take
little time. All points of order r are on this curve: r^2 of them."""
SMALL_QUADRATIC = Curve(
    ExtensionField(Field(7), 3),
    (1, 2),
    (1, 2),
    order=11,
    generator=((0, 1), (1, 3)),
    name="small quadratic",
)
"""44 points over 49 elements c0 + c1 u, u^2 = 3; a is not 0, and a point has order 2."""


def get_curve(name: str) -> Curve:
    """A named curve."""
    curve: Curve = getattr(gx.curves, name)
    return curve


def check_msm(device: Backend, curve: Curve, count: int) -> None:
    """Compare an MSM of some points with integers: the sum of k * (l G) is (the sum of k l) G."""
    draw = random.Random(7)
    logarithms = [0, 1, curve.order - 1, *(draw.randrange(curve.order) for _ in range(count - 3))]
    scalars = [5, curve.order - 1, 0, *(draw.randrange(curve.order) for _ in range(count - 3))]
    points = device.to_device(curve.generator * logarithms)
    total = sum(k * one for k, one in zip(scalars, logarithms, strict=True))
    assert curve.msm(points, scalars).to_host() == curve.generator * total


def get_encoding(curve: Curve) -> PointEncoding:
    """The byte format of a named curve."""
    assert curve.encoding is not None
    return curve.encoding


def find_outside_points(curve: Curve, count: int) -> PointArray:
    """Points of a curve with small x that are not in the group of prime order, if it is smaller
    than the curve: few of the curve's points are in it."""
    arithmetic = get_arithmetic(curve.key)
    field, points = arithmetic.field, []
    for x in itertools.count():
        coordinate = field.make([x, *[1] * (field.degree - 1)])
        y = field.sqrt(arithmetic.compute_right_side(coordinate))
        if y is not None:
            points.append((coordinate, y))
        if len(points) == count:
            break
    return PointArray(curve, arithmetic.store(points, (count,)))


def list_points(curve: Curve) -> list[IntPoint]:
    """All points of a small curve over a prime field, infinity first."""
    p, (a,), (b,) = curve.field.modulus, curve.key.a, curve.key.b
    pairs = product(range(p), repeat=2)
    return [None, *((x, y) for x, y in pairs if (y * y - x**3 - a * x - b) % p == 0)]


def add_ints(curve: Curve, one: IntPoint, two: IntPoint) -> IntPoint:
    """The sum of two points by the definition of the group law."""
    p, (a,) = curve.field.modulus, curve.key.a
    if one is None or two is None:
        return two if one is None else one
    (x1, y1), (x2, y2) = one, two
    if x1 == x2 and (y1 + y2) % p == 0:
        return None
    if one == two:
        slope = (3 * x1 * x1 + a) * pow(2 * y1, -1, p)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, p)
    x = (slope * slope - x1 - x2) % p
    return x, (slope * (x1 - x) - y1) % p


def multiply_ints(curve: Curve, scalar: int, point: IntPoint) -> IntPoint:
    """k P by doubling and adding."""
    result: IntPoint = None
    for bit in f"{scalar:b}":
        result = add_ints(curve, result, result)
        if bit == "1":
            result = add_ints(curve, result, point)
    return result


def encode_points(curve: Curve, points: list[Any]) -> PointArray:
    """Points given as pairs, or None for infinity; they need not be in the group of prime order."""
    zero = 0 if curve.key.degree == 1 else (0,) * curve.key.degree
    pairs = [(zero, zero) if point is None else point for point in points]
    return curve.from_affine([x for x, _ in pairs], [y for _, y in pairs], check=False)


def draw_points(curve: Curve, count: int, seed: int) -> PointArray:
    """Random points of the group, on the host."""
    draw = random.Random(seed)
    return curve.generator * [draw.randrange(curve.order) for _ in range(count)]
