"""Powers of tau: .ptau files, the ceremony that keys of circuits are made from.

Points are affine and in Montgomery form, and sections are views of the file, as those of keys are.
`snarkjs powersoftau prepare phase2` adds the Lagrange bases of every domain up to the power of the
ceremony: those of tau in G1 up to twice that domain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentValueError
from gpu_executor.groth16.proof_curve import CURVE_NAMES, ProofCurve, get_proof_curve
from gpu_executor.groth16.sections import PathLike, Points, SectionFile, SectionReader

MAGIC = b"ptau"
VERSION = 1
HEADER, TAU_G1, TAU_G2, ALPHA_TAU_G1, BETA_TAU_G1, BETA_G2, CONTRIBUTIONS = range(1, 8)
LAGRANGE = 10
"""What is added to the id of a section of powers for that of their Lagrange bases."""
POWERS = (TAU_G1, TAU_G2, ALPHA_TAU_G1, BETA_TAU_G1)
NAMES = {
    HEADER: "header",
    TAU_G1: "tauG1",
    TAU_G2: "tauG2",
    ALPHA_TAU_G1: "alphaTauG1",
    BETA_TAU_G1: "betaTauG1",
    BETA_G2: "betaG2",
    CONTRIBUTIONS: "contributions",
    TAU_G1 + LAGRANGE: "Lagrange bases of tauG1",
    TAU_G2 + LAGRANGE: "Lagrange bases of tauG2",
    ALPHA_TAU_G1 + LAGRANGE: "Lagrange bases of alphaTauG1",
    BETA_TAU_G1 + LAGRANGE: "Lagrange bases of betaTauG1",
}
MAX_POWER = 32
"""The roots of unity of the larger scalar field have at most this logarithm of their order."""


@dataclass(frozen=True, eq=False)
class PtauFile:
    """A ceremony, mapped into memory. Arrays are read-only views, whose memory may be unaligned."""

    file: SectionFile
    curve: ProofCurve
    power: int
    """The logarithm of the largest domain of a circuit."""
    ceremony_power: int
    """That of the ceremony which the file was cut from."""
    tau_g1: Points
    """The powers 0 to 2^(power + 1) - 2 of tau in G1."""
    tau_g2: Points
    """The powers 0 to 2^power - 1 of tau in G2."""
    alpha_tau_g1: Points
    """alpha times each of the powers 0 to 2^power - 1 of tau, in G1."""
    beta_tau_g1: Points
    """beta times each of the powers 0 to 2^power - 1 of tau, in G1."""
    beta_g2: Points
    """beta in G2, one point."""
    prepared: bool
    """Whether the file has Lagrange bases."""

    @classmethod
    def open(cls, path: PathLike) -> PtauFile:
        """Open a ceremony, and check its header and the lengths of its sections.

        Args:
            path (str | Path): The file.
        """
        file = SectionFile.open(path, MAGIC, (VERSION,), NAMES)
        curve, power, ceremony_power = _read_header(file)
        why = f"the header's power, {power},"
        views = {
            section: file.view_points(
                section, _get_group(curve, section), _count_powers(section, power), why
            )
            for section in POWERS
        }
        prepared = any(section + LAGRANGE in file for section in POWERS)
        if prepared:
            for section in POWERS:
                _view_bases(file, curve, section, power)
        return cls(
            file=file,
            curve=curve,
            power=power,
            ceremony_power=ceremony_power,
            tau_g1=views[TAU_G1],
            tau_g2=views[TAU_G2],
            alpha_tau_g1=views[ALPHA_TAU_G1],
            beta_tau_g1=views[BETA_TAU_G1],
            beta_g2=file.view_points(BETA_G2, curve.g2, 1, "one point")[0],
            prepared=prepared,
        )

    def get_lagrange_tau_g1(self, log_domain: int) -> Points:
        """The Lagrange basis of a domain at tau in G1, up to domains of 2^(power + 1).

        Args:
            log_domain (int): The logarithm of the domain's size.
        """
        return self._get_basis(TAU_G1, log_domain)

    def get_lagrange_tau_g2(self, log_domain: int) -> Points:
        """The Lagrange basis of a domain at tau in G2.

        Args:
            log_domain (int): The logarithm of the domain's size.
        """
        return self._get_basis(TAU_G2, log_domain)

    def get_lagrange_alpha_tau_g1(self, log_domain: int) -> Points:
        """alpha times the Lagrange basis of a domain at tau, in G1.

        Args:
            log_domain (int): The logarithm of the domain's size.
        """
        return self._get_basis(ALPHA_TAU_G1, log_domain)

    def get_lagrange_beta_tau_g1(self, log_domain: int) -> Points:
        """beta times the Lagrange basis of a domain at tau, in G1.

        Args:
            log_domain (int): The logarithm of the domain's size.
        """
        return self._get_basis(BETA_TAU_G1, log_domain)

    def check_coordinates(self) -> None:
        """Raise `ProofFileError` for the first coordinate of a section that is not below q. Whether
        the points are on the curve is not checked."""
        views = {
            TAU_G1: self.tau_g1,
            TAU_G2: self.tau_g2,
            ALPHA_TAU_G1: self.alpha_tau_g1,
            BETA_TAU_G1: self.beta_tau_g1,
            BETA_G2: self.beta_g2[np.newaxis],
        }
        if self.prepared:
            for section in POWERS:
                views[section + LAGRANGE] = _view_bases(self.file, self.curve, section, self.power)
        for section, points in views.items():
            self.file.check_coordinates(section, points, self.curve.q)

    def _get_basis(self, section: int, log_domain: int) -> Points:
        if not self.prepared:
            self.file.fail(
                "the ceremony has no Lagrange bases; `snarkjs powersoftau prepare phase2` adds "
                "them",
                section + LAGRANGE,
            )
        largest = _get_largest_basis(section, self.power)
        if not 0 <= log_domain <= largest:
            raise ArgumentValueError(
                f"log_domain is {log_domain}; {self.file.path} has the Lagrange bases of 0 to "
                f"{largest}"
            )
        bases = _view_bases(self.file, self.curve, section, self.power)
        return bases[(1 << log_domain) - 1 : (2 << log_domain) - 1]


def _read_header(file: SectionFile) -> tuple[ProofCurve, int, int]:
    """The curve, the power and the ceremony's power."""
    reader = SectionReader(file, HEADER)
    start = reader.offset
    q = reader.read_modulus("the modulus of coordinates")
    size = reader.offset - start - 4
    curves = map(get_proof_curve, CURVE_NAMES)
    curve = next((each for each in curves if (each.q, each.coordinate_bytes) == (q, size)), None)
    if curve is None:
        reader.fail(
            f"the modulus is {q:#x} in {size} bytes; it must be that of the coordinates of bn128 "
            "(32 bytes) or bls12381 (48 bytes)",
            size,
        )
    power = reader.read_u32("the power")
    ceremony_power = reader.read_u32("the ceremony's power")
    reader.finish()
    if power > MAX_POWER:
        reader.fail(f"the power is {power:,}; it is at most {MAX_POWER}", 8)
    if power > ceremony_power:
        reader.fail(f"the power is {power}, and the ceremony's only {ceremony_power:,}", 8)
    return curve, power, ceremony_power


def _get_group(curve: ProofCurve, section: int) -> Curve:
    return curve.g2 if section == TAU_G2 else curve.g1


def _count_powers(section: int, power: int) -> int:
    return (2 << power) - 1 if section == TAU_G1 else 1 << power


def _get_largest_basis(section: int, power: int) -> int:
    return power + 1 if section == TAU_G1 else power


def _view_bases(file: SectionFile, curve: ProofCurve, section: int, power: int) -> Points:
    """The bases of the domains of 1, 2, 4 and so on, one after the other."""
    count = (2 << _get_largest_basis(section, power)) - 1
    group = _get_group(curve, section)
    return file.view_points(section + LAGRANGE, group, count, f"the header's power, {power},")
