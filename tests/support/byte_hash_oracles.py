"""Byte hashes with independent ones to compare them with: hashlib, blake3 and pycryptodome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3
from Crypto.Hash import RIPEMD160, keccak

from gpu_executor import hashes
from gpu_executor.hashes import ByteHash

Bytes = npt.NDArray[np.uint8]
Digest = Callable[[bytes], bytes]


def digest_keccak(message: bytes) -> bytes:
    return keccak.new(data=message, digest_bits=256).digest()


ORACLES: dict[str, tuple[ByteHash, Digest, int]] = {
    "SHA256": (hashes.SHA256, lambda m: hashlib.sha256(m).digest(), 64),
    "SHA256D": (
        hashes.SHA256D,
        lambda m: hashlib.sha256(hashlib.sha256(m).digest()).digest(),
        64,
    ),
    "SHA3_256": (hashes.SHA3_256, lambda m: hashlib.sha3_256(m).digest(), 136),
    "KECCAK256": (hashes.KECCAK256, digest_keccak, 136),
    "SHA512": (hashes.SHA512, lambda m: hashlib.sha512(m).digest(), 128),
    "BLAKE2S": (hashes.BLAKE2S, lambda m: hashlib.blake2s(m).digest(), 64),
    "BLAKE3": (hashes.BLAKE3, lambda m: blake3(m).digest(), 64),
    "RIPEMD160": (hashes.RIPEMD160, lambda m: RIPEMD160.new(m).digest(), 64),
}
"""Each hash with an independent one and the bytes of its blocks."""


def draw_bytes(seed: int, *shape: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def expect(digest: Digest, rows: Any) -> Bytes:
    found = [list(digest(bytes(bytearray(each)))) for each in rows]
    size = len(digest(b""))
    return np.array(found, np.uint8).reshape(len(rows), size)
