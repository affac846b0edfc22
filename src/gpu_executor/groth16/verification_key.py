"""`VerificationKey`: what a verifier knows of a circuit, in snarkjs's verification_key.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpu_executor.curves import Curve
from gpu_executor.errors import ProofFileError
from gpu_executor.groth16.pairing import PairingEngine, PreparedG2, Target, get_engine, is_on_curve
from gpu_executor.groth16.point_json import (
    PROTOCOL,
    describe,
    format_point,
    get_value,
    load_object,
    parse_list,
    parse_point,
    write_json,
)
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.zkey_file import ZkeyFile
from gpu_executor.ops.host_points import Point, get_arithmetic

WHAT = "verification key"


@dataclass(frozen=True)
class VerificationKey:
    """A verification key of Groth16."""

    curve: ProofCurve
    alpha1: Point
    """A point of G1, affine."""
    beta2: Point
    """A point of G2."""
    gamma2: Point
    """A point of G2."""
    delta2: Point
    """A point of G2."""
    ic: Sequence[Point]
    """Points of G1: one, and one for each public value."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ic", tuple(self.ic))

    def __reduce__(self) -> tuple[object, ...]:
        # Without what was computed: points of arkworks cannot be pickled.
        points = self.alpha1, self.beta2, self.gamma2, self.delta2, self.ic
        return type(self), (self.curve, *points)

    @property
    def n_public(self) -> int:
        """The number of public values."""
        return len(self.ic) - 1

    # --- what every verification needs, computed once ---

    @cached_property
    def alpha_beta(self) -> Target:
        """The pairing of alpha1 and beta2."""
        return self._engine.pair([(self.alpha1, self.prepared_beta2)])

    @cached_property
    def prepared_beta2(self) -> PreparedG2:
        """beta2, prepared for pairings."""
        return self._prepare("vk_beta_2", self.beta2)

    @cached_property
    def prepared_gamma2(self) -> PreparedG2:
        """gamma2, prepared for pairings."""
        return self._prepare("vk_gamma_2", self.gamma2)

    @cached_property
    def prepared_delta2(self) -> PreparedG2:
        """delta2, prepared for pairings."""
        return self._prepare("vk_delta_2", self.delta2)

    @property
    def _engine(self) -> PairingEngine:
        return get_engine(self.curve)

    def _prepare(self, name: str, point: Point) -> PreparedG2:
        prepared = None if point is None else self._engine.prepare(point)
        if prepared is None:
            raise ProofFileError(f"{WHAT}: {name}: {_describe_fault(self.curve.g2, point)}")
        return prepared

    def check(self) -> None:
        """Raise `ProofFileError` unless all points are in their groups. The point at infinity is
        refused except in `ic`: with it, false statements could be proved. The points are checked
        once, when `verify` first needs them at the latest."""
        _ = self._checked

    @cached_property
    def _checked(self) -> bool:
        points = {"vk_alpha_1": self.alpha1}
        points |= {f"IC: point {index}": point for index, point in enumerate(self.ic)}
        for name, point in points.items():
            if not self._engine.is_in_g1(point) or (point is None and name == "vk_alpha_1"):
                raise ProofFileError(f"{WHAT}: {name}: {_describe_fault(self.curve.g1, point)}")
        _ = self.prepared_beta2, self.prepared_gamma2, self.prepared_delta2
        return True

    # --- files ---

    @staticmethod
    def from_zkey(zkey: ZkeyFile) -> VerificationKey:
        """The key for the proofs that a proving key makes. `check` checks its points."""
        g1, g2 = (get_arithmetic(group.key) for group in (zkey.curve.g1, zkey.curve.g2))
        (alpha1,), (beta2,) = g1.load(zkey.alpha1), g2.load(zkey.beta2)
        (gamma2,), (delta2,) = g2.load(zkey.gamma2), g2.load(zkey.delta2)
        return VerificationKey(zkey.curve, alpha1, beta2, gamma2, delta2, g1.load(zkey.ic))

    def to_json(self) -> str:
        """The text of snarkjs's verification_key.json."""
        g1, g2 = self.curve.g1, self.curve.g2
        coefficients = self._engine.get_coefficients(self.alpha_beta)
        return write_json(
            {
                "protocol": PROTOCOL,
                "curve": self.curve.name,
                "nPublic": self.n_public,
                "vk_alpha_1": format_point(self.alpha1, g1),
                "vk_beta_2": format_point(self.beta2, g2),
                "vk_gamma_2": format_point(self.gamma2, g2),
                "vk_delta_2": format_point(self.delta2, g2),
                "vk_alphabeta_12": [
                    [[str(each) for each in pair] for pair in half] for half in coefficients
                ],
                "IC": [format_point(point, g1) for point in self.ic],
            }
        )

    @staticmethod
    def from_json(text: str) -> VerificationKey:
        """The key of a verification_key.json; `ProofFileError` if the text is no key of Groth16 or
        a point is not in its group. `vk_alphabeta_12` follows from other values and is not read.
        """
        content, curve = load_object(text, WHAT)

        def parse(name: str, group: Curve) -> Point:
            return parse_point(get_value(content, name, WHAT), group, f"{WHAT}: {name}")

        n_public = get_value(content, "nPublic", WHAT)
        if isinstance(n_public, bool) or not isinstance(n_public, int) or n_public < 0:
            raise ProofFileError(
                f"{WHAT}: nPublic: must be an integer of at least 0, not {describe(n_public)}"
            )
        points = parse_list(get_value(content, "IC", WHAT), n_public + 1, f"{WHAT}: IC")
        key = VerificationKey(
            curve,
            parse("vk_alpha_1", curve.g1),
            parse("vk_beta_2", curve.g2),
            parse("vk_gamma_2", curve.g2),
            parse("vk_delta_2", curve.g2),
            tuple(
                parse_point(each, curve.g1, f"{WHAT}: IC: point {index}")
                for index, each in enumerate(points)
            ),
        )
        key.check()
        return key


def _describe_fault(group: Curve, point: Point) -> str:
    """Why a point cannot be in a key."""
    if point is None:
        return "it is the point at infinity"
    if not is_on_curve(group, point):
        return "the coordinates are not those of a point on the curve"
    return "the point is not in the group of order r"
