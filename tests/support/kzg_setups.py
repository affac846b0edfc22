"""Trusted setups for tests of KZG: one with a known secret, and blobs."""

from __future__ import annotations

import functools
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from gpu_executor.fields import BLS12_381_FR, eip4844
from gpu_executor.kzg import TrustedSetup, setup_file
from gpu_executor.kzg.setup import LEAST_TABLE_BYTES

MODULUS = BLS12_381_FR.modulus
SECRET = 0x1234567890ABCDEF0FEDCBA98765432100112233445566778899AABBCCDDEEFF
G1_POINTS, G2_POINTS = 4096, 65
INFINITY = b"\xc0" + bytes(47)
GENERATOR = G1Point().to_compressed_bytes()
OUTSIDE = bytes([0x80]) + bytes(46) + bytes([4])
"""A point of the curve, with x = 4, that is not in the group of prime order."""
POINTS_ALONE = LEAST_TABLE_BYTES
"""Memory for points without multiples, which a software driver takes no time to make."""


@dataclass(frozen=True)
class SetupPair:
    """A trusted setup of this package, and the same one of ckzg."""

    own: TrustedSetup
    ckzg: Any


def write_known_setup() -> str:
    """The text of a setup with the secret `SECRET`."""
    powers = [pow(SECRET, k, MODULUS) for k in range(G1_POINTS)]
    lines = [
        f"{G1_POINTS}\n{G2_POINTS}",
        *(multiply_generator(each).hex() for each in list_lagrange_values()),
        *((G2Point() * Scalar(each)).to_compressed_bytes().hex() for each in powers[:G2_POINTS]),
        *(multiply_generator(each).hex() for each in powers),
    ]
    return "\n".join(lines) + "\n"


def list_lagrange_values() -> list[int]:
    """The Lagrange polynomials of the 4096th roots of unity at the secret, in natural order:
    w^i (s^4096 - 1) / (4096 (s - w^i))."""
    root = pow(7, (MODULUS - 1) // G1_POINTS, MODULUS)
    factor = (pow(SECRET, G1_POINTS, MODULUS) - 1) * pow(G1_POINTS, -1, MODULUS)
    points = [pow(root, i, MODULUS) for i in range(G1_POINTS)]
    return [point * factor * pow(SECRET - point, -1, MODULUS) % MODULUS for point in points]


@functools.cache
def list_generator_multiples() -> list[list[G1Point]]:
    """The multiples d 256^k of G1's generator for every byte d, at [k][d]."""
    rows, base = [], G1Point()
    for _ in range(32):
        row = [base - base]
        for _ in range(256):
            row.append(row[-1] + base)
        base = row.pop()
        rows.append(row)
    return rows


def multiply_generator(scalar: int) -> bytes:
    """A multiple of G1's generator, compressed: the sum of one point for each byte of the scalar,
    in a sixth of the time of a product. A setup has 8,192 of them."""
    digits = (scalar % MODULUS).to_bytes(32, "little")
    rows = list_generator_multiples()
    total = rows[0][digits[0]]
    for row, digit in zip(rows[1:], digits[1:], strict=True):
        total = total + row[digit]
    return total.to_compressed_bytes()


def draw_small_weights(count: int) -> list[int]:
    """In the place of random weights of the points of a setup: the coefficients of 5 + 3 X^2048,
    whose values are 8 and 2, because sums of small multiples are quick."""
    weights = [0] * count
    weights[0] = 5
    if count > 2048:
        weights[2048] = 3
    return weights


def write_broken_points(source: Path, name: str) -> Path:
    """Store a file that has not the points of a setup, where loading the setup looks for them."""
    folder = Path(os.environ["GPU_CACHE_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    path = setup_file._get_path(folder, name, setup_file.read_setup(source).digest)
    path.write_bytes(b"broken")
    return path


# --- blobs ---


def make_blob(values: list[int]) -> bytes:
    """The blob with these values, and zeros after them."""
    return b"".join(value.to_bytes(32, "big") for value in values).ljust(eip4844.BLOB_BYTES, b"\0")


def make_blob_of(coefficients: list[int]) -> bytes:
    """The blob of the polynomial with these lowest coefficients, which has few products of points:
    all other scalars of its proofs are zero."""
    padded = coefficients + [0] * (eip4844.ELEMENTS - len(coefficients))
    return eip4844.to_blob(eip4844.values_of(BLS12_381_FR.encode(padded))).tobytes()


def draw_blob(seed: int) -> bytes:
    """A blob of random values."""
    draw = random.Random(seed)
    return make_blob([draw.randrange(MODULUS) for _ in range(eip4844.ELEMENTS)])


def list_edge_blobs() -> dict[str, bytes]:
    """Blobs at the edges: zero, constants, one value, the largest values."""
    return {
        "zero": bytes(eip4844.BLOB_BYTES),
        "constant": make_blob([7] * eip4844.ELEMENTS),
        "first value": make_blob([MODULUS - 1]),
        "last value": make_blob([0] * (eip4844.ELEMENTS - 1) + [1]),
        "largest": make_blob([MODULUS - 1] * eip4844.ELEMENTS),
    }


def evaluate_at_secret(blob: bytes) -> int:
    """The value of a blob's polynomial at the known secret."""
    coefficients = eip4844.coefficients(eip4844.from_blob(blob)).tolist()
    total = 0
    for each in reversed(coefficients):
        total = (total * SECRET + each) % MODULUS
    return total


@functools.lru_cache(4)
def prove_cells(blob: bytes) -> list[bytes]:
    """The proofs of a blob's cells on the setup with the known secret s, by their definition: the
    commitments to (p - r) / (X^64 - h^64), where r is the remainder and h belongs to the cell."""
    coefficients = eip4844.coefficients(eip4844.from_blob(blob)).tolist()
    root = pow(7, (MODULUS - 1) // 128, MODULUS)
    powers = [pow(SECRET, j, MODULUS) for j in range(64)]
    rows = [
        sum(a * b for a, b in zip(coefficients[64 * k : 64 * k + 64], powers, strict=True))
        for k in range(64)
    ]
    total = evaluate_at_secret(blob)
    proofs = []
    for cell in range(128):
        shift = pow(root, int(f"{cell:07b}"[::-1], 2), MODULUS)
        remainder = sum(row * pow(shift, k, MODULUS) for k, row in enumerate(rows))
        divisor = pow(SECRET, 64, MODULUS) - shift
        proofs.append(multiply_generator((total - remainder) * pow(divisor, -1, MODULUS)))
    return proofs
