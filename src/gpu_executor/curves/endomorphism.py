"""Endomorphisms of curves, which tell the points of the group of prime order from others quickly.

An endomorphism maps the group of prime order r to itself, so it multiplies its points by a number
modulo r, the eigenvalue. For the two kinds here, the points that it multiplies by that number are
exactly those of the group:

- (x, y) -> (beta x, y) on curves with a = 0, beta a cube root of unity. It satisfies
  t^2 + t + 1 = 0. The eigenvalue of a BLS curve is -z^2, z the parameter of the curve, and
  (-z^2)^2 - z^2 + 1 = r. So a point P with the image -z^2 P has r P = 0.
- The Frobenius map of the curve that a twist belongs to, on the twist. It satisfies
  t^2 - (trace) t + q = 0, and its eigenvalue is trace - 1. A point with the image (trace - 1) P has
  (q + 1 - trace) P = 0, which is n P = 0 with n the number of points of the curve over F_q. n is r
  times the curve's cofactor, and that has no factor in common with the cofactor of the twist.

On these curves the points P with r P = 0 are those of the group. On curves where others have the
order r too, endomorphisms decide nothing (`weil_pairing.py`).

The second is due to Scott (A note on group membership tests, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.primes import Prime
from gpu_executor.primes.glv import find_cube_root_of_unity

Coefficient = Any
"""An integer, or a tuple of integers over an extension field."""


@dataclass(frozen=True)
class Endomorphism:
    """(x, y) -> (x_factor x, y_factor y), of the conjugates of x and y if `conjugates` is set."""

    x_factor: Coefficient
    y_factor: Coefficient
    conjugates: bool
    eigenvalue: int
    """What it multiplies the points of the group of prime order by: a small integer."""

    def map_coordinates(self, x: Any, y: Any) -> tuple[Any, Any]:
        """The coordinates of the images, given arrays of the curve's field."""
        if self.conjugates:
            x, y = x.conjugate(), y.conjugate()
        return x * self.x_factor, y * self.y_factor


def list_cube_root_maps(prime: Prime, eigenvalue: int) -> list[Endomorphism]:
    """The maps (beta x, y) for both cube roots of unity; one of them has the eigenvalue."""
    p = prime.modulus
    root = find_cube_root_of_unity(p)
    assert root is not None
    return [Endomorphism(beta, 1, False, eigenvalue) for beta in (root, root * root % p)]


def make_frobenius_map(
    field: CoordinateField, b: int, twisted_b: Coefficient, eigenvalue: int
) -> Endomorphism:
    """The Frobenius map of y^2 = x^3 + b on its twist y^2 = x^3 + twisted_b over the quadratic
    extension: the factors are (b / twisted_b)^((p - 1) / 3) and (b / twisted_b)^((p - 1) / 2)."""
    p = field.modulus
    ratio = field.invert(field.make(twisted_b)) * b % p
    x_factor, y_factor = (field.power(ratio, (p - 1) // root) for root in (3, 2))
    return Endomorphism(field.to_integers(x_factor), field.to_integers(y_factor), True, eigenvalue)
