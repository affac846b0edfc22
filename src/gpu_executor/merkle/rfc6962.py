"""Consistency proofs of RFC 6962: that a log has only grown (section 2.1.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_executor.calls.arguments import describe, is_integer
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle.nodes import Nodes, Positions
from gpu_executor.merkle.shape import MAX_LEAVES
from gpu_executor.merkle.tree_hash import TreeHash


def _split(count: int) -> int:
    """The number of leaves of the left child of a node over `count` leaves."""
    return 1 << ((count - 1).bit_length() - 1)


def list_consistency_nodes(old: int, count: int) -> list[tuple[int, int]]:
    """The nodes of a consistency proof, each as its level and its position.

    Args:
        old (int): The number of leaves of the older tree, from 1 to `count`.
        count (int): The number of leaves of the tree.
    """
    found: list[tuple[int, int]] = []

    def add(start: int, stop: int) -> None:
        level = (stop - start - 1).bit_length()
        found.append((level, start >> level))

    def prove(start: int, stop: int, old: int, is_old_root: bool) -> None:
        size = stop - start
        if old == size:
            if not is_old_root:
                add(start, stop)
            return
        middle = start + _split(size)
        if old <= middle - start:
            prove(start, middle, old, is_old_root)
            add(middle, stop)
        else:
            prove(middle, stop, old - (middle - start), False)
            add(start, middle)

    prove(0, count, old, True)
    return found


def group_by_level(nodes: list[tuple[int, int]], levels: int) -> tuple[list[Positions], Positions]:
    """Positions of nodes in every level, and where each of the nodes is when the levels follow one
    another."""
    positions = [
        np.array([position for each, position in nodes if each == level], np.int64)
        for level in range(levels)
    ]
    order = np.argsort([level for level, _ in nodes], kind="stable")
    places = np.empty(len(nodes), np.int64)
    places[order] = np.arange(len(nodes))
    return positions, places


def verify_consistency(
    old_root: Any, old_count: Any, root: Any, count: Any, nodes: Any, hash: HashFunction
) -> bool:
    """What `MerkleTree.verify_consistency` does."""
    call = "MerkleTree.verify_consistency"
    tree_hash = TreeHash(call, hash, "rfc6962", 2, hash_leaves=False)
    for name, value in (("old_count", old_count), ("count", count)):
        if not is_integer(value):
            raise ArgumentTypeError(f"{call}: {name} is {describe(value)}, not an integer")
    shape = tree_hash.digest_shape
    old, new = (
        tree_hash.load_nodes(*each).reshape(-1) for each in (("old_root", old_root), ("root", root))
    )
    given = tree_hash.load_nodes("nodes", nodes)
    if old.shape != shape or new.shape != shape or given.ndim != 2 or given.shape[1:] != shape:
        return False
    old_count, count = int(old_count), int(count)
    if not 0 <= old_count <= count <= MAX_LEAVES:
        return False
    if old_count == 0:
        empty = hash.hash(np.empty((1, 0), np.uint8))[0]
        is_empty = not len(given) and np.array_equal(old, empty)
        return is_empty and (count > 0 or np.array_equal(new, empty))
    rest = iter(given)
    try:
        found = _compute_roots(tree_hash, old_count, count, old, rest, is_old_root=True)
    except StopIteration:
        return False
    is_used_up = next(rest, None) is None
    return is_used_up and np.array_equal(found[0], old) and np.array_equal(found[1], new)


def _compute_roots(
    tree_hash: TreeHash, old: int, count: int, root: Nodes, nodes: Iterator[Any], is_old_root: bool
) -> tuple[Nodes, Nodes]:
    """The roots over the older leaves and over all leaves below a node."""
    if old == count:
        node = root if is_old_root else next(nodes)
        return node, node
    left = _split(count)
    if old <= left:
        older, newer = _compute_roots(tree_hash, old, left, root, nodes, is_old_root)
        return older, _hash_pair(tree_hash, newer, next(nodes))
    older, newer = _compute_roots(tree_hash, old - left, count - left, root, nodes, False)
    sibling = next(nodes)
    return _hash_pair(tree_hash, sibling, older), _hash_pair(tree_hash, sibling, newer)


def _hash_pair(tree_hash: TreeHash, left: Nodes, right: Nodes) -> Nodes:
    return tree_hash.compress(np.stack([left, right]))[0]
