"""Points on the host, and pairings: by arkworks (py-arkworks-bls12381), and by blst where it is
there (`blst.py`)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_executor.curves import BLS12_381_G1
from gpu_executor.errors import KzgDataError, MissingExtraError, PointError
from gpu_executor.kzg.blst import load_blst
from gpu_executor.kzg.inputs import (
    BYTES_PER_COMMITMENT,
    ByteRows,
    Bytes,
    make_point_error,
    split_items,
)
from gpu_executor.kzg.setup_file import SetupBytes

if TYPE_CHECKING:
    from py_arkworks_bls12381 import G1Point, G2Point

INFINITY = b"\xc0" + bytes(47)
INFINITY_FLAG = 0x40
WEIGHT_BITS = 128


def get_arkworks(needed_by: str = "a pairing of KZG") -> Any:
    """The module of arkworks; `needed_by` is for the error where it is not installed."""
    try:
        import py_arkworks_bls12381
    except ModuleNotFoundError:
        raise MissingExtraError(needed_by, "py-arkworks-bls12381", "kzg") from None
    return py_arkworks_bls12381


def draw_weights(count: int) -> list[int]:
    """Random weights of a linear combination that checks many equations at once, from the system's
    source of randomness: a wrong equation passes with probability 2^-128."""
    return [secrets.randbits(WEIGHT_BITS) for _ in range(count)]


# --- points ---


def load_points(rows: ByteRows) -> list[G1Point]:
    """Points of G1, each checked to be on the curve and in the group."""
    decode = get_arkworks().G1Point.from_compressed_bytes
    points = []
    for index, item in enumerate(split_items(rows.data)):
        # arkworks ignores all other bits of a point that is flagged as infinity.
        if item[0] & INFINITY_FLAG and item != INFINITY:
            raise make_point_error(rows, index, "it is flagged as infinity, and other bits are set")
        try:
            points.append(decode(item))
        except ValueError as error:
            raise make_point_error(rows, index, _find_reason(item) or str(error)) from None
    return points


def _find_reason(item: bytes) -> str | None:
    """Why bytes are no point of G1, in words, which arkworks does not have."""
    try:
        BLS12_381_G1.from_bytes(item)
    except PointError as error:
        return error.reason
    return None


def uncompress(rows: ByteRows) -> Bytes:
    """Points of G1, checked, as uncompressed bytes (n, 96)."""
    joined = b"".join(point.to_xy_bytes_be() for point in load_points(rows))
    data = np.frombuffer(joined, np.uint8).reshape(len(rows), 2 * BYTES_PER_COMMITMENT).copy()
    data[~data.any(axis=1), 0] = INFINITY_FLAG
    return data


def load_trusted(data: Bytes) -> list[G1Point]:
    """Points of G1 from bytes that the device wrote."""
    decode = get_arkworks().G1Point.from_compressed_bytes_unchecked
    return [decode(item) for item in split_items(data)]


def load_g2_powers(found: SetupBytes) -> list[G2Point]:
    """The points of G2 of a setup, checked: they are the powers of one secret, and so are the first
    two powers in G1."""
    arkworks = get_arkworks()
    powers: list[G2Point] = []
    for index, item in enumerate(split_items(found.g2_powers)):
        try:
            powers.append(arkworks.G2Point.from_compressed_bytes(item))
        except ValueError as error:
            raise KzgDataError(f"{found.source}: power {index} of G2: {error}") from None
    first, second = load_points(ByteRows(f"{found.source}: powers of G1", found.powers[:2], (0, 1)))
    if first != arkworks.G1Point() or powers[0] != arkworks.G2Point():
        raise KzgDataError(f"{found.source}: the first powers of G1 and G2 must be the generators")
    weights = [arkworks.Scalar(each) for each in draw_weights(len(powers) - 1)]
    lower = arkworks.G2Point.multiexp_unchecked(powers[:-1], weights)
    upper = arkworks.G2Point.multiexp_unchecked(powers[1:], weights)
    if not pairings_equal(first, upper, second, lower):
        raise KzgDataError(f"{found.source}: the points of G2 are not the powers of one secret")
    return powers


def sum_multiples(points: Sequence[G1Point], scalars: Sequence[int]) -> G1Point:
    """The sum of k P; scalars are below the order."""
    arkworks = get_arkworks()
    factors = [arkworks.Scalar.from_be_bytes(each.to_bytes(32, "big")) for each in scalars]
    total: G1Point = arkworks.G1Point.multiexp_unchecked(list(points), factors)
    return total


# --- pairings ---


def encoded_pairings_equal(
    points: Bytes, powers: Sequence[G2Point], encoded: Sequence[bytes], other: int
) -> bool:
    """Whether e(p, H) = e(other_p, H') for two points of G1 that the device wrote, the first power
    H of a setup in G2 and another one, H'. `encoded` are the same powers as bytes."""
    blst = load_blst()
    if blst is None:
        p, other_p = load_trusted(points)
        return pairings_equal(p, powers[0], other_p, powers[other])
    p, other_p = (blst.decode_trusted(item) for item in split_items(points))
    loop = blst.run_miller_loop(p, blst.get_lines(encoded[0]))
    other_loop = blst.run_miller_loop(blst.negate(other_p), blst.get_lines(encoded[other]))
    return blst.is_power(blst.pair([loop, other_loop]), 0)


def pairings_equal(p: G1Point, q: G2Point, other_p: G1Point, other_q: G2Point) -> bool:
    """Whether e(p, q) = e(other_p, other_q)."""
    return bool(get_arkworks().GT.pairing_check([p, -other_p], [q, other_q]))
