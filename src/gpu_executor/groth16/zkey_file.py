"""Proving keys of Groth16: .zkey files, as snarkjs writes them.

Points are affine and in Montgomery form, which is the layout of arrays of points: sections are
views of the file. `ZkeyFile.open` checks the header and the length of every section, which takes
no time. The contents of sections are checked on the device that loads them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.groth16.proof_curve import ProofCurve, find_by_scalar_modulus
from gpu_executor.groth16.sections import (
    PathLike,
    Points,
    SectionFile,
    SectionReader,
    find_not_below,
    write_sections,
)

Coefficients: TypeAlias = npt.NDArray[np.void]

MAGIC = b"zkey"
VERSION = 1
GROTH16 = 1
OTHER_PROTOCOLS = {2: "PLONK", 10: "FFLONK"}
PROTOCOL, HEADER, IC, COEFFICIENTS, A, B1, B2, C, H, CONTRIBUTIONS = range(1, 11)
NAMES = {
    PROTOCOL: "protocol",
    HEADER: "header",
    IC: "IC",
    COEFFICIENTS: "coefficients",
    A: "A",
    B1: "B1",
    B2: "B2",
    C: "C",
    H: "H",
    CONTRIBUTIONS: "contributions",
}
MAX_LOG_DOMAIN = {"bn128": 27, "bls12381": 31}
"""snarkjs takes another shift of the coset at domains that are twice as large."""
COEFFICIENT = np.dtype(
    [("matrix", "<u4"), ("row", "<u4"), ("signal", "<u4"), ("value", "<u4", (8,))]
)
"""An entry of the matrices A (0) and B (1), as the file has it, in 44 bytes. The value is
multiplied by R^2 = 2^512, modulo r."""
HEADER_POINTS = ("alpha1", "beta1", "beta2", "gamma2", "delta1", "delta2")


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyArrays:
    """The arrays of a proving key. Points are words of affine points in Montgomery form."""

    curve: ProofCurve
    alpha1: Points
    """The points whose names end with 1 are in G1, those with 2 in G2."""
    beta1: Points
    beta2: Points
    gamma2: Points
    delta1: Points
    delta2: Points
    ic: Points
    """The points of the public signals in G1, for the verifier; that of the constant 1 first."""
    a: Points
    """The points of A in G1, one for each signal."""
    b1: Points
    """The points of B in G1, one for each signal."""
    b2: Points
    """The points of B in G2, one for each signal."""
    c: Points
    """The points of the private signals in G1."""
    h: Points
    """The points of the quotient in G1, one for each row of the domain."""
    coefficients: Coefficients
    """The entries of A and B, of dtype `COEFFICIENT`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ZkeyFile(KeyArrays):
    """A proving key, mapped into memory. Arrays are read-only views, whose memory may be
    unaligned."""

    file: SectionFile
    n_vars: int
    """Signals of the circuit, the constant 1 included."""
    n_public: int
    """Public signals, without the constant."""
    domain_size: int
    """A power of two above the number of constraints and public signals."""

    @property
    def log_domain(self) -> int:
        """The logarithm of the domain's size to base 2."""
        return self.domain_size.bit_length() - 1

    @classmethod
    def open(cls, path: PathLike) -> ZkeyFile:
        """Open a key, and check its header and the lengths of its sections.

        Args:
            path (str | Path): The file.
        """
        file = SectionFile.open(path, MAGIC, (VERSION,), NAMES)
        _check_protocol(file)
        reader = SectionReader(file, HEADER)
        curve = _read_curve(reader)
        n_vars, n_public, domain = _read_sizes(reader, curve)
        points = _view_header_points(reader, curve)
        of_vars = f"the header's number of signals, {n_vars:,},"
        of_public = f"the header's number of public signals, {n_public:,},"
        of_both = f"the header's number of private signals, {n_vars - n_public - 1:,},"
        of_domain = f"the header's domain, {domain:,},"
        return cls(
            file=file,
            curve=curve,
            n_vars=n_vars,
            n_public=n_public,
            domain_size=domain,
            **points,
            ic=file.view_points(IC, curve.g1, n_public + 1, of_public),
            a=file.view_points(A, curve.g1, n_vars, of_vars),
            b1=file.view_points(B1, curve.g1, n_vars, of_vars),
            b2=file.view_points(B2, curve.g2, n_vars, of_vars),
            c=file.view_points(C, curve.g1, n_vars - n_public - 1, of_both),
            h=file.view_points(H, curve.g1, domain, of_domain),
            coefficients=_view_coefficients(file),
        )

    def refuse_coefficient(self, index: int, part: int, limits: Sequence[int]) -> NoReturn:
        """Raise `ProofFileError` for an entry of the matrices: its matrix, its row or its signal is
        not below the limit, or its value is not below r."""
        field = COEFFICIENT.names[part]  # type: ignore[index]
        reason = f"the value is not below the order of {self.curve.name}"
        if part < len(limits):
            found, limit = int(self.coefficients[index][field]), limits[part]
            reason = f"the {field} is {found:,}; it must be below {limit:,}"
        offset = self.file.get(COEFFICIENTS).offset + 4 + index * COEFFICIENT.itemsize
        self.file.fail(f"entry {index:,}: {reason}", COEFFICIENTS, offset)


def _check_protocol(file: SectionFile) -> None:
    reader = SectionReader(file, PROTOCOL)
    protocol = reader.read_u32("the protocol")
    if protocol in OTHER_PROTOCOLS:
        reader.fail(f"it is a key of {OTHER_PROTOCOLS[protocol]}; only Groth16 can be proved", 4)
    if protocol != GROTH16:
        reader.fail(f"the protocol is {protocol}; it must be {GROTH16}, Groth16", 4)
    reader.finish()


def _read_curve(reader: SectionReader) -> ProofCurve:
    start = reader.offset
    q = reader.read_modulus("the modulus of coordinates")
    middle = reader.offset
    r = reader.read_modulus("the modulus of scalars")
    sizes = (middle - start - 4, reader.offset - middle - 4)
    curve = find_by_scalar_modulus(r)
    if curve is None or q != curve.q or sizes != (curve.coordinate_bytes, curve.scalar_bytes):
        reader.fail(
            f"the moduli are q = {q:#x} in {sizes[0]} bytes and r = {r:#x} in {sizes[1]} bytes; "
            "they must be those of bn128 (32 and 32 bytes) or bls12381 (48 and 32 bytes)",
            reader.offset - start,
        )
    return curve


def _read_sizes(reader: SectionReader, curve: ProofCurve) -> tuple[int, int, int]:
    """The numbers of signals and public signals, and the size of the domain."""
    n_vars = reader.read_u32("the number of signals")
    n_public = reader.read_u32("the number of public signals")
    if not n_public < n_vars:
        reader.fail(
            f"the circuit has {n_public:,} public signals of {n_vars:,}; there must be fewer than "
            "signals, because the constant 1 is one of them",
            4,
        )
    domain = reader.read_u32("the size of the domain")
    if not domain or domain & (domain - 1):
        reader.fail(f"the domain has {domain:,} points; it must be a power of two", 4)
    largest = 1 << MAX_LOG_DOMAIN[curve.name]
    if domain > largest:
        reader.fail(
            f"the domain has {domain:,} points; {curve.name} is proved up to {largest:,}, because "
            "keys of larger domains are made with another shift of the coset",
            4,
        )
    if domain <= n_public:
        reader.fail(
            f"the domain has {domain:,} points; it must have more than the {n_public:,} public "
            "signals",
            4,
        )
    return n_vars, n_public, domain


def _view_header_points(reader: SectionReader, curve: ProofCurve) -> dict[str, Points]:
    file = reader.file
    place = file.get(HEADER)
    sizes = [_get_group(curve, name).get_layout("affine").element_bytes for name in HEADER_POINTS]
    offset = reader.offset - place.offset
    file.require_length(HEADER, offset + sum(sizes), f"the curve, {curve.name},")
    found: dict[str, Points] = {}
    for name, size in zip(HEADER_POINTS, sizes, strict=True):
        layout = _get_group(curve, name).get_layout("affine")
        found[name] = file.view(HEADER, layout.column_dtype, layout.element_shape, offset)
        bad = find_not_below(found[name].reshape(-1, layout.element_shape[-1]), curve.q)
        if bad is not None:
            reason = f"a coordinate of {name} is not below the modulus"
            file.fail(reason, HEADER, place.offset + offset + bad * curve.coordinate_bytes)
        offset += size
    return found


def _get_group(curve: ProofCurve, name: str) -> Curve:
    return curve.g1 if name.endswith("1") else curve.g2


def _view_coefficients(file: SectionFile) -> Coefficients:
    count = SectionReader(file, COEFFICIENTS).read_u32("the number of entries")
    length = 4 + count * COEFFICIENT.itemsize
    file.require_length(COEFFICIENTS, length, f"its number of entries, {count:,},")
    return file.view(COEFFICIENTS, COEFFICIENT, (count,), 4)


def write_zkey(path: PathLike, key: KeyArrays) -> None:
    """Write a key in the order of sections that snarkjs writes, without contributions. The numbers
    of points determine the header.

    Args:
        path (str | Path): The file, which is replaced in one step.
        key (KeyArrays): The curve and the arrays of the key.
    """
    curve = key.curve
    header_points = [getattr(key, name) for name in HEADER_POINTS]
    for name, point in zip(HEADER_POINTS, header_points, strict=True):
        _check_words(name, point, _get_group(curve, name), ())
    n_vars, n_public, domain = len(key.a), len(key.ic) - 1, len(key.h)
    if not 0 <= n_public < n_vars:
        raise ArgumentValueError(
            f"ic has {len(key.ic):,} points and a has {n_vars:,}; ic must have at least one, and "
            "not more than a"
        )
    if not domain or domain & (domain - 1):
        raise ArgumentValueError(f"h has {domain:,} points; it must be a power of two")
    _check_words("ic", key.ic, curve.g1, (n_public + 1,))
    _check_words("a", key.a, curve.g1, (n_vars,))
    _check_words("b1", key.b1, curve.g1, (n_vars,))
    _check_words("b2", key.b2, curve.g2, (n_vars,))
    _check_words("c", key.c, curve.g1, (n_vars - n_public - 1,))
    _check_words("h", key.h, curve.g1, (domain,))
    coefficients = key.coefficients
    if coefficients.dtype != COEFFICIENT or coefficients.ndim != 1:
        raise ArgumentTypeError(
            f"coefficients must be a flat array of {COEFFICIENT}, not {coefficients.dtype} with "
            f"shape {coefficients.shape}"
        )
    header: list[Any] = []
    for size, modulus in ((curve.coordinate_bytes, curve.q), (curve.scalar_bytes, curve.r)):
        header += [struct.pack("<I", size), modulus.to_bytes(size, "little")]
    header += [struct.pack("<III", n_vars, n_public, domain), *header_points]
    sections = [
        (PROTOCOL, [struct.pack("<I", GROTH16)]),
        (HEADER, header),
        (COEFFICIENTS, [struct.pack("<I", len(coefficients)), coefficients]),
        (IC, [key.ic]),
        (H, [key.h]),
        (C, [key.c]),
        (A, [key.a]),
        (B1, [key.b1]),
        (B2, [key.b2]),
        (CONTRIBUTIONS, [bytes(64), struct.pack("<I", 0)]),  # the hash of the circuit; none
    ]
    write_sections(path, MAGIC, VERSION, sections)


def _check_words(name: str, points: Any, curve: Curve, shape: tuple[int, ...]) -> None:
    layout = curve.get_layout("affine")
    if not isinstance(points, np.ndarray) or points.dtype != layout.column_dtype:
        raise ArgumentTypeError(f"{name} must be a NumPy array of {layout.column_dtype}")
    wanted = (*shape, *layout.element_shape)
    if points.shape != wanted:
        raise ArgumentShapeError(f"{name} has the shape {points.shape}; it must be {wanted}")
