"""Proofs and trees as other packages read and write them: dicts and lists for JSON."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gpu_executor.calls.arguments import is_integer
from gpu_executor.errors import ArgumentShapeError, ArgumentValueError
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle.nodes import Nodes, Positions, fetch, take_levels
from gpu_executor.merkle.openzeppelin import HeapShape
from gpu_executor.merkle.proof import MerkleProof
from gpu_executor.merkle.shape import MAX_LEAVES
from gpu_executor.merkle.tree_hash import TreeHash, encode_nodes


class ReadableTree(Protocol):
    """What is read of a `MerkleTree`."""

    @property
    def format(self) -> str: ...

    @property
    def arity(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def levels(self) -> tuple[Nodes, ...]: ...

    @property
    def cap(self) -> Nodes: ...

    @property
    def ranks(self) -> Positions: ...

    def open(self, indices: Any) -> MerkleProof: ...

    def __len__(self) -> int: ...


def export_proof(tree: ReadableTree, indices: list[int], is_single: bool) -> Any:
    """What `MerkleTree.export_proof` does.

    Args:
        tree (MerkleTree): The tree.
        indices (list of int): Leaves of the tree.
        is_single (bool): Whether one proof is asked for, or a list of proofs.
    """
    if tree.format == "plain":
        raise ArgumentValueError(
            "MerkleTree.export_proof: the format 'plain' is no other package's; "
            "tree.open(indices).to_dict() is the proof for JSON"
        )
    if tree.format == "openzeppelin":
        return _export_openzeppelin(tree, indices, is_single)
    write = _write_imt if tree.format == "imt" else _write_rfc6962
    found = [write(tree, index) for index in indices]
    return found[0] if is_single else found


def import_proof(document: Any, hash: HashFunction, format: str, arity: int) -> MerkleProof:
    """What `MerkleTree.import_proof` does.

    Args:
        document (dict or list): The proof.
        hash (HashFunction): The hash function of the tree.
        format (str): The format.
        arity (int): The number of children of a node.
    """
    call = "MerkleTree.import_proof"
    tree_hash = TreeHash(call, hash, format, arity, hash_leaves=False)
    if format not in _READERS:
        raise ArgumentValueError(
            f"{call}: the format {format!r} is no other package's; MerkleProof.from_dict reads a "
            "proof that to_dict wrote"
        )
    try:
        return _READERS[format](tree_hash, document)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ArgumentValueError(
            f"{call}: the document is no proof in the format {format!r}: "
            f"{type(error).__name__}: {error}"
        ) from None


# --- @zk-kit/imt ---


def _write_imt(tree: ReadableTree, index: int) -> dict[str, Any]:
    siblings = encode_nodes(tree.open(index).nodes)
    each = tree.arity - 1
    return {
        "root": encode_nodes(tree.cap)[0],
        "leaf": encode_nodes(fetch(tree.levels[0][index : index + 1]))[0],
        "leafIndex": index,
        "pathIndices": [index // tree.arity**level % tree.arity for level in range(tree.depth)],
        "siblings": [siblings[each * level : each * (level + 1)] for level in range(tree.depth)],
    }


def _read_imt(tree_hash: TreeHash, document: Any) -> MerkleProof:
    siblings = document["siblings" if "siblings" in document else "pathElements"]
    arity, depth = tree_hash.arity, len(document["pathIndices"])
    if len(siblings) != depth or arity**depth > MAX_LEAVES:
        raise ValueError(f"there are {depth} pathIndices and {len(siblings)} levels of siblings")
    is_node = bool(tree_hash.digest_shape) and tree_hash.field is not None
    levels = []
    for each in siblings:
        level = each if isinstance(each, list) else [each]
        if is_node and level and not isinstance(level[0], list):
            level = [level]  # a node of several elements, without its list
        if len(level) != arity - 1:
            raise ValueError(f"a level has {len(level)} siblings; the arity is {arity}")
        levels += level
    index = sum(
        _check_digit(each, arity) * arity**level
        for level, each in enumerate(document["pathIndices"])
    )
    if document.get("leafIndex", index) != index:
        raise ValueError(f"leafIndex is {document['leafIndex']}, and pathIndices say {index}")
    return MerkleProof("imt", arity, arity**depth, tree_hash.decode_nodes(levels))


def _check_digit(digit: Any, arity: int) -> int:
    if not is_integer(digit) or not 0 <= digit < arity:
        raise ValueError(f"{digit!r} is no position among {arity} children")
    return int(digit)


# --- @openzeppelin/merkle-tree ---


def _export_openzeppelin(tree: ReadableTree, indices: list[int], is_single: bool) -> Any:
    if len(set(indices)) < len(indices):
        raise ArgumentShapeError(
            "MerkleTree.export_proof: an index is there twice; multiproofs have each leaf once"
        )
    proof = tree.open(indices)
    if is_single:
        return encode_nodes(proof.nodes)
    heap = list_heap(tree)
    positions = sorted(find_heap_positions(tree, indices), reverse=True)
    return {
        "leaves": [heap[position] for position in positions],
        "proof": encode_nodes(proof.nodes),
        "proofFlags": list(proof.flags or ()),
    }


def _read_openzeppelin(tree_hash: TreeHash, document: Any) -> MerkleProof:
    if isinstance(document, Mapping):
        nodes, flags = document["proof"], document["proofFlags"]
    else:
        nodes, flags = document, None
    if not isinstance(nodes, list):
        raise TypeError("the siblings are no list")
    flags = [False] * len(nodes) if flags is None else flags
    return MerkleProof("openzeppelin", 2, None, tree_hash.decode_nodes(nodes), flags)


def find_heap_positions(tree: ReadableTree, indices: Sequence[int]) -> list[int]:
    """The nodes of leaves in the array of a tree's nodes."""
    ranks = tree.ranks
    return [HeapShape(len(tree)).find_leaf(ranks[index]).item() for index in indices]


def list_heap(tree: ReadableTree) -> list[str]:
    """The array of a tree's nodes, the root first."""
    levels = tree.levels
    everything = take_levels(levels, [np.arange(len(level)) for level in levels])
    rows, start = [], 0
    for level in levels:
        rows.append(encode_nodes(everything[start : start + len(level)]))
        start += len(level)
    return [each for row in reversed(rows) for each in row]


def dump(
    tree: ReadableTree, values: Sequence[Any] | None, leaf_encoding: Sequence[str] | None
) -> dict[str, Any]:
    """What `MerkleTree.dump` does.

    Args:
        tree (MerkleTree): The tree.
        values (list): The values of the leaves, or None.
        leaf_encoding (list of str): Their ABI types, or None.
    """
    call = "MerkleTree.dump"
    if tree.format != "openzeppelin":
        raise ArgumentValueError(
            f"{call}: the format is {tree.format!r}; trees in the format 'openzeppelin' are dumped"
        )
    if (values is None) != (leaf_encoding is None):
        raise ArgumentValueError(f"{call}: values and leaf_encoding go together")
    heap, positions = list_heap(tree), find_heap_positions(tree, range(len(tree)))
    if values is not None and len(values) != len(tree):
        raise ArgumentShapeError(f"{call}: there are {len(tree)} leaves and {len(values)} values")
    listed = [heap[position] for position in positions] if values is None else values
    document: dict[str, Any] = {"format": "simple-v1"}
    if leaf_encoding is not None:
        document = {"format": "standard-v1", "leafEncoding": list(leaf_encoding)}
    document["tree"] = heap
    document["values"] = [
        {"value": value, "treeIndex": position}
        for value, position in zip(listed, positions, strict=True)
    ]
    return document


def read_tree(document: Any, hash: HashFunction) -> tuple[list[str], Nodes]:
    """The nodes of a dumped tree as strings, and those of its leaves as an array.

    Args:
        document (dict): The document.
        hash (HashFunction): The hash function of the tree.
    """
    call = "MerkleTree.load"
    tree_hash = TreeHash(call, hash, "openzeppelin", 2, hash_leaves=False)
    try:
        if document["format"] not in ("simple-v1", "standard-v1"):
            raise ValueError(f"its format is {document['format']!r}")
        nodes = document["tree"]
        places = [each["treeIndex"] for each in document["values"]]
        if sorted(places) != list(range(len(nodes) - len(places), len(nodes))):
            raise ValueError("its values are not those of the last nodes")
        leaves = tree_hash.decode_nodes([nodes[place] for place in places])
        return [str(each).lower() for each in nodes], leaves
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ArgumentValueError(
            f"{call}: the document is no tree that @openzeppelin/merkle-tree dumped: "
            f"{type(error).__name__}: {error}"
        ) from None


# --- RFC 6962 ---


def _write_rfc6962(tree: ReadableTree, index: int) -> dict[str, Any]:
    nodes = tree.open(index).nodes
    path = [base64.b64encode(bytes(each)).decode() for each in nodes]
    return {"leaf_index": index, "tree_size": len(tree), "audit_path": path}


def _read_rfc6962(tree_hash: TreeHash, document: Any) -> MerkleProof:
    count = document["tree_size"]
    if not is_integer(count):
        raise TypeError(f"tree_size is {count!r}")
    path = []
    for each in document["audit_path"]:
        try:
            path.append("0x" + base64.b64decode(each, validate=True).hex())
        except binascii.Error as error:
            raise ValueError(f"{each!r} is not in base64: {error}") from None
    return MerkleProof("rfc6962", 2, count, tree_hash.decode_nodes(path))


_READERS: dict[str, Callable[[TreeHash, Any], MerkleProof]] = {
    "imt": _read_imt,
    "openzeppelin": _read_openzeppelin,
    "rfc6962": _read_rfc6962,
}
