"""Hash functions of bytes and of field elements, of many messages at once."""

from gpu_executor.hashes.hash_function import HashFunction

__all__ = ["HashFunction"]
