"""Merkle trees over any hash function of `hashes`."""

from gpu_executor.merkle.proof import MerkleProof
from gpu_executor.merkle.tree import MerkleTree

__all__ = ["MerkleProof", "MerkleTree"]
