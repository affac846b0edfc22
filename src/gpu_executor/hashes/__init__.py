"""Hash functions of bytes and of field elements, of many messages at once."""

from gpu_executor.hashes.byte_hash import KECCAK256, SHA3_256, SHA256, SHA256D, ByteHash
from gpu_executor.hashes.hash_function import HashFunction

__all__ = ["KECCAK256", "SHA3_256", "SHA256", "SHA256D", "ByteHash", "HashFunction"]
