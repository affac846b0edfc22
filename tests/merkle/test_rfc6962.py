"""RFC 6962: published roots, audit paths and consistency proofs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.merkle import MerkleTree
from tests.support.merkle_cases import draw_nodes
from tests.support.merkle_reference import compute_rfc6962_path, compute_rfc6962_root
from tests.support.toy_hashes import SHA256

# Leaves, roots and proofs of certificate transparency's tests, as in transparency-dev/merkle,
# proof/verify_test.go at 02194e9afb6c1d95b5381350007963aa70fff472. Its leaves count from 1.
LEAVES = [
    bytes.fromhex(each)
    for each in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
A = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
B = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
C = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
D = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
E = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
F = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
G = "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f"
PATHS = [
    (1, 1, []),
    (1, 8, [A, B, C]),
    (6, 8, [D, E, ROOTS[4]]),
    (3, 3, [ROOTS[2]]),
    (2, 5, [ROOTS[1], B, D]),
]
CONSISTENCY = [
    (1, 1, []),
    (1, 8, [A, B, C]),
    (6, 8, [F, E, ROOTS[4]]),
    (2, 5, [B, D]),
    (6, 7, [F, G, ROOTS[4]]),
]


def build(count: int, **options: Any) -> MerkleTree:
    return MerkleTree(LEAVES[:count], hash=SHA256, format="rfc6962", **options)


def to_hex(nodes: Any) -> list[str]:
    return [bytes(each).hex() for each in nodes]


def test_published_vectors() -> None:
    for count, root in enumerate(ROOTS):
        assert bytes(build(count).root).hex() == root
    for leaf, count, path in PATHS:
        assert to_hex(build(count).open(leaf - 1).nodes) == path
    for old, count, nodes in CONSISTENCY:
        assert to_hex(build(count).prove_consistency(old)) == nodes


def test_audit_paths_of_every_size() -> None:
    messages = [bytes([each]) for each in range(20)]
    for count in range(1, 21):
        tree = MerkleTree(messages[:count], hash=SHA256, format="rfc6962")
        for index in range(count):
            path = [bytes(each) for each in tree.open(index).nodes]
            assert path == compute_rfc6962_path(index, messages[:count])


def check(old: int, count: int, nodes: Any, roots: list[bytes]) -> bool:
    return MerkleTree.verify_consistency(roots[old], old, roots[count], count, nodes, hash=SHA256)


def test_consistency_proofs_of_every_size() -> None:
    messages = [bytes([each]) for each in range(13)]
    roots = [compute_rfc6962_root(messages[:count]) for count in range(14)]
    for count in range(1, 14):
        tree = MerkleTree(messages[:count], hash=SHA256, format="rfc6962")
        for old in range(count + 1):
            nodes = tree.prove_consistency(old)
            assert check(old, count, nodes, roots)
            assert not check(old, count, np.concatenate([nodes, tree.cap]), roots)
            if len(nodes):
                assert not check(old, count, nodes[:-1], roots)
                assert not check(old, count, nodes[1:], roots)
                for position in range(0, 256 * len(nodes), 17):
                    changed = nodes.copy()
                    changed.reshape(-1)[position // 8] ^= 1 << position % 8
                    assert not check(old, count, changed, roots)
                    if position > 600:
                        break
            for other in {old - 1, old + 1} & set(range(1, count + 1)):
                swapped = [*roots]
                swapped[old] = roots[other]
                if 0 < old < count:
                    assert not check(old, count, nodes, swapped)
    assert not MerkleTree.verify_consistency(
        roots[5], 5, roots[3], 3, np.empty((0, 32), np.uint8), hash=SHA256
    )


def test_consistency_on_a_device(gpu: gx.PersistentVulkanBackend) -> None:
    for old, count in itertools.combinations(range(1, 9), 2):
        nodes = build(count, device=gpu).prove_consistency(old)
        assert np.array_equal(nodes, build(count).prove_consistency(old))


def test_refusals() -> None:
    tree = build(5)
    with pytest.raises(ArgumentValueError, match="old_count is 6; the tree has 5 leaves"):
        tree.prove_consistency(6)
    with pytest.raises(ArgumentTypeError, match="old_count is a str"):
        tree.prove_consistency("3")  # type: ignore[arg-type]
    hash, nodes = draw_nodes("bytes", 4)
    with pytest.raises(ArgumentValueError, match="not 'rfc6962'"):
        MerkleTree(nodes, hash=hash).prove_consistency(2)
    wrong: Any = 5.0
    with pytest.raises(ArgumentTypeError, match="count is a float"):
        MerkleTree.verify_consistency(tree.root, 2, tree.root, wrong, tree.cap, hash=SHA256)


def test_consistency_of_counts_of_numpy_and_of_impossible_ones() -> None:
    hash, leaves = SHA256, np.arange(5 * 9, dtype=np.uint8).reshape(5, 9)
    old, new = (MerkleTree(leaves[:n], hash=hash, format="rfc6962").root for n in (3, 5))
    three: Any = np.int64(3)
    five: Any = np.uint8(5)
    nodes = MerkleTree(leaves, hash=hash, format="rfc6962").prove_consistency(three)
    assert MerkleTree.verify_consistency(old, three, new, five, nodes, hash=hash)
    assert not MerkleTree.verify_consistency(old, 3, new, 1 << 5000, nodes, hash=hash)


def test_empty_logs_have_one_root() -> None:
    empty, nothing = SHA256.hash(np.empty((1, 0), np.uint8))[0], np.empty((0, 32), np.uint8)
    other = np.ones(32, np.uint8)
    for root, count, is_right in ((empty, 0, True), (other, 0, False), (other, 3, True)):
        found = MerkleTree.verify_consistency(empty, 0, root, count, nothing, hash=SHA256)
        assert found == is_right


def test_log_documents() -> None:
    tree = build(7)
    document = tree.export_proof(4)
    assert document["leaf_index"] == 4
    assert document["tree_size"] == 7
    proof = MerkleTree.import_proof(document, hash=SHA256, format="rfc6962")
    assert proof == tree.open(4)
    assert [each["leaf_index"] for each in tree.export_proof([1, 6])] == [1, 6]
    for changes in ({"audit_path": ["?"]}, {"tree_size": "7"}, {"audit_path": ["AAAA"]}):
        with pytest.raises(ArgumentValueError, match="no proof in the format 'rfc6962'"):
            MerkleTree.import_proof({**document, **changes}, hash=SHA256, format="rfc6962")
