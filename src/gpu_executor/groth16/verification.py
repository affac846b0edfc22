"""Verification of proofs, on the host.

A proof (A, B, C) of public values p_1, p_2, ... is right if
e(A, B) = e(alpha, beta) e(I, gamma) e(C, delta), with I = IC_0 + p_1 IC_1 + p_2 IC_2 + ...
The key's side of the pairings is prepared once, so a verification takes three Miller loops and a
final exponentiation.

Many proofs are checked at once: random weights of 128 bits combine their equations to one, which
holds for a wrong proof with probability 2^-128 and takes one Miller loop a proof and three more. If
it fails, halves are checked until every wrong proof is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.groth16.pairing import PreparedG2, get_engine
from gpu_executor.groth16.proof import Proof, PublicValues, parse_public
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.kzg.pairing import draw_weights
from gpu_executor.msm import host
from gpu_executor.ops.host_points import Point, get_arithmetic

MAX_PROOFS = 1024
"""Proofs that are checked together; a larger batch is cut. The lines of a point of G2 take about
30 KB of memory."""

MAX_SINGLES = 8
"""So many proofs, of which one is wrong, are checked one by one, not by halves: 32 wrong proofs of
BN254 take 1.05 s instead of 1.71 s, and 32 with one wrong among them 0.48 s both ways
(Neoverse-N1)."""


def verify(vk: VerificationKey, public: PublicValues, proof: Proof) -> bool:
    """Whether a proof is right for public values.

    It is not if a value is negative or not below r, if there are more or fewer values than the
    key has, if a point is not in its group or has coordinates that are not below q, if pi_b is the
    point at infinity (snarkjs refuses it, too), or if the key is of another curve.

    Args:
        vk (VerificationKey): The key of the circuit.
        public (sequence of int): The public values.
        proof (Proof): The proof.
    """
    return verify_batch(vk, [public], [proof])[0]


def verify_batch(
    vk: VerificationKey,
    publics: Sequence[PublicValues] | npt.NDArray[np.integer[Any]],
    proofs: Sequence[Proof],
) -> list[bool]:
    """Whether each of many proofs of one circuit is right; quicker than one by one if most are.

    Args:
        vk (VerificationKey): The key of the circuit.
        publics (sequence): The public values of each proof, as `verify` takes them.
        proofs (sequence of Proof): The proofs, as many as there are items in `publics`.
    """
    _check_types(vk, publics, proofs)
    vk.check()
    values = [parse_public(each) for each in publics]
    found: list[bool] = []
    for at in range(0, len(proofs), MAX_PROOFS):
        chunk = slice(at, at + MAX_PROOFS)
        equations = _make_equations(vk, values[chunk], proofs[chunk])
        own = [each for each in equations if each is not None]
        results = iter(_search(vk, own, known_wrong=False))
        found += [each is not None and next(results) for each in equations]
    return found


def _check_types(vk: Any, publics: Any, proofs: Any) -> None:
    if not isinstance(vk, VerificationKey):
        raise ArgumentTypeError(f"vk must be a VerificationKey, not {type(vk).__name__}")
    for name, found in (("publics", publics), ("proofs", proofs)):
        if not isinstance(found, list | tuple | np.ndarray):
            raise ArgumentTypeError(f"{name} must be a list, not {type(found).__name__}")
    if len(publics) != len(proofs):
        raise ArgumentShapeError(
            f"publics and proofs must be as many, not {len(publics)} and {len(proofs)}"
        )
    for index, proof in enumerate(proofs):
        if not isinstance(proof, Proof):
            raise ArgumentTypeError(f"proof {index} must be a Proof, not {type(proof).__name__}")


# --- the equation ---


@dataclass(frozen=True)
class _Equation:
    """The equation of one proof, whose points are in their groups."""

    factors: list[int]
    """1 and the public values: the factors of the key's points IC."""
    a: Point
    b: PreparedG2
    c: Point
    weight: int


def _make_equations(
    vk: VerificationKey, values: Sequence[list[int]], proofs: Sequence[Proof]
) -> list[_Equation | None]:
    """The equations of proofs; None of those that are wrong whatever their pairings are."""
    engine, r = get_engine(vk.curve), vk.curve.r
    usable = [
        proof.curve == vk.curve
        and len(own) == vk.n_public
        and all(0 <= value < r for value in own)
        and proof.pi_b is not None
        and engine.is_in_g1(proof.pi_a)
        and engine.is_in_g1(proof.pi_c)
        for own, proof in zip(values, proofs, strict=True)
    ]
    kept = [proof for proof, use in zip(proofs, usable, strict=True) if use]
    prepared = iter(engine.prepare_all([proof.pi_b for proof in kept]))
    weights = draw_weights(len(proofs))
    equations: list[_Equation | None] = []
    for own, proof, use, weight in zip(values, proofs, usable, weights, strict=True):
        b = next(prepared) if use else None
        equations.append(
            None if b is None else _Equation([1, *own], proof.pi_a, b, proof.pi_c, weight)
        )
    return equations


def _search(vk: VerificationKey, equations: Sequence[_Equation], known_wrong: bool) -> list[bool]:
    """Which equations hold; `known_wrong` says that at least one does not."""
    if not known_wrong and _hold(vk, equations):
        return [True] * len(equations)
    if len(equations) == 1:
        return [False]
    if len(equations) <= MAX_SINGLES:
        return [_hold(vk, [each]) for each in equations]
    half = len(equations) // 2
    left = _search(vk, equations[:half], known_wrong=False)
    # All of them together failed: if the left ones hold, a right one is wrong.
    return left + _search(vk, equations[half:], known_wrong=all(left))


def _hold(vk: VerificationKey, equations: Sequence[_Equation]) -> bool:
    """Whether all equations hold, or one."""
    if not equations:
        return True
    engine, r = get_engine(vk.curve), vk.curve.r
    g1 = vk.curve.g1
    arithmetic = get_arithmetic(g1.key)
    if len(equations) == 1:
        (one,) = equations
        combined, c, firsts = one.factors, one.c, [one.a]
    else:
        weights = [each.weight for each in equations]
        columns = zip(*(each.factors for each in equations), strict=True)
        combined = [
            sum(weight * factor for weight, factor in zip(weights, column, strict=True)) % r
            for column in columns
        ]
        c = _sum_multiples(g1, [each.c for each in equations], weights)
        firsts = arithmetic.multiply([each.a for each in equations], weights)
    inputs = _sum_multiples(g1, vk.ic, combined)
    inputs, c = arithmetic.negate([inputs, c])
    pairs = [(a, each.b) for a, each in zip(firsts, equations, strict=True)]
    pairs += [(inputs, vk.prepared_gamma2), (c, vk.prepared_delta2)]
    if len(equations) == 1:
        return bool(engine.pair(pairs) == vk.alpha_beta)
    # combined[0] is the sum of the weights.
    alphas = _sum_multiples(g1, arithmetic.negate([vk.alpha1]), combined[:1])
    return bool(engine.pair([*pairs, (alphas, vk.prepared_beta2)]) == engine.one)


def _sum_multiples(group: Curve, points: Sequence[Point], scalars: Sequence[int]) -> Point:
    return host.compute(get_arithmetic(group.key), points, scalars)
