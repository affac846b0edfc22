"""Merkle trees written from their definitions, one node at a time, and hash functions to compare
with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from Crypto.Hash import keccak

Node = Any
HashNodes = Callable[[Sequence[Node]], Node]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def keccak256(data: bytes) -> bytes:
    return bytes(keccak.new(digest_bits=256, data=data).digest())


def compute_root(nodes: Sequence[Node], arity: int, hash_nodes: HashNodes) -> Node:
    """The root of a full tree, by recursion from the top."""
    if len(nodes) == 1:
        return nodes[0]
    part = len(nodes) // arity
    return hash_nodes(
        [
            compute_root(nodes[start : start + part], arity, hash_nodes)
            for start in range(0, len(nodes), part)
        ]
    )


def compute_zero_padded_root(
    nodes: Sequence[Node], depth: int, arity: int, zero: Node, hash_nodes: HashNodes
) -> Node:
    """The root of @zk-kit/imt: absent leaves are `zero`."""
    if depth == 0:
        return nodes[0] if nodes else zero
    part = arity ** (depth - 1)
    return hash_nodes(
        [
            compute_zero_padded_root(
                nodes[start * part : (start + 1) * part], depth - 1, arity, zero, hash_nodes
            )
            for start in range(arity)
        ]
    )


def _split(count: int) -> int:
    """The largest power of two smaller than `count`."""
    return 1 << ((count - 1).bit_length() - 1)


def compute_rfc6962_root(messages: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1."""
    if not messages:
        return sha256(b"")
    if len(messages) == 1:
        return sha256(b"\x00" + messages[0])
    k = _split(len(messages))
    return sha256(b"\x01" + compute_rfc6962_root(messages[:k]) + compute_rfc6962_root(messages[k:]))


def compute_rfc6962_path(index: int, messages: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1."""
    if len(messages) == 1:
        return []
    k = _split(len(messages))
    if index < k:
        return [*compute_rfc6962_path(index, messages[:k]), compute_rfc6962_root(messages[k:])]
    return [*compute_rfc6962_path(index - k, messages[k:]), compute_rfc6962_root(messages[:k])]


def compute_heap(leaves: Sequence[bytes]) -> list[bytes]:
    """The array of nodes of @openzeppelin/merkle-tree."""
    count = len(leaves)
    nodes = [b""] * (count - 1) + sorted(leaves, reverse=True)
    for index in range(count - 2, -1, -1):
        nodes[index] = keccak256(b"".join(sorted(nodes[2 * index + 1 : 2 * index + 3])))
    return nodes
