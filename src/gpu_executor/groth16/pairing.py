"""Pairings of the two curves behind one interface: BN254's in Python integers, BLS12-381's by
arkworks.

A pairing here is a fixed power of the pairing of the literature, which serves as well: it is
bilinear, and 1 only where a point is infinity.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from gpu_executor.curves import Curve
from gpu_executor.groth16 import bn254_pairing
from gpu_executor.groth16.bn254_tower import F2, ONE
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.kzg.pairing import get_arkworks
from gpu_executor.ops.host_coordinates import ExtensionElement
from gpu_executor.ops.host_points import Point, get_arithmetic

PreparedG2 = Any
"""A point of G2 in the form that an engine pairs quickly."""
Target = Any
"""An element of the group that pairings have their values in; equal ones compare equal."""


def is_on_curve(group: Curve, point: Point) -> bool:
    """Whether coordinates are at least 0, below the modulus and satisfy the curve's equation; the
    point at infinity does."""
    if point is None:
        return True
    q = group.key.prime.modulus
    coefficients = [each for coordinate in point for each in _get_coefficients(coordinate)]
    return all(0 <= each < q for each in coefficients) and get_arithmetic(group.key).is_on_curve(
        point
    )


def _get_coefficients(coordinate: Any) -> tuple[int, ...]:
    if isinstance(coordinate, ExtensionElement):
        return coordinate.coefficients
    return (coordinate,)


class PairingEngine(ABC):
    """The pairing of one curve."""

    def __init__(self, curve: ProofCurve) -> None:
        self.curve = curve

    @property
    @abstractmethod
    def one(self) -> Target:
        """The pairing with the point at infinity."""

    @abstractmethod
    def is_in_g1(self, point: Point) -> bool:
        """Whether coordinates are those of a point of G1."""

    def prepare(self, point: Point) -> PreparedG2 | None:
        """A point of G2, prepared; None if the coordinates are not those of a point of G2."""
        return self.prepare_all([point])[0]

    @abstractmethod
    def prepare_all(self, points: Sequence[Point]) -> list[PreparedG2 | None]:
        """Points of G2, prepared; None for coordinates that are not those of a point of G2."""

    @abstractmethod
    def pair(self, pairs: Sequence[tuple[Point, PreparedG2]]) -> Target:
        """The product of the pairings of points of G1 with prepared points of G2."""

    @abstractmethod
    def get_coefficients(self, target: Target) -> list[list[F2]]:
        """The value of a pairing as snarkjs has it: [i][j] is the coefficient of w^(2j+i), where
        w^6 is 9 + u (BN254) or 1 + u (BLS12-381)."""


class Bn254Engine(PairingEngine):
    """BN254. Its G1 is the whole curve."""

    @property
    def one(self) -> Target:
        return ONE

    def is_in_g1(self, point: Point) -> bool:
        return is_on_curve(self.curve.g1, point)

    def prepare_all(self, points: Sequence[Point]) -> list[PreparedG2 | None]:
        usable = [point is not None and is_on_curve(self.curve.g2, point) for point in points]
        coordinates = [
            (point[0].coefficients, point[1].coefficients)
            for point, use in zip(points, usable, strict=True)
            if point is not None and use
        ]
        prepared = iter(bn254_pairing.prepare(coordinates))
        infinity: bn254_pairing.Lines = []
        return [
            next(prepared) if use else infinity if point is None else None
            for point, use in zip(points, usable, strict=True)
        ]

    def pair(self, pairs: Sequence[tuple[Point, PreparedG2]]) -> Target:
        return bn254_pairing.pair([(point, lines) for point, lines in pairs if point and lines])

    def get_coefficients(self, target: Target) -> list[list[F2]]:
        return [[half[at : at + 2] for at in (0, 2, 4)] for half in target]


class Bls12381Engine(PairingEngine):
    """BLS12-381, by arkworks: a prepared point is one of its points."""

    def __init__(self, curve: ProofCurve) -> None:
        super().__init__(curve)
        self._arkworks = get_arkworks("a pairing of BLS12-381")

    @property
    def one(self) -> Target:
        return self.pair([])

    def is_in_g1(self, point: Point) -> bool:
        return is_on_curve(self.curve.g1, point) and self._load_g1(point).is_in_subgroup()

    def prepare_all(self, points: Sequence[Point]) -> list[PreparedG2 | None]:
        loaded = [
            self._load_g2(point) if is_on_curve(self.curve.g2, point) else None for point in points
        ]
        return [point if point is not None and point.is_in_subgroup() else None for point in loaded]

    def pair(self, pairs: Sequence[tuple[Point, PreparedG2]]) -> Target:
        loaded = [self._load_g1(point) for point, _ in pairs]
        return self._arkworks.GT.multi_pairing(loaded, [prepared for _, prepared in pairs])

    def get_coefficients(self, target: Target) -> list[list[F2]]:
        # snarkjs and arkworks raise to the same power.
        data = bytes.fromhex(str(target))
        width = self.curve.coordinate_bytes
        numbers = [
            int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)
        ]
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        return [pairs[:3], pairs[3:]]

    def _load_g1(self, point: Point) -> Any:
        load = self._arkworks.G1Point
        if point is None:
            return load.identity()
        return load.from_xy_bytes_unchecked_be(self._join(point))

    def _load_g2(self, point: Point) -> Any:
        load = self._arkworks.G2Point
        if point is None:
            return load.identity()
        return load.from_xy_bytes_unchecked_be(self._join(point))

    def _join(self, point: tuple[Any, Any]) -> bytes:
        width = self.curve.coordinate_bytes
        return b"".join(
            each.to_bytes(width, "big")
            for coordinate in point
            for each in _get_coefficients(coordinate)
        )


@functools.cache
def get_engine(curve: ProofCurve) -> PairingEngine:
    """The pairing of a curve."""
    return Bn254Engine(curve) if curve.name == "bn128" else Bls12381Engine(curve)
