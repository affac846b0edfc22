"""Blinding: the two random scalars that hide a witness in its proof.

    pi_a = A + alpha + r delta
    b1   = B + beta + s delta                         (G1)
    pi_b = B + beta + s delta                         (G2)
    pi_c = C - r s delta + H + s pi_a + r b1

A, B, C and H are MSMs of the points of a key. Their last terms are multiples of a few points of its
header, so they are four more points of each MSM (`extend_points`), with the scalars of
`Blinding.list_scalars`. The host adds what is left for pi_c.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.zkey_file import ZkeyFile
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity

EXTRA = 4
"""Scalars behind those of a witness: 1, r, s and -r s."""
_EXTRA_POINTS = {
    "a": ("alpha1", "delta1", None, None),
    "b1": ("beta1", None, "delta1", None),
    "b2": ("beta2", None, "delta2", None),
    "c": (None, None, None, "delta1"),
}
"""The point of each extra scalar, by section; None for the point at infinity."""


def extend_points(zkey: ZkeyFile, section: str) -> npt.NDArray[Any]:
    """The points of the extra scalars in the MSM of a section: words of affine points."""
    own = zkey.b2 if section == "b2" else zkey.a
    words = np.zeros((EXTRA, *own.shape[1:]), own.dtype)
    for number, name in enumerate(_EXTRA_POINTS[section]):
        if name is not None:
            words[number] = getattr(zkey, name)
    return words


@dataclass(frozen=True)
class ProofSums:
    """The MSMs of a proof with their extra terms: the first terms of the equations above. Those
    that no proof has are secrets: H alone has no blinding."""

    pi_a: Point
    c: Point = field(repr=False)
    b1: Point = field(repr=False)
    h: Point = field(repr=False)
    pi_b: Point


class Blinding:
    """The random scalars of one proof: a secret, which nothing shows."""

    def __init__(self, curve: ProofCurve, scalars: tuple[int, int] | None = None) -> None:
        """r and s are those of the caller, or uniform, from the system's source of randomness."""
        self._curve = curve
        self._r, self._s = scalars or (secrets.randbelow(curve.r), secrets.randbelow(curve.r))

    def list_scalars(self) -> npt.NDArray[np.uint32]:
        """The extra scalars, as a witness has its values: (4, 8) words."""
        r, s = self._r, self._s
        joined = b"".join(each.to_bytes(32, "little") for each in (1, r, s, -r * s % self._curve.r))
        return np.frombuffer(joined, np.uint32).reshape(EXTRA, -1)

    def finish(self, sums: ProofSums, glv: Glv | None) -> Proof:
        """The proof of the MSMs. With `glv`, scalars are halved."""
        g1 = get_arithmetic(self._curve.g1.key)
        factors = self._s, self._r
        blinded = sum_multiples(self._curve.g1, (sums.pi_a, sums.b1), factors, glv)
        (pi_c,) = g1.sum_rows([(sums.c, sums.h, blinded)])
        return Proof(self._curve, sums.pi_a, sums.pi_b, pi_c)


def parse_blinding(curve: ProofCurve, blinding: Any) -> tuple[int, int] | None:
    """r and s of the caller, for tests; None for None."""
    if blinding is None:
        return None
    is_pair = isinstance(blinding, tuple | list) and len(blinding) == 2
    if not is_pair or any(type(each) is not int for each in blinding):
        raise ArgumentTypeError("blinding= is a pair of integers (r, s), for tests")
    r, s = blinding
    if not all(0 <= each < curve.r for each in (r, s)):
        raise ArgumentValueError("blinding=: r and s must be in 0 .. order - 1")
    return r, s


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
