"""Membership of the group of prime order r on curves where other points have the order r too.

The points P with r P = 0 are r points, or r^2 of them, as many as over all extension fields. The
second needs a field of q elements where r divides q - 1, and r^2 divides the number of points of
the curve. There, the Weil pairing e(P, G) with the generator G is 1 for the multiples of G, and for
no other P with r P = 0: both conditions together decide exactly.

    e(P, G) = -f_P(G) / f_G(P) for odd r, unless a factor of these is 0

f_P is the function with a zero of order r at P and a pole of order r at infinity. Miller's
algorithm computes its value at G as a product of lines through multiples of P. Such a line is 0 at
G only if G is a multiple of P, and then P is one of G, because r is prime: a factor of 0 decides,
too.

The algorithm has no branches. It computes with all points at once: with arrays of the curve's field
on a device, and on the host with NumPy arrays of Python integers or of `ExtensionElement`s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.curves.point_array import PointArray
from gpu_executor.ops.host_points import get_arithmetic

Booleans = npt.NDArray[np.bool_]
Values = Any
"""Elements of the curve's field: an array of the field, or a NumPy array of objects."""
LEAST_DEVICE_POINTS = 16
"""Fewer points of a device are computed on the host. A device runs some 40 dispatches for each bit
of the order: of 127 bits over a quadratic extension, 3 s on lavapipe, where the host takes 0.15 s a
point."""
PAIRED_POINTS = 1 << 16
"""Points of a device that are computed at once: some 30 arrays of twice as many numbers."""


def may_have_more_points_of_order(q: int, order: int) -> bool:
    """Whether a curve over a field of q elements may have more points P with order * P = 0 than the
    group of that prime order: then the order divides q - 1, and its square divides the number of
    points, which is between q + 1 - 2 sqrt(q) and q + 1 + 2 sqrt(q) (Hasse)."""
    width = math.isqrt(4 * q)
    last = (q + 1 + width) // order**2 * order**2
    return (q - 1) % order == 0 and last >= q + 1 - width


def is_paired_to_one(points: PointArray, generator: PointArray) -> Booleans:
    """Of points P with r P = 0, in affine form and not infinity, which have e(P, G) = 1. For other
    points the result means nothing."""
    count, flat = points.size, points.reshape(points.size)
    if not points.on_device or count < LEAST_DEVICE_POINTS:
        return _pair_on_host(flat, generator).reshape(points.shape)
    starts = range(0, count, PAIRED_POINTS)
    parts = [_pair_on_device(flat[at : at + PAIRED_POINTS], generator) for at in starts]
    return np.concatenate(parts).reshape(points.shape)


def _pair_on_host(points: PointArray, generator: PointArray) -> Booleans:
    arithmetic = get_arithmetic(points.curve.key)
    p, field = arithmetic.modulus, arithmetic.field
    loaded = [each or (field.zero, field.zero) for each in arithmetic.load(points.words())]
    x, y = (_make_objects([point[at] for point in loaded]) for at in (0, 1))
    base = arithmetic.load(generator.words())[0]
    assert base is not None
    base_x, base_y = (_make_objects([each] * len(loaded)) for each in base)
    one = _make_objects([field.one] * (2 * len(loaded)))
    found = _pair(
        points.curve.key.order, arithmetic.a, one, (x, y), (base_x, base_y), lambda x: x % p
    )
    return np.array([not each for each in found], np.bool_)


def _make_objects(elements: list[Any]) -> npt.NDArray[np.object_]:
    made = np.empty(len(elements), np.object_)
    made[:] = elements
    return made


def _pair_on_device(points: PointArray, generator: PointArray) -> Booleans:
    curve, (base_x, base_y) = points.curve, generator.tolist()
    x, y = points.x, points.y
    zero = x - x
    one = np.concatenate([zero, zero]) + 1
    a = curve.key.a if curve.key.degree > 1 else curve.key.a[0]
    base = zero + base_x, zero + base_y
    found = _pair(curve.key.order, a if any(curve.key.a) else 0, one, (x, y), base, lambda x: x)
    booleans: Booleans = curve.field.equal(found, 0)
    return booleans


def _pair(
    order: int,
    a: Any,
    one: Values,
    points: tuple[Values, Values],
    base: tuple[Values, Values],
    reduce: Callable[[Values], Values],
) -> Values:
    """Numbers that are 0 where e(P, G) = 1 or a line is 0; `base` is G, as often as there are
    points, and `one` twice as often."""
    # Both functions at once: those of the points at G, then those of G at the points.
    own = [np.concatenate(pair) for pair in zip(points, base, strict=True)]
    at = [np.concatenate(pair) for pair in zip(base, points, strict=True)]
    numerators, denominators = _evaluate(order, a, one, (own[0], own[1]), (at[0], at[1]), reduce)
    count = len(points[0])
    over, under = numerators[:count], denominators[:count]
    over_base, under_base = numerators[count:], denominators[count:]
    # f_P(G) / f_G(P) is -1, or one of the four is 0.
    difference = reduce(reduce(over * under_base) + reduce(over_base * under))
    lines = reduce(reduce(over * under) * reduce(over_base * under_base))
    return reduce(difference * lines)


def _evaluate(
    order: int,
    a: Any,
    one: Values,
    points: tuple[Values, Values],
    at: tuple[Values, Values],
    reduce: Callable[[Values], Values],
) -> tuple[Values, Values]:
    """f_P(Q) for points P and Q = `at`, as a fraction: Miller's algorithm in Jacobian coordinates.

    It computes f_(r-1) with the divisor (r - 1) P - ((r - 1) P) - (r - 2) infinity by one step for
    each bit of r - 1, and all of its multiples of P are neither infinity nor plus or minus P where
    they are added to P. The last line is the one through P and (r - 1) P = -P.
    """
    (base_x, base_y), (at_x, at_y) = points, at
    x, y, z = base_x, base_y, one
    numerator = denominator = one
    for bit in f"{order - 1:b}"[1:]:
        # The tangent at (x, y, z), whose slope is m / new_z, and the vertical through the double.
        zz, yy = reduce(z * z), reduce(y * y)
        m = reduce(x * x * 3)
        if a:
            m = reduce(m + reduce(zz * zz) * a)
        s, new_z = reduce(x * yy * 4), reduce(y * z * 2)
        new_x = reduce(m * m - s * 2)
        line = reduce(reduce(new_z * zz) * at_y - yy * 2 - m * reduce(zz * at_x - x))
        vertical = reduce(reduce(new_z * new_z) * at_x - new_x)
        numerator = reduce(reduce(numerator * numerator) * reduce(line * new_z))
        denominator = reduce(reduce(denominator * denominator) * reduce(zz * vertical))
        x, y, z = new_x, reduce(m * (s - new_x) - reduce(yy * yy) * 8), new_z
        if bit == "1":
            # The line through (x, y, z) and P, whose slope is r / new_z, and the vertical.
            zz = reduce(z * z)
            h, r = reduce(zz * base_x - x), reduce(reduce(zz * z) * base_y - y)
            hh, new_z = reduce(h * h), reduce(z * h)
            hhh, v = reduce(hh * h), reduce(hh * x)
            new_x = reduce(r * r - hhh - v * 2)
            line = reduce(new_z * reduce(at_y - base_y) - r * reduce(at_x - base_x))
            vertical = reduce(reduce(new_z * new_z) * at_x - new_x)
            numerator = reduce(numerator * reduce(line * new_z))
            denominator = reduce(denominator * vertical)
            x, y, z = new_x, reduce(r * reduce(v - new_x) - reduce(y * hhh)), new_z
    return reduce(numerator * reduce(at_x - base_x)), denominator
