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
    length = rows.shape[1]
    data: Any = rows.reshape(-1)
    data = memoryview(data)
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


# --- RIPEMD-160 ---

_RIPEMD_ORDER = bytes([7, 4, 13, 1, 10, 6, 15, 3, 12, 0, 9, 5, 2, 14, 11, 8])
"""The word that each step of a round takes, by the word of the same step of the round before."""
_RIPEMD_SHIFTS = (
    (11, 14, 15, 12, 5, 8, 7, 9, 11, 13, 14, 15, 6, 7, 9, 8),
    (12, 13, 11, 15, 6, 9, 9, 7, 12, 15, 11, 13, 7, 8, 7, 7),
    (13, 15, 14, 11, 7, 7, 6, 8, 13, 14, 13, 12, 5, 5, 6, 9),
    (14, 11, 12, 14, 8, 6, 5, 5, 15, 12, 15, 14, 9, 9, 8, 6),
    (15, 12, 13, 13, 9, 5, 8, 6, 14, 11, 12, 11, 8, 6, 5, 5),
)
"""The rotation of each word in each round, the same in both lines."""
_RIPEMD_CONSTANTS = (
    (0, 0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xA953FD4E),
    (0x50A28BE6, 0x5C4DD124, 0x6D703EF3, 0x7A6D76E9, 0),
)


def _mix_ripemd(function: int, x: Words, y: Words, z: Words) -> Words:
    if function == 0:
        return x ^ y ^ z
    if function == 1:
        return z ^ (x & (y ^ z))
    if function == 2:
        return (x | ~y) ^ z
    if function == 3:
        return y ^ (z & (x ^ y))
    return x ^ (y | ~z)


def _rotate_left(x: Words, n: int) -> Words:
    return x << np.uint32(n) | x >> np.uint32(32 - n)


def _run_ripemd_line(state: list[Words], block: Words, line: int) -> list[Words]:
    """One of the two lines of 80 steps, on words of shape (16, n)."""
    a, b, c, d, e = state
    order = list(range(16)) if line == 0 else [(9 * i + 5) % 16 for i in range(16)]
    for number in range(5):
        function = number if line == 0 else 4 - number
        constant = np.uint32(_RIPEMD_CONSTANTS[line][number])
        for word in order:
            mixed = a + _mix_ripemd(function, b, c, d) + (block[word] + constant)
            mixed = _rotate_left(mixed, _RIPEMD_SHIFTS[number][word]) + e
            a, b, c, d, e = e, mixed, b, _rotate_left(c, 10), d
        order = [_RIPEMD_ORDER[word] for word in order]
    return [a, b, c, d, e]


def ripemd160(rows: Rows) -> Rows:
    """RIPEMD-160, which OpenSSL 3 and with it hashlib often lacks."""
    length = rows.shape[1]
    blocks = (length + 8) // 64 + 1
    padded = np.zeros((len(rows), 64 * blocks), np.uint8)
    padded[:, :length] = rows
    padded[:, length] = 0x80
    padded[:, -8:] = np.frombuffer((8 * length).to_bytes(8, "little"), np.uint8)
    words = padded.view("<u4").astype(np.uint32, copy=False).reshape(len(rows), blocks, 16)
    start = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)
    state = [np.full(len(rows), each, np.uint32) for each in start]
    for number in range(blocks):
        block = np.ascontiguousarray(words[:, number].T)
        left, right = (_run_ripemd_line(state, block, line) for line in (0, 1))
        state = [state[(i + 1) % 5] + left[(i + 2) % 5] + right[(i + 3) % 5] for i in range(5)]
    return np.stack(state, axis=1).astype("<u4", copy=False).view(np.uint8)


# --- BLAKE3 ---

CHUNK_BYTES, BLOCK_BYTES = 1024, 64
BLAKE3_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
KEYED_HASH, DERIVE_KEY_CONTEXT, DERIVE_KEY_MATERIAL = 16, 32, 64
_BLAKE3_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
"""The words that a round takes, by those of the round before."""
_CHUNKS_AT_ONCE = 1 << 13


def _mix_blake(rows: list[Words], x: Words, y: Words) -> None:
    """Mix the four columns of a matrix of four rows, each of shape (4, n)."""
    a, b, c, d = rows
    for words, (one, two) in ((x, (16, 12)), (y, (8, 7))):
        a = a + b + words
        d = _rotate_left(d ^ a, 32 - one)
        c = c + d
        b = _rotate_left(b ^ c, 32 - two)
    rows[:] = a, b, c, d


def _compress_blake3(
    chaining: Words, block: Words, counters: Words, nbytes: int, flags: int
) -> Words:
    """New chaining values of shape (8, n), from blocks of shape (16, n)."""
    last = np.empty((4, block.shape[1]), np.uint32)
    last[0], last[1] = counters & np.uint64(0xFFFFFFFF), counters >> np.uint64(32)
    last[2], last[3] = nbytes, flags
    iv = np.broadcast_to(np.array(BLAKE3_IV[:4], np.uint32)[:, None], last.shape)
    rows = [chaining[:4], chaining[4:], iv, last]
    order = np.arange(16)
    for _ in range(7):
        words = block[order]
        _mix_blake(rows, words[0:8:2], words[1:8:2])
        rows[1:] = [np.roll(row, -shift, axis=0) for shift, row in enumerate(rows) if shift]
        _mix_blake(rows, words[8::2], words[9::2])
        rows[1:] = [np.roll(row, shift, axis=0) for shift, row in enumerate(rows) if shift]
        order = order[list(_BLAKE3_ORDER)]
    return np.concatenate([rows[0] ^ rows[2], rows[1] ^ rows[3]])


def _hash_chunks(data: Rows, counters: Words, key: Words, flags: int, end: int) -> Words:
    """The chaining values, of shape (n, 8), of chunks of equal length."""
    length = data.shape[1]
    blocks = max(-(-length // BLOCK_BYTES), 1)
    padded = data
    if length != blocks * BLOCK_BYTES:
        padded = np.zeros((len(data), blocks * BLOCK_BYTES), np.uint8)
        padded[:, :length] = data
    words = np.ascontiguousarray(padded).view("<u4").astype(np.uint32, copy=False)
    chaining = np.repeat(key[:, None], len(data), axis=1)
    for number in range(blocks):
        block = np.ascontiguousarray(words[:, 16 * number : 16 * number + 16].T)
        nbytes = min(length - number * BLOCK_BYTES, BLOCK_BYTES)
        domain = flags | (CHUNK_START if number == 0 else 0)
        domain |= end if number == blocks - 1 else 0
        chaining = _compress_blake3(chaining, block, counters, nbytes, domain)
    return chaining.T


def blake3(rows: Rows, key: tuple[int, ...] = BLAKE3_IV, flags: int = 0) -> Rows:
    """BLAKE3 with a key of eight words, and flags of its mode."""
    count, length = rows.shape
    key_words = np.array(key, np.uint32)
    chunks = max(-(-length // CHUNK_BYTES), 1)
    if chunks == 1:
        zeros = np.zeros(count, np.uint64)
        values = _hash_chunks(rows, zeros, key_words, flags, CHUNK_END | ROOT)
        return np.ascontiguousarray(values).astype("<u4", copy=False).view(np.uint8)
    values = np.empty((count, chunks, 8), np.uint32)
    full = length // CHUNK_BYTES
    step = max(_CHUNKS_AT_ONCE // count, 1) if count else full
    for first in range(0, full, step):
        last = min(first + step, full)
        part = rows[:, first * CHUNK_BYTES : last * CHUNK_BYTES].reshape(-1, CHUNK_BYTES)
        counters = np.tile(np.arange(first, last, dtype=np.uint64), count)
        found = _hash_chunks(part, counters, key_words, flags, CHUNK_END)
        values[:, first:last] = found.reshape(count, last - first, 8)
    if full < chunks:
        counters = np.full(count, full, np.uint64)
        rest = rows[:, full * CHUNK_BYTES :]
        values[:, full] = _hash_chunks(rest, counters, key_words, flags, CHUNK_END)
    while chunks > 1:
        pairs = chunks // 2
        block = values[:, : 2 * pairs].reshape(count * pairs, 16).T
        domain = flags | PARENT | (ROOT if chunks == 2 else 0)
        start = np.repeat(key_words[:, None], count * pairs, axis=1)
        zeros = np.zeros(count * pairs, np.uint64)
        made = _compress_blake3(start, np.ascontiguousarray(block), zeros, BLOCK_BYTES, domain)
        joined = made.T.reshape(count, pairs, 8)
        values = np.concatenate([joined, values[:, 2 * pairs :]], axis=1)
        chunks = values.shape[1]
    return np.ascontiguousarray(values[:, 0]).astype("<u4", copy=False).view(np.uint8)


HOST_HASHES: dict[str, HashRows] = {
    "SHA256": functools.partial(hash_rows_by, _sha256, 32),
    "SHA256D": functools.partial(hash_rows_by, _sha256d, 32),
    "SHA512": functools.partial(hash_rows_by, _sha512, 64),
    "SHA3_256": functools.partial(hash_rows_by, _sha3_256, 32),
    "KECCAK256": keccak256,
    "BLAKE2S": functools.partial(hash_rows_by, _blake2s, 32),
    "RIPEMD160": ripemd160,
}
"""The digests of rows, by the name of the hash; `blake3` has further arguments."""
