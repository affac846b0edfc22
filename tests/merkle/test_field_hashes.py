"""Trees over the hash functions of fields of `gx.hashes`, whose kernels compute them on devices."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.hashes import FieldHash, poseidon, poseidon2
from gpu_executor.merkle import MerkleTree

HASHES = {
    "poseidon": lambda: poseidon(gx.fields.BN254_FR, inputs=2),
    "poseidon2": lambda: poseidon2(gx.fields.BABYBEAR, width=16),
}


def hash_level(hash: FieldHash, nodes: list[gx.FieldArray]) -> list[gx.FieldArray]:
    """The parents of nodes, one after the other."""
    pairs = zip(nodes[::2], nodes[1::2], strict=True)
    return [hash.compress(np.stack(pair))[0] for pair in pairs]


@pytest.mark.parametrize("name", HASHES)
def test_trees(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    hash = HASHES[name]()
    leaves = hash.field.random((8, *hash.digest_shape), seed=1)
    level = list(leaves)
    while len(level) > 1:
        level = hash_level(hash, level)
    for tree in (
        MerkleTree(leaves, hash=hash),
        MerkleTree(leaves, hash=hash, device=gpu),
        MerkleTree(leaves, hash=hash, device=gpu, memory=0),
        MerkleTree(gpu.to_device(leaves), hash=hash),
    ):
        assert tree.root.tolist() == level[0].tolist()
        proof = tree.open([6, 1, 6])
        own = leaves[[6, 1, 6]]
        assert MerkleTree.verify(tree.root, [6, 1, 6], own, proof, hash=hash, count=8)
        assert not MerkleTree.verify(tree.root, [6, 2, 6], own, proof, hash=hash, count=8)
        tree.update([7, 0], leaves[:2])
        changed = leaves.copy()
        changed[[7, 0]] = leaves[:2]
        assert (tree.root == MerkleTree(changed, hash=hash).root).all()


def test_leaves_that_a_function_cannot_hash_do_not_verify() -> None:
    """circomlib's Poseidon of two inputs hashes rows of two elements alone."""
    hash = poseidon(gx.fields.BN254_FR, inputs=2)
    rows = hash.field.random((4, 2), seed=2)
    tree = MerkleTree(rows, hash=hash)
    proof = tree.open(1)
    assert MerkleTree.verify(tree.root, 1, rows[1], proof, hash=hash)
    assert not MerkleTree.verify(tree.root, [1], hash.field.zeros((1, 3)), proof, hash=hash)
