"""Hash functions of bytes and of field elements, of many messages at once."""

from gpu_executor.hashes.byte_hash import (
    BLAKE2S,
    BLAKE3,
    KECCAK256,
    RIPEMD160,
    SHA3_256,
    SHA256,
    SHA256D,
    SHA512,
    ByteHash,
)
from gpu_executor.hashes.hash_function import HashFunction

__all__ = [
    "BLAKE2S",
    "BLAKE3",
    "KECCAK256",
    "RIPEMD160",
    "SHA3_256",
    "SHA256",
    "SHA256D",
    "SHA512",
    "ByteHash",
    "HashFunction",
]
