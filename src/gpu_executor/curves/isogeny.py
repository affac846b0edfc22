"""`Isogeny`: a map from one curve to another with finitely many points in its kernel.

It is given by the kernel polynomial h, whose roots are the x of the points in the kernel, each once
for P and -P, on a curve y^2 = x^3 + a x + b. Kohel's formulas ("Endomorphism rings of elliptic
curves over finite fields", 1996, section 2.4) make its rational functions. With d the degree of h,
s the sum of its roots and g = 4 (x^3 + a x + b):

    n = ((2 d + 1) x - 2 s) h^2 - (6 x^2 + 2 a) h' h - g (h'' h - h'^2)
    (x, y) -> (u^2 n / h^2, u^3 y (n' h - 2 n h') / h^3)

The isomorphism (x, y) -> (u^2 x, u^3 y) behind it reaches the curve with the coefficients wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_executor.ops.host_coordinates import Coordinate, CoordinateField

Polynomial = list[Coordinate]
"""Coefficients, the constant term first."""


class Isogeny:
    """An isogeny of odd degree, as rational functions of coordinates."""

    def __init__(
        self,
        field: CoordinateField,
        a: Coordinate,
        b: Coordinate,
        kernel: Sequence[Coordinate],
        inverse_scale: int,
    ) -> None:
        """The isogeny from y^2 = x^3 + a x + b with a kernel polynomial.

        Args:
            field (CoordinateField): The field of the coordinates.
            a (Coordinate): The coefficient a.
            b (Coordinate): The coefficient b.
            kernel (sequence): The coefficients of the kernel polynomial, the constant term first,
                without the highest one, which is 1.
            inverse_scale (int): 1 / u.
        """
        p, one = field.modulus, field.one
        h = [*kernel, one]
        first = _derive(h)
        square = _multiply(h, h)
        curve = [4 * b, 4 * a, field.zero, 4 * one]
        degree = 2 * len(kernel) + 1
        numerator = _add(
            _multiply([2 * kernel[-1], degree * one], square),  # -s is the coefficient below 1
            _negate(_multiply([2 * a, field.zero, 6 * one], _multiply(first, h))),
            _multiply(curve, _multiply(first, first)),
        )
        if second := _derive(first):
            numerator = _add(numerator, _negate(_multiply(curve, _multiply(second, h))))
        reduced = [each % p for each in numerator]
        assert reduced[-1] == one
        scale = pow(inverse_scale, -1, p)
        self._scales = scale**2 % p, scale**3 % p
        self._polynomials = [
            [field.to_integers(each % p) for each in polynomial]
            for polynomial in (h, first, reduced, _derive(reduced))
        ]

    def map_coordinates(self, field: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The coordinates of the images; 0 and 0, the point at infinity, for points of the kernel.

        Args:
            field (FiniteField): The field of the coordinates.
            x (array): Coordinates of points, none of which is the point at infinity.
            y (array): The other coordinates, in the same place.
        """
        h, h_slope, n, n_slope = (_evaluate(field, each, x) for each in self._polynomials)
        square_scale, cube_scale = self._scales
        inverse = field.inverse(h)  # 0 for 0
        square = field.square(inverse)
        slope = n_slope * h - field.double(n * h_slope)
        return n * square * square_scale, y * slope * (square * inverse) * cube_scale


def _evaluate(field: Any, polynomial: Sequence[Any], x: Any) -> Any:
    """The values of a polynomial of degree 1 or more, or of a constant, by Horner's rule."""
    *rest, highest = polynomial
    if not rest:
        return highest
    value = field.fma(x, highest, rest[-1])
    for each in reversed(rest[:-1]):
        value = field.fma(value, x, each)
    return value


def _multiply(first: Polynomial, other: Polynomial) -> Polynomial:
    product = [0 * first[0]] * (len(first) + len(other) - 1)
    for i, x in enumerate(first):
        for j, y in enumerate(other):
            product[i + j] = product[i + j] + x * y
    return product


def _add(*polynomials: Polynomial) -> Polynomial:
    length = max(map(len, polynomials))
    zero = 0 * polynomials[0][0]
    total = [zero] * length
    for each in polynomials:
        total = [x + y for x, y in zip(total, [*each, *[zero] * (length - len(each))], strict=True)]
    return total


def _negate(polynomial: Polynomial) -> Polynomial:
    return [-each for each in polynomial]


def _derive(polynomial: Polynomial) -> Polynomial:
    return [index * each for index, each in enumerate(polynomial)][1:]
