"""The optimal ate pairing of BN254, in Python integers (Vercauteren, 2010).

With z the parameter of the curve, the Miller loop follows the signed bits of 6z + 2, and two more
lines go through the Frobenius images of the point of G2. A line with the slope s through the point
(x', y') of the twist has the value y - s x w + (s x' - y') w^3 at the point (x, y) of G1. The final
exponentiation removes a factor y, so the value may be 1 - s (x / y) w + (s x' - y') (1 / y) w^3.
Slopes and s x' - y' depend on the point of G2 alone: `prepare` computes them once.

The final exponentiation raises to (q^12 - 1) / r times 2z (6z^2 + 3z + 1), which has no factor in
common with r (Fuentes-Castaneda, Knapp and Rodriguez-Henriquez, 2011). snarkjs does so too.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_executor.groth16.bn254_tower import (
    F2,
    F12,
    FROBENIUS,
    ONE,
    conjugate,
    invert,
    map_frobenius,
    multiply,
    multiply_by_line,
    multiply_f2,
    square,
    square_cyclotomic,
    square_f2,
)
from gpu_executor.primes.moduli import BN254_Q as Q
from gpu_executor.primes.moduli import BN254_Z as Z

Affine = tuple[F2, F2]
"""x and y of a point of the twist."""
Lines = list[tuple[int, int, int, int]]
"""-s and s x' - y' of every line, in the order of the Miller loop."""


def recode_signed_bits(number: int) -> list[int]:
    """The digits -1, 0 and 1 of a number, from the highest down, with no two neighbours that are
    not 0."""
    digits = []
    while number:
        digit = 2 - number % 4 if number % 2 else 0
        digits.append(digit)
        number = (number - digit) // 2
    return digits[::-1]


LOOP_DIGITS = recode_signed_bits(6 * Z + 2)[1:]
Z_DIGITS = recode_signed_bits(Z)[1:]


# --- lines through points of G2 ---


def prepare(points: Sequence[Affine]) -> list[Lines | None]:
    """The lines of points on the twist; None of a point that is not in the group of order r. All
    points share the inversions.

    The loop ends with (6z + 2) P + f(P) - f^2(P), f the Frobenius map of the twist, and a point is
    in the group if and only if that is -f^3(P): with t the trace, f satisfies f^2 - t f + q = 0,
    the resultant of this polynomial and 6z + 2 + f - f^2 + f^3 is N, so N P = 0, and the greatest
    common divisor of N and the number of points of the twist, r (2q - r), is r. A sum of the loop
    that the formulas do not cover (of a point and itself, or its opposite) does not occur in the
    group.
    """
    walk = _TwistWalk(points)
    for digit in LOOP_DIGITS:
        walk.double()
        if digit:
            walk.add([point if digit > 0 else _negate(point) for point in points])
    images = [_map_point(point) for point in points]
    walk.add(images)
    images = [_map_point(point) for point in images]
    walk.add([_negate(point) for point in images])
    ends = [_negate(_map_point(point)) for point in images]
    return [
        lines if in_range and at == end else None
        for lines, in_range, at, end in zip(
            walk.lines, walk.in_range, walk.points, ends, strict=True
        )
    ]


class _TwistWalk:
    """Points of the twist that walk the same steps, and the lines of these steps."""

    def __init__(self, points: Sequence[Affine]) -> None:
        self.points = list(points)
        self.lines: list[Lines] = [[] for _ in points]
        self.in_range = [True] * len(points)
        """False from the first sum on that the formulas do not cover."""

    def double(self) -> None:
        """Double every point."""
        slopes = []
        for (x0, x1), y in self.points:
            slopes.append(((3 * (x0 + x1) * (x0 - x1), 6 * x0 * x1), (2 * y[0], 2 * y[1])))
        self._step(slopes, [x for x, _ in self.points])

    def add(self, others: Sequence[Affine]) -> None:
        """Add another point to each."""
        slopes = []
        for ((x0, x1), (y0, y1)), ((v0, v1), (w0, w1)) in zip(self.points, others, strict=True):
            slopes.append(((w0 - y0, w1 - y1), (v0 - x0, v1 - x1)))
        self._step(slopes, [x for x, _ in others])

    def _step(self, slopes: list[tuple[F2, F2]], others: list[F2]) -> None:
        """Draw the lines with these slopes (numerator, denominator); `others` are the x of the
        second points on them."""
        norms = [(b0 * b0 + b1 * b1) % Q for _, (b0, b1) in slopes]
        self.in_range = [own and norm != 0 for own, norm in zip(self.in_range, norms, strict=True)]
        inverses = _invert_all([norm or 1 for norm in norms])
        for index, inverse in enumerate(inverses):
            numerator, (b0, b1) = slopes[index]
            s0, s1 = slope = multiply_f2(multiply_f2(numerator, (b0, -b1)), (inverse, 0))
            (x0, x1), (y0, y1) = self.points[index]
            other = others[index]
            m0, m1 = multiply_f2(slope, (x0, x1))
            self.lines[index].append((-s0, -s1, m0 - y0, m1 - y1))
            n0, n1 = square_f2(slope)
            n0, n1 = (n0 - x0 - other[0]) % Q, (n1 - x1 - other[1]) % Q
            z0, z1 = multiply_f2(slope, (x0 - n0, x1 - n1))
            self.points[index] = (n0, n1), ((z0 - y0) % Q, (z1 - y1) % Q)


def _invert_all(numbers: Sequence[int]) -> list[int]:
    """The inverses modulo q of numbers that are not 0, with one inversion."""
    products = [1]
    for number in numbers:
        products.append(products[-1] * number % Q)
    rest = pow(products[-1], -1, Q)
    inverses = []
    for number, product in zip(reversed(numbers), reversed(products[:-1]), strict=True):
        inverses.append(rest * product % Q)
        rest = rest * number % Q
    return inverses[::-1]


def _map_point(point: Affine) -> Affine:
    """The Frobenius map of the curve, on the twist."""
    (x0, x1), (y0, y1) = point
    return multiply_f2((x0, -x1), FROBENIUS[1][2]), multiply_f2((y0, -y1), FROBENIUS[1][3])


def _negate(point: Affine) -> Affine:
    x, (y0, y1) = point
    return x, (-y0 % Q, -y1 % Q)


# --- pairings ---


def pair(pairs: Sequence[tuple[tuple[int, int], Lines]]) -> F12:
    """The product of the pairings of points of G1, which are not infinity, with prepared ones."""
    return raise_to_final_power(run_miller_loops(pairs))


def run_miller_loops(pairs: Sequence[tuple[tuple[int, int], Lines]]) -> F12:
    """The product of the Miller loops; they share the squares."""
    inverses = _invert_all([y for (_, y), _ in pairs])
    factors = [
        (x * inverse % Q, inverse) for ((x, _), _), inverse in zip(pairs, inverses, strict=True)
    ]
    columns = iter(list(zip(*(lines for _, lines in pairs), strict=True)))

    def multiply_by_lines(f: F12) -> F12:
        for (slope_factor, factor), (s0, s1, c0, c1) in zip(factors, next(columns), strict=True):
            f = multiply_by_line(
                f,
                s0 * slope_factor % Q,
                s1 * slope_factor % Q,
                c0 * factor % Q,
                c1 * factor % Q,
            )
        return f

    f = ONE
    if not pairs:
        return f
    for digit in LOOP_DIGITS:
        f = multiply_by_lines(square(f))
        if digit:
            f = multiply_by_lines(f)
    return multiply_by_lines(multiply_by_lines(f))


def raise_to_final_power(f: F12) -> F12:
    """f^(2z (6z^2 + 3z + 1) (q^12 - 1) / r).

    After the easy part, (q^6 - 1)(q^2 + 1), the rest of the exponent is a + b q + c q^2 + d q^3
    with c = 6z + 6z^2 + 12z^3, b = c - 2z, a = c + 6z^2 + 1, d = b - 1.
    """
    f = multiply(conjugate(f), invert(f))
    f = multiply(map_frobenius(f, 2), f)
    f_2z = square_cyclotomic(_raise_to_z(f))
    f_6z = multiply(square_cyclotomic(f_2z), f_2z)
    f_6zz = _raise_to_z(f_6z)
    f_12zzz = _raise_to_z(square_cyclotomic(f_6zz))
    c = multiply(multiply(f_6z, f_6zz), f_12zzz)
    b = multiply(c, conjugate(f_2z))
    a = multiply(multiply(c, f_6zz), f)
    d = multiply(b, conjugate(f))
    low = multiply(a, map_frobenius(b, 1))
    return multiply(low, multiply(map_frobenius(c, 2), map_frobenius(d, 3)))


def _raise_to_z(f: F12) -> F12:
    """f^z, after the easy part."""
    result, opposite = f, conjugate(f)
    for digit in Z_DIGITS:
        result = square_cyclotomic(result)
        if digit:
            result = multiply(result, f if digit > 0 else opposite)
    return result
