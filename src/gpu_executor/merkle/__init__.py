"""Merkle trees over any hash function of `hashes`."""
