"""Byte hashes of many messages on the host: hashlib, and NumPy where Python has no such hash.

The NumPy functions compute all rows at once, block by block, so they are quick for many short
messages and slow for few long ones. Rows are contiguous, of shape (n, length).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]
Words = npt.NDArray[Any]
HashRows = Callable[[Rows], Rows]


def hash_rows_by(digest: Callable[[Any], bytes], size: int, rows: Rows) -> Rows:
    """The digests of rows by a function of one message, which returns `size` bytes."""
    data, length = (
        memoryview(np.ascontiguousarray(rows)).cast("B") if rows.size else b"",
        rows.shape[1],
    )
    found = b"".join([digest(data[at : at + length]) for at in range(0, rows.size, length or 1)])
    if not length:
        found = digest(b"") * len(rows)
    return np.frombuffer(bytearray(found), np.uint8).reshape(len(rows), size)


def _sha256(message: Any) -> bytes:
    return hashlib.sha256(message).digest()


def _sha256d(message: Any) -> bytes:
    return hashlib.sha256(hashlib.sha256(message).digest()).digest()


def _sha512(message: Any) -> bytes:
    return hashlib.sha512(message).digest()


def _sha3_256(message: Any) -> bytes:
    return hashlib.sha3_256(message).digest()


def _blake2s(message: Any) -> bytes:
    return hashlib.blake2s(message).digest()


# --- Keccak ---


def _find_rotations() -> list[int]:
    """The rotation of each lane (FIPS 202, 3.2.2), lane x + 5 y at that index."""
    rotations, x, y = [0] * 25, 1, 0
    for t in range(24):
        rotations[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return rotations


def _find_round_constants() -> list[int]:
    """The round constants: bits of a linear feedback shift register (FIPS 202, 3.2.5)."""
    constants, register = [], 1
    for _ in range(24):
        constant = 0
        for j in range(7):
            constant |= (register & 1) << (1 << j) - 1
            register = register << 1 ^ (register >> 7) * 0x171
        constants.append(constant)
    return constants


@functools.cache
def _keccak_tables() -> tuple[Words, Words, Words, Words, Words]:
    rotations = np.array(_find_rotations(), np.uint64)[:, None]
    # Lane (x, y) moves to (y, 2 x + 3 y): the source of each lane.
    sources = [0] * 25
    for x in range(5):
        for y in range(5):
            sources[y + 5 * ((2 * x + 3 * y) % 5)] = x + 5 * y
    order = np.array(sources)
    left = rotations[order]
    columns = np.arange(25) % 5
    return order, left, (64 - left) % 64, columns, np.array(_find_round_constants(), np.uint64)


def permute_keccak(state: Words) -> Words:
    """Keccak-f[1600] of states of shape (25, n), uint64."""
    order, left, right, columns, constants = _keccak_tables()
    one, rest = np.uint64(1), np.uint64(63)
    for constant in constants:
        lanes = state.reshape(5, 5, -1)
        parity = np.bitwise_xor.reduce(lanes, axis=0)
        following = np.roll(parity, -1, axis=0)
        change = np.roll(parity, 1, axis=0) ^ (following << one | following >> rest)
        moved = (state ^ change[columns])[order]
        # A rotation by 0 is the lane itself, twice.
        moved = (moved << left | moved >> right).reshape(5, 5, -1)
        state = moved ^ (~np.roll(moved, -1, axis=1) & np.roll(moved, -2, axis=1))
        state = state.reshape(25, -1)
        state[0] ^= constant
    return state


def keccak256(rows: Rows) -> Rows:
    """Keccak-256 as Ethereum has it: the byte 1 behind the message, where SHA3-256 has 6."""
    rate = 136
    blocks = rows.shape[1] // rate + 1
    padded = np.zeros((len(rows), blocks * rate), np.uint8)
    padded[:, : rows.shape[1]] = rows
    padded[:, rows.shape[1]] = 1
    padded[:, -1] |= 0x80
    lanes = padded.view("<u8").astype(np.uint64, copy=False).reshape(len(rows), blocks, rate // 8)
    state = np.zeros((25, len(rows)), np.uint64)
    for block in range(blocks):
        state[: rate // 8] ^= lanes[:, block].T
        state = permute_keccak(state)
    return np.ascontiguousarray(state[:4].T.astype("<u8", copy=False)).view(np.uint8)


HOST_HASHES: dict[str, HashRows] = {
    "SHA256": functools.partial(hash_rows_by, _sha256, 32),
    "SHA256D": functools.partial(hash_rows_by, _sha256d, 32),
    "SHA3_256": functools.partial(hash_rows_by, _sha3_256, 32),
    "KECCAK256": keccak256,
}
"""The digests of rows, by the name of the hash."""
