"""Leaves and options of trees in every format."""

from __future__ import annotations

from typing import Any

import numpy as np

import gpu_executor as gx
from gpu_executor.merkle import MerkleTree
from tests.support.toy_hashes import KECCAK256, SHA256, ToyFieldHash


def make_field_hashes() -> dict[str, ToyFieldHash]:
    """Hash functions with digests of one element and of several."""
    return {
        "element": ToyFieldHash(gx.fields.BN254_FR, ()),
        "elements": ToyFieldHash(gx.fields.BABYBEAR, (8,)),
    }


def draw_nodes(kind: str, count: int, seed: int = 0) -> tuple[Any, Any]:
    """A hash function of that kind, and as many of its digests on the host."""
    if kind == "bytes":
        rng = np.random.default_rng(seed)
        return SHA256, rng.integers(0, 256, (count, 32), dtype=np.uint8)
    hash = make_field_hashes()[kind]
    return hash, hash.field.random((count, *hash.digest_shape), seed=seed)


def draw_messages(count: int, seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(rng.integers(1, 9))) for _ in range(count)]


def make_case(name: str) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """A hash function, leaves, and the options of a tree and of `verify`."""
    shared: dict[str, Any] = {}
    more: dict[str, Any] = {}
    if name == "plain bytes":
        hash, leaves = draw_nodes("bytes", 4)
    elif name == "plain arity 4":
        hash, leaves = draw_nodes("bytes", 16)
        shared = {"arity": 4}
    elif name == "plain cap":
        hash, leaves = draw_nodes("bytes", 8)
        more = {"cap": 2}
    elif name == "plain rows":
        hash, leaves = SHA256, np.random.default_rng(1).integers(0, 256, (4, 3), dtype=np.uint8)
    elif name == "plain element":
        hash, leaves = draw_nodes("element", 4)
    elif name == "plain elements":
        hash, leaves = draw_nodes("elements", 4)
        shared = {"hash_leaves": True}
    elif name == "imt":
        hash, leaves = draw_nodes("element", 5)
        shared, more = {"format": "imt"}, {"depth": 3}
    elif name == "openzeppelin":
        hash, leaves, shared = KECCAK256, draw_messages(6), {"format": "openzeppelin"}
    elif name == "openzeppelin nodes":
        rows = np.random.default_rng(2).integers(0, 256, (5, 32), dtype=np.uint8)
        hash, leaves, shared = KECCAK256, rows, {"format": "openzeppelin"}
    else:
        hash, leaves, shared = SHA256, draw_messages(5), {"format": "rfc6962"}
    return hash, leaves, {**shared, **more}, shared


CASES = [
    "plain bytes",
    "plain arity 4",
    "plain cap",
    "plain rows",
    "plain element",
    "plain elements",
    "imt",
    "openzeppelin",
    "openzeppelin nodes",
    "rfc6962",
]


def choose(leaves: Any, indices: list[int]) -> Any:
    return [leaves[index] for index in indices] if isinstance(leaves, list) else leaves[indices]


def get_root(tree: MerkleTree) -> Any:
    return tree.cap if len(tree.cap) > 1 else tree.root
