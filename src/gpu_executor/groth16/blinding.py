"""The last additions of a proof, on the host: blinding by two random scalars.

    pi_a = A + alpha + r delta
    pi_b = B + beta + s delta                         (G2)
    pi_c = C + H + s pi_a + r (B + beta + s delta) - r s delta

A, B, C and H are the MSMs of the prover. What does not depend on them (`Blinding`) is computed while
the device computes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import ProofSums
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity


@dataclass(frozen=True)
class KeyHeader:
    """The points of a key that blind its proofs, affine."""

    curve: ProofCurve
    alpha1: Point
    beta1: Point
    beta2: Point
    delta1: Point
    delta2: Point
    glv: Glv | None
    """How scalars of these points are halved; None if the points may be outside the group."""


def draw_blinding(curve: ProofCurve) -> tuple[int, int]:
    """r and s, uniform, from the system's source of randomness."""
    return secrets.randbelow(curve.r), secrets.randbelow(curve.r)


def parse_blinding(curve: ProofCurve, blinding: Any) -> tuple[int, int]:
    """r and s of the caller, for tests."""
    is_pair = isinstance(blinding, tuple | list) and len(blinding) == 2
    if not is_pair or any(type(each) is not int for each in blinding):
        raise ArgumentTypeError("blinding= is a pair of integers (r, s), for tests")
    r, s = blinding
    if not all(0 <= each < curve.r for each in (r, s)):
        raise ArgumentValueError("blinding=: r and s must be in 0 .. order - 1")
    return r, s


class Blinding:
    """The random scalars of one proof, and their multiples of delta. It is never shown."""

    def __init__(self, header: KeyHeader, scalars: tuple[int, int]) -> None:
        self._header = header
        self._r, self._s = r, s = scalars
        curve, glv = header.curve, header.glv
        self._a, self._b1, self._c = (
            sum_multiples(curve.g1, (header.delta1,), (scalar,), glv)
            for scalar in (r, s, -r * s % curve.r)
        )
        self._b2 = sum_multiples(curve.g2, (header.delta2,), (s,), None)

    def finish(self, sums: ProofSums) -> Proof:
        """The proof of the MSMs."""
        header = self._header
        curve = header.curve
        g1, g2 = get_arithmetic(curve.g1.key), get_arithmetic(curve.g2.key)
        pi_a, b, c = g1.sum_rows(
            [
                (sums.a, header.alpha1, self._a),
                (sums.b1, header.beta1, self._b1),
                (sums.c, sums.h, self._c),
            ]
        )
        (pi_b,) = g2.sum_rows([(sums.b2, header.beta2, self._b2)])
        blinded = sum_multiples(curve.g1, (pi_a, b), (self._s, self._r), header.glv)
        (pi_c,) = g1.add([c], [blinded])
        return Proof(curve, pi_a, pi_b, pi_c)


def sum_multiples(
    group: Curve, points: Sequence[Point], scalars: Sequence[int], glv: Glv | None
) -> Point:
    """The sum of k P for a few points. With `glv`, scalars are halved, which takes half of the
    doublings; the points are in the group of prime order then."""
    arithmetic = get_arithmetic(group.key)
    own, factors = list(points), list(scalars)
    if glv is not None:
        beta = find_cube_root_of_unity(group.key.prime.modulus)
        assert beta is not None
        modulus = group.key.prime.modulus
        images = [None if each is None else (each[0] * beta % modulus, each[1]) for each in own]
        halves = [glv.halve(each) for each in factors]
        own += images
        factors = [first for first, _ in halves] + [second for _, second in halves]
        signs = [each < 0 for each in factors]
        opposites = arithmetic.negate(own)
        own = [two if sign else one for one, two, sign in zip(own, opposites, signs, strict=True)]
        factors = [abs(each) for each in factors]
    used = [(point, factor) for point, factor in zip(own, factors, strict=True) if point and factor]
    tables = arithmetic.make_odd_multiples([point for point, _ in used])
    ladder = arithmetic.climb(tables, [factor for _, factor in used])
    return arithmetic.to_affine([ladder])[0]
