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
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.hashes.mimc import mimc7, mimc_sponge
from gpu_executor.hashes.poseidon import Poseidon, poseidon
from gpu_executor.hashes.poseidon2 import poseidon2
from gpu_executor.hashes.rescue import rpo
from gpu_executor.hashes.sponge import Sponge

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
    "FieldHash",
    "HashFunction",
    "Poseidon",
    "Sponge",
    "mimc7",
    "mimc_sponge",
    "poseidon",
    "poseidon2",
    "rpo",
]
