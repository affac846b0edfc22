"""Replacing leaves: the tree is the one of the new leaves, and only its paths are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementIndexError,
)
from gpu_executor.merkle import MerkleTree
from tests.merkle.conftest import OpenPlace
from tests.support.merkle_cases import draw_nodes
from tests.support.toy_hashes import KECCAK256, SHA256


def assert_equal_trees(one: MerkleTree, other: MerkleTree) -> None:
    assert len(one.levels) == len(other.levels)
    for left, right in zip(one.levels, other.levels, strict=True):
        assert np.array_equal(np.asarray(left), np.asarray(right))
    assert np.array_equal(one.cap, other.cap)


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("place", ["host", "cpu", "vulkan"])
@pytest.mark.parametrize("kind", ["bytes", "element", "elements"])
def test_updates(open_place: OpenPlace, kind: str, place: str, memory: int | None) -> None:
    device = open_place(place)
    cases: list[tuple[int, dict[str, Any]]] = [
        (16, {}),
        (16, {"arity": 4, "cap": 4}),
        (11, {"format": "imt", "depth": 5}),
        (1, {}),
    ]
    if kind == "bytes":
        cases += [(11, {"format": "rfc6962"}), (1, {"format": "rfc6962"})]
    for count, options in cases:
        hash, leaves = draw_nodes(kind, count)
        _, new = draw_nodes(kind, count + 3, seed=1)
        tree = MerkleTree(leaves, hash=hash, device=device, memory=memory, **options)
        old = np.array(np.asarray(tree.cap))
        for indices in ([count - 1], [0, count // 2, 0], list(range(count))):
            changed = leaves.copy()
            for index, leaf in zip(indices, new[: len(indices)], strict=True):
                changed[index] = leaf  # the last one stays
            tree.update(indices, new[: len(indices)])
            leaves = changed
            assert not np.array_equal(np.asarray(tree.cap), old)
            assert_equal_trees(tree, MerkleTree(leaves, hash=hash, **options))
        tree.update(0, new[count - 1])
        leaves[0] = new[count - 1]
        assert_equal_trees(tree, MerkleTree(leaves, hash=hash, **options))


def test_leaves_of_updates_are_hashed_as_those_of_the_tree(gpu: gx.PersistentVulkanBackend) -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 256, (8, 40), dtype=np.uint8)
    new = rng.integers(0, 256, (2, 40), dtype=np.uint8)
    for device in (None, gpu):
        tree = MerkleTree(rows, hash=SHA256, device=device)
        tree.update([6, 1], new)
        changed = rows.copy()
        changed[[6, 1]] = new
        assert_equal_trees(tree, MerkleTree(changed, hash=SHA256))
        messages = [bytes([each]) * each for each in range(7)]
        log = MerkleTree(messages, hash=SHA256, device=device, format="rfc6962")
        log.update([6, 2], [b"six", b"two"])
        log.update(3, b"three")
        messages[6], messages[2], messages[3] = b"six", b"two", b"three"
        assert_equal_trees(log, MerkleTree(messages, hash=SHA256, format="rfc6962"))


def test_leaves_on_the_device_of_the_tree(gpu: gx.PersistentVulkanBackend) -> None:
    hash, leaves = draw_nodes("element", 8)
    _, new = draw_nodes("element", 2, seed=1)
    tree = MerkleTree(leaves, hash=hash, device=gpu)
    tree.update([3, 4], gpu.to_device(new))
    leaves[[3, 4]] = new
    assert_equal_trees(tree, MerkleTree(leaves, hash=hash))
    with pytest.raises(ArgumentTypeError, match="the tree is on the host"):
        MerkleTree(leaves, hash=hash).update([3, 4], gpu.to_device(new))


def test_only_the_paths_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hash, leaves = draw_nodes("bytes", 64)
    tree = MerkleTree(leaves, hash=hash)
    hashed: list[int] = []
    compute = SHA256.hash

    def note_and_compute(rows: Any, **options: Any) -> Any:
        hashed.append(len(rows))
        return compute(rows, **options)

    monkeypatch.setattr(SHA256, "hash", note_and_compute)
    tree.update([0, 1, 63], leaves[:3])
    assert hashed == [2, 2, 2, 2, 2, 1]


def test_graphs_compute_trees_anew(gpu: gx.PersistentVulkanBackend) -> None:
    hash = gx.hashes.SHA256
    first, second, third = np.random.default_rng(1).integers(0, 256, (3, 4, 32), np.uint8)
    x, leaf = gpu.to_device(first), gpu.to_device(first[:1])
    with gpu.graph(x) as graph:
        tree = MerkleTree(x, hash=hash)
    other = MerkleTree(gpu.to_device(first), hash=hash)
    with gpu.graph(leaf) as update:
        other.update([2], leaf)
    for leaves in (second, third):
        graph(gpu.to_device(leaves))
        assert_equal_trees(tree, MerkleTree(leaves, hash=hash))
        assert MerkleTree.verify(tree.root, 3, leaves[3], tree.open(3), hash=hash)
        update(gpu.to_device(leaves[:1]))
        expected = np.concatenate([first[:2], leaves[:1], first[3:]])
        assert np.array_equal(other.root, MerkleTree(expected, hash=hash).root)


def test_refusals() -> None:
    hash, leaves = draw_nodes("bytes", 8)
    tree = MerkleTree(leaves, hash=hash)
    root = bytes(tree.root)
    with pytest.raises(ElementIndexError, match=r"update: there is no leaf 8"):
        tree.update(8, leaves[0])
    with pytest.raises(ArgumentShapeError, match="2 indices and 1 leaves"):
        tree.update([0, 1], leaves[:1])
    with pytest.raises(ArgumentShapeError, match=r"shape \(31,\); the leaves of the tree have"):
        tree.update([0], leaves[:1, :31])
    with pytest.raises(ArgumentTypeError, match="of float64"):
        tree.update([0], leaves[:1].astype(float))
    hashed = MerkleTree(leaves[:, :5], hash=hash)
    with pytest.raises(ArgumentShapeError, match=r"shape \(32,\)"):
        hashed.update([0], leaves[:1])  # would be a node
    assert bytes(tree.root) == root
    sorted_tree = MerkleTree(leaves, hash=KECCAK256, format="openzeppelin")
    with pytest.raises(ArgumentValueError, match="build a new tree"):
        sorted_tree.update([0], leaves[:1])
