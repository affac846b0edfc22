"""Operations on points in host memory, exact in every case: words in, words out.

They have the names and arguments of the operations on device points: words in affine form
(..., 2, coordinate) or XYZZ form (..., 4, coordinate) in, leading axes equal; points in affine form
out. `PointArithmetic` computes on lists of points, which are pairs of coordinates in Python
integers (`host_coordinates`), or None for the point at infinity.

Lists are added in affine form with one inversion for all (5M + 1S a point, 3M of them for its share
of the inversion). Multiples are computed point by point in Jacobian form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.ops.host_coordinates import Coordinate, CoordinateField, Words
from gpu_executor.ops.points import get_shape
from gpu_executor.primes.curve_key import CurveKey

Point = tuple[Coordinate, Coordinate] | None
"""x and y, reduced; None is the point at infinity."""
Jacobian = tuple[Coordinate, Coordinate, Coordinate] | None
"""X, Y, Z with x = X / Z^2 and y = Y / Z^3; None is the point at infinity."""
Booleans = npt.NDArray[np.bool_]

NAF_BITS = 5
"""Digits of scalars are odd and below 2^4 in absolute value, so one of 6 is not 0 on average."""
MIN_SHARED_MULTIPLES = 16
"""From so many multiples of one point on, tables of its multiples make them quicker: 64 of
BLS12-381 G1 take 36 ms instead of 172 ms (Intel Xeon, 2.5 GHz)."""


class PointArithmetic:
    """The group law of one curve on lists of points."""

    def __init__(self, key: CurveKey) -> None:
        self.key = key
        self.field = CoordinateField.of(key)
        self.modulus = key.prime.modulus
        self.a, self.b = self.field.make(key.a), self.field.make(key.b)

    # --- words ---

    def load(self, data: Words) -> list[Point]:
        """The points of words in affine or XYZZ form, in flat order."""
        count = data.shape[data.ndim - len(self.key.coordinate_shape) - 1]
        found = self.field.from_words(data)
        coordinates = [found[first::count] for first in range(count)]
        if count == 2:
            return [(x, y) if x or y else None for x, y in zip(*coordinates, strict=True)]
        p, one = self.modulus, self.field.one
        big_x, big_y, zz, zzz = coordinates
        # With I = 1 / ZZZ: 1 / ZZ = ZZ^2 I^2, because ZZ^3 = ZZZ^2.
        inverses = self.field.invert_all([each or one for each in zzz])
        points: list[Point] = []
        for x, y, z2, z3, inverse in zip(big_x, big_y, zz, zzz, inverses, strict=True):
            ratio = z2 * inverse % p  # 1 / Z
            points.append((x * (ratio * ratio % p) % p, y * inverse % p) if z3 else None)
        return points

    def store(self, points: Sequence[Point], shape: tuple[int, ...]) -> Words:
        """The words of points in affine form; `shape` is that of the leading axes."""
        zero = self.field.zero
        coordinates = [each for point in points for each in (point or (zero, zero))]
        found = self.field.to_words(coordinates)
        return found.reshape((*shape, 2, *self.key.coordinate_shape))

    # --- the group law ---

    def is_on_curve(self, point: Point) -> bool:
        """Whether a point satisfies the equation; the point at infinity does."""
        if point is None:
            return True
        x, y = point
        return not (y * y - self.compute_right_side(x)) % self.modulus

    def compute_right_side(self, x: Coordinate) -> Coordinate:
        """x^3 + a x + b, which is y^2."""
        return ((x * x + self.a) % self.modulus * x + self.b) % self.modulus

    def negate(self, points: Sequence[Point]) -> list[Point]:
        """-P for every point."""
        return [point and (point[0], -point[1] % self.modulus) for point in points]

    def add(self, first: Sequence[Point], second: Sequence[Point]) -> list[Point]:
        """P + Q for every pair: different points, equal points, opposite points, infinity."""
        p = self.modulus
        numerators: list[Coordinate | None] = []  # of the slopes; None where the sum is infinity
        denominators: list[Coordinate] = []
        for one, two in zip(first, second, strict=True):
            if one is None or two is None:
                continue
            (x1, y1), (x2, y2) = one, two
            if x1 != x2:
                numerators.append(y2 - y1)
                denominators.append((x2 - x1) % p)
            elif y1 == y2 and y1:
                numerators.append(3 * x1 * x1 + self.a)
                denominators.append(2 * y1 % p)
            else:
                numerators.append(None)
        inverses = iter(self.field.invert_all(denominators))
        rest = iter(numerators)
        sums: list[Point] = []
        for one, two in zip(first, second, strict=True):
            if one is None or two is None:
                sums.append(two if one is None else one)
                continue
            numerator = next(rest)
            if numerator is None:
                sums.append(None)
                continue
            (x1, y1), x2 = one, two[0]
            slope = numerator * next(inverses) % p
            x = (slope * slope - x1 - x2) % p
            sums.append((x, (slope * (x1 - x) - y1) % p))
        return sums

    def sum_rows(self, rows: Sequence[Sequence[Point]]) -> list[Point]:
        """The sum of every row: neighbours are added, in all rows at once, until one is left."""
        rest = [list(row) for row in rows]
        while any(len(row) > 1 for row in rest):
            first = [point for row in rest for point in row[: len(row) // 2 * 2 : 2]]
            sums = iter(self.add(first, [point for row in rest for point in row[1::2]]))
            rest = [[next(sums) for _ in row[1::2]] + row[len(row) // 2 * 2 :] for row in rest]
        return [row[0] if row else None for row in rest]

    # --- multiples ---

    def multiply(self, points: Sequence[Point], scalars: Sequence[int]) -> list[Point]:
        """k P for every pair; the scalars are integers that are not negative."""
        if len(points) >= MIN_SHARED_MULTIPLES and all(each == points[0] for each in points):
            return self._multiply_one(points[0], scalars)
        tables = self.make_odd_multiples(points)
        pairs = zip(tables, scalars, strict=True)
        return self.to_affine([self.climb([table], [scalar]) for table, scalar in pairs])

    def _multiply_one(self, point: Point, scalars: Sequence[int]) -> list[Point]:
        """k P of one point for many scalars: the digits of all windows select multiples from
        tables, and these are added for all scalars at once, 6M for each window."""
        bits = max(scalar.bit_length() for scalar in scalars)
        window = _choose_digit_bits(len(scalars), bits)
        count = bits // window + 1
        ladder: list[Jacobian] = [self.add_mixed(None, point, False)]
        for _ in range((count - 1) * window):
            ladder.append(self.double_jacobian(ladder[-1]))
        bases = self.to_affine(ladder[::window])
        multiples = [bases]  # multiples[d - 1][i] is d * 2^(window * i) * P
        for _ in range((1 << window - 1) - 1):
            multiples.append(self.add(multiples[-1], bases))
        opposites = [self.negate(row) for row in multiples]
        sums: list[Point] = [None] * len(scalars)
        digits = zip(*(recode_windows(scalar, window, count) for scalar in scalars), strict=True)
        for place, column in enumerate(digits):
            terms = [
                None
                if not digit
                else (multiples if digit > 0 else opposites)[abs(digit) - 1][place]
                for digit in column
            ]
            sums = self.add(sums, terms)
        return sums

    def make_odd_multiples(self, points: Sequence[Point]) -> list[list[Point]]:
        """P, 3P, 5P, ... for every point, as digits of `NAF_BITS` bits need them."""
        twice, multiples = self.add(points, points), [list(points)]
        for _ in range((1 << NAF_BITS - 2) - 1):
            multiples.append(self.add(multiples[-1], twice))
        return [list(row) for row in zip(*multiples, strict=True)]

    def climb(self, tables: Sequence[list[Point]], scalars: Sequence[int]) -> Jacobian:
        """The sum of all k P by one ladder of doublings."""
        digits = [recode_naf(scalar) for scalar in scalars]
        result: Jacobian = None
        for place in range(max(map(len, digits), default=0) - 1, -1, -1):
            result = self.double_jacobian(result)
            for own, table in zip(digits, tables, strict=True):
                digit = own[place] if place < len(own) else 0
                if digit:
                    result = self.add_mixed(result, table[abs(digit) // 2], digit < 0)
        return result

    def double_jacobian(self, point: Jacobian) -> Jacobian:
        """2P by 3M + 4S, and 2M + 1S more if a is not 0."""
        if point is None or not point[1]:  # points with y = 0 are their own opposites
            return None
        p, (x, y, z) = self.modulus, point
        y_squared = y * y % p
        s = 4 * x * y_squared % p
        m = 3 * x * x
        if self.a:
            z_squared = z * z % p
            m = m + z_squared * z_squared % p * self.a
        m = m % p
        doubled_x = (m * m - 2 * s) % p
        doubled_y = (m * (s - doubled_x) - 8 * y_squared * y_squared) % p
        return doubled_x, doubled_y, 2 * y * z % p

    def add_mixed(self, point: Jacobian, other: Point, negate: bool) -> Jacobian:
        """P + Q, or P - Q, with Q in affine form: 8M + 3S."""
        if other is None:
            return point
        p, x2, y2 = self.modulus, other[0], -other[1] if negate else other[1]
        if point is None:
            return x2, y2 % p, self.field.one
        x, y, z = point
        z_squared = z * z % p
        h = (x2 * z_squared - x) % p
        r = (z_squared * z % p * y2 - y) % p
        if not h:
            return None if r else self.double_jacobian(point)
        h_squared = h * h % p
        h_cubed, v = h * h_squared % p, x * h_squared % p
        sum_x = (r * r - h_cubed - 2 * v) % p
        return sum_x, (r * (v - sum_x) - y * h_cubed) % p, z * h % p

    def to_affine(self, points: Sequence[Jacobian]) -> list[Point]:
        """Points of Jacobian form in affine form, with one inversion."""
        p = self.modulus
        inverses = iter(self.field.invert_all([point[2] for point in points if point]))
        found: list[Point] = []
        for point in points:
            if point is None:
                found.append(None)
                continue
            inverse = next(inverses)
            squared = inverse * inverse % p
            found.append((point[0] * squared % p, point[1] * (squared * inverse % p) % p))
        return found


def recode_naf(scalar: int) -> list[int]:
    """The digits of a scalar from the lowest bit up: 0, or odd and below 2^(NAF_BITS - 1) in
    absolute value, and then at least NAF_BITS - 1 zeros follow."""
    digits = []
    half, mask = 1 << NAF_BITS - 1, (1 << NAF_BITS) - 1
    while scalar:
        digit = 0
        if scalar & 1:
            digit = scalar & mask
            if digit >= half:
                digit -= 1 << NAF_BITS
            scalar -= digit
        digits.append(digit)
        scalar >>= 1
    return digits


def recode_windows(scalar: int, window: int, count: int) -> list[int]:
    """`count` digits to the base 2^window, from the lowest up: at most 2^(window - 1) in absolute
    value."""
    digits = []
    half, mask = 1 << window - 1, (1 << window) - 1
    for _ in range(count):
        digit = scalar & mask
        if digit > half:
            digit -= 1 << window
        digits.append(digit)
        scalar = scalar - digit >> window
    return digits


def _choose_digit_bits(scalars: int, bits: int) -> int:
    """The bits of a digit with which multiples of one point take the fewest additions: for each
    digit one a scalar, and one for each of the 2^(bits - 1) multiples in its table."""
    return min(range(2, 17), key=lambda each: (bits // each + 1) * (scalars + (1 << each - 1)))


@functools.lru_cache(maxsize=64)
def get_arithmetic(key: CurveKey) -> PointArithmetic:
    """The group law of a curve; it is made once."""
    return PointArithmetic(key)


# --- operations on words ---


def add(curve: CurveKey, p: Words, q: Words) -> Words:
    """P + Q."""
    arithmetic = get_arithmetic(curve)
    sums = arithmetic.add(arithmetic.load(p), arithmetic.load(q))
    return arithmetic.store(sums, get_shape(curve, p))


def sub(curve: CurveKey, p: Words, q: Words) -> Words:
    """P - Q."""
    arithmetic = get_arithmetic(curve)
    differences = arithmetic.add(arithmetic.load(p), arithmetic.negate(arithmetic.load(q)))
    return arithmetic.store(differences, get_shape(curve, p))


def neg(curve: CurveKey, p: Words) -> Words:
    """-P."""
    arithmetic = get_arithmetic(curve)
    return arithmetic.store(arithmetic.negate(arithmetic.load(p)), get_shape(curve, p))


def double(curve: CurveKey, p: Words) -> Words:
    """2P."""
    arithmetic = get_arithmetic(curve)
    points = arithmetic.load(p)
    return arithmetic.store(arithmetic.add(points, points), get_shape(curve, p))


def mul(curve: CurveKey, p: Words, scalars: Words) -> Words:
    """k P, with a scalar for each point: words (..., words of a scalar) below the order."""
    arithmetic = get_arithmetic(curve)
    multiples = arithmetic.multiply(arithmetic.load(p), load_integers(curve, scalars))
    return arithmetic.store(multiples, get_shape(curve, p))


def sum_points(curve: CurveKey, p: Words) -> Words:
    """The sums over the last axis of points."""
    arithmetic, (*leading, count) = get_arithmetic(curve), get_shape(curve, p)
    points = arithmetic.load(p)
    split = [points[at * count : (at + 1) * count] for at in range(math.prod(leading))]
    return arithmetic.store(arithmetic.sum_rows(split), tuple(leading))


def to_affine(curve: CurveKey, p: Words) -> Words:
    """The same points in affine form."""
    arithmetic = get_arithmetic(curve)
    return arithmetic.store(arithmetic.load(p), get_shape(curve, p))


def equal(curve: CurveKey, p: Words, q: Words) -> Booleans:
    """Whether the points are equal."""
    arithmetic = get_arithmetic(curve)
    pairs = zip(arithmetic.load(p), arithmetic.load(q), strict=True)
    return _make_booleans([one == two for one, two in pairs], get_shape(curve, p))


def is_infinity(curve: CurveKey, p: Words) -> Booleans:
    """Whether the points are the point at infinity."""
    points = get_arithmetic(curve).load(p)
    return _make_booleans([point is None for point in points], get_shape(curve, p))


def is_on_curve(curve: CurveKey, p: Words) -> Booleans:
    """Whether the points satisfy the equation of the curve."""
    arithmetic = get_arithmetic(curve)
    found = [arithmetic.is_on_curve(point) for point in arithmetic.load(p)]
    return _make_booleans(found, get_shape(curve, p))


def load_integers(curve: CurveKey, scalars: Words) -> list[int]:
    """Scalars as integers, in flat order; their words are in columns of any dtype."""
    width = 4 * -(-curve.order.bit_length() // 32)
    flat: Any = np.ascontiguousarray(scalars).tobytes()
    return [int.from_bytes(flat[at : at + width], "little") for at in range(0, len(flat), width)]


def _make_booleans(found: Sequence[bool], shape: tuple[int, ...]) -> Booleans:
    return np.array(found, np.bool_).reshape(shape)
