"""The two pairing-friendly curves that circom and snarkjs prove with.

Everything that differs between them by number is here: groups, fields, the names of files and the
root of unity of snarkjs's transforms.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from gpu_executor.curves import Curve
from gpu_executor.curves.parameters import get_named
from gpu_executor.fields import BLS12_381_FR, BN254_FR, Field
from gpu_executor.ops.host_points import Point, get_arithmetic

ROOT_BASE = 5
"""The smallest non-residue of both scalar fields. A power of it is the root of unity of snarkjs's
transforms."""


@dataclass(frozen=True)
class ProofCurve:
    """A pair of groups with a pairing, as files of proofs name it."""

    name: str
    """snarkjs's name, which JSON files have."""
    g1: Curve
    g2: Curve
    scalar_field: Field
    """The field of the witness."""

    @property
    def r(self) -> int:
        """The order of the groups: the modulus of the scalar field."""
        return self.scalar_field.modulus

    @property
    def q(self) -> int:
        """The modulus of the coordinates."""
        return self.g1.key.prime.modulus

    @property
    def coordinate_bytes(self) -> int:
        """Bytes of a coordinate of G1 in files (n8q)."""
        return self.g1.key.prime.element_bytes

    @property
    def scalar_bytes(self) -> int:
        """Bytes of a scalar in files (n8r)."""
        return self.scalar_field.prime.element_bytes

    def root_of_unity(self, log_length: int) -> int:
        """snarkjs's root of unity of order 2^log_length."""
        return pow(ROOT_BASE, (self.r - 1) >> log_length, self.r)


@functools.cache
def get_proof_curve(name: str) -> ProofCurve:
    """The curve with one of snarkjs's names: bn128 or bls12381."""
    if name == "bn128":
        return ProofCurve(name, get_named("BN254_G1"), get_named("BN254_G2"), BN254_FR)
    if name == "bls12381":
        return ProofCurve(name, get_named("BLS12_381_G1"), get_named("BLS12_381_G2"), BLS12_381_FR)
    raise KeyError(name)


CURVE_NAMES = ("bn128", "bls12381")


def find_by_scalar_modulus(r: int) -> ProofCurve | None:
    """The curve whose scalar field has the modulus, or None."""
    curves = (get_proof_curve(name) for name in CURVE_NAMES)
    return next((curve for curve in curves if curve.r == r), None)


def get_generator(group: Curve) -> Point:
    """The generator of a group as Python integers."""
    layout = group.get_layout("affine")
    words = group.generator.affine().words().reshape((1, *layout.element_shape))
    return get_arithmetic(group.key).load(words)[0]
