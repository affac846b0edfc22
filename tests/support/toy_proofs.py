"""Keys of Groth16 whose secrets are known, and proofs made with the secrets instead of a circuit.

Every point is a known multiple of a generator. A proof (a G, b H, c G) of public values is right if
a b = alpha beta + (ic_0 + sum of value_i ic_i) gamma + c delta modulo r, so any a and b have a c.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.curves import Curve
from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.proof_curve import ProofCurve, get_proof_curve
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.ops.host_points import Point, get_arithmetic


def multiply_generator(group: Curve, scalar: int) -> Point:
    arithmetic = get_arithmetic(group.key)
    generator = arithmetic.load(group.generator.words())
    return arithmetic.multiply(generator, [scalar % group.key.order])[0]


@dataclass(frozen=True)
class ToySetup:
    """The secrets of a key."""

    curve: ProofCurve
    alpha: int
    beta: int
    gamma: int
    delta: int
    ic: tuple[int, ...]

    @functools.cached_property
    def key(self) -> VerificationKey:
        g1, g2 = self.curve.g1, self.curve.g2
        return VerificationKey(
            self.curve,
            multiply_generator(g1, self.alpha),
            multiply_generator(g2, self.beta),
            multiply_generator(g2, self.gamma),
            multiply_generator(g2, self.delta),
            tuple(multiply_generator(g1, each) for each in self.ic),
        )

    def prove(self, public: Sequence[int], a: int, b: int) -> Proof:
        """A right proof with pi_a = a G and pi_b = b H."""
        return Proof(
            self.curve,
            multiply_generator(self.curve.g1, a),
            multiply_generator(self.curve.g2, b),
            multiply_generator(self.curve.g1, self.find_c(public, a, b)),
        )

    def find_c(self, public: Sequence[int], a: int, b: int) -> int:
        r = self.curve.r
        combined = sum(x * y for x, y in zip(self.ic, [1, *public], strict=True))
        rest = a * b - self.alpha * self.beta - combined * self.gamma
        return rest * pow(self.delta, -1, r) % r


@functools.cache
def make_toy_setup(name: str, n_public: int) -> ToySetup:
    """The setup of a curve for so many public values; always the same."""
    curve, numbers = get_proof_curve(name), random.Random(n_public)
    alpha, beta, gamma, delta, *ic = (numbers.randrange(1, curve.r) for _ in range(n_public + 5))
    return ToySetup(curve, alpha, beta, gamma, delta, tuple(ic))
