"""`MerkleProof`: the nodes that lead from opened leaves to the root."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np

from gpu_executor.arrays.typed_array import get_words
from gpu_executor.calls.arguments import describe, is_integer
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import FieldArray
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle.nodes import Nodes
from gpu_executor.merkle.tree_hash import FORMATS, TreeHash, encode_nodes


class MerkleProof:
    """The nodes that a verifier needs beside the opened leaves, on the host; it cannot be changed.

    Nodes that follow from the opened leaves, or that two of them share, are not repeated. The
    nodes come from the leaves to the root, those of one level by position: in ascending order, in
    the format "openzeppelin" in the order of that package. What a proof says about itself,
    `count` above all, is the word of whoever wrote it.
    """

    __slots__ = ("arity", "count", "flags", "format", "indices", "nodes")

    format: str
    """The format of the tree."""
    arity: int
    """The number of children of a node."""
    count: int | None
    """The number of leaves that the tree has room for: that of its leaves, `arity ** depth` for
    "imt", None for "openzeppelin"."""
    nodes: Nodes
    """The nodes, of shape (number, *digest_shape): a NumPy array, or an array of a field."""
    flags: tuple[bool, ...] | None
    """For "openzeppelin": whether the next two nodes are both known, or the second one comes from
    the proof (`proofFlags`)."""
    indices: tuple[int, ...] | None
    """For "openzeppelin", whose root does not say where a leaf is: the indices that were opened, in
    ascending order of the nodes of their leaves, if they are known."""

    def __init__(
        self,
        format: str,
        arity: int,
        count: int | None,
        nodes: Nodes,
        flags: Sequence[bool] | None = None,
        indices: Sequence[int] | None = None,
    ) -> None:
        """Make a proof of its parts; `MerkleTree.open` does.

        Args:
            format (str): The format of the tree.
            arity (int): The number of children of a node.
            count (int): The number of leaves; None for "openzeppelin".
            nodes (array): The nodes on the host, which are copied.
            flags (sequence of bool): For "openzeppelin" alone.
            indices (sequence of int): For "openzeppelin" alone.
        """
        if not isinstance(format, str) or not is_integer(arity):
            raise ArgumentTypeError(
                f"MerkleProof: format is {describe(format)} and arity {describe(arity)}; they must "
                "be a str and an integer"
            )
        is_sorted = format in FORMATS and FORMATS[format].sorts
        if is_sorted != (count is None) or is_sorted != (flags is not None):
            raise ArgumentTypeError(
                "MerkleProof: a proof in the format 'openzeppelin' has flags and no count, and any "
                f"other a count and no flags; the format is {format!r}"
            )
        if not (count is None or is_integer(count)):
            raise ArgumentTypeError(f"MerkleProof: count is {describe(count)}, not an integer")
        if flags is not None and not _is_list(flags, lambda each: isinstance(each, bool)):
            raise ArgumentTypeError("MerkleProof: flags is a list of True and False")
        if indices is not None and not (is_sorted and _is_list(indices, is_integer)):
            raise ArgumentTypeError(
                "MerkleProof: indices are integers, and only for the format 'openzeppelin'"
            )
        words = get_words(nodes)
        if not isinstance(words, np.ndarray):
            raise ArgumentTypeError(
                f"MerkleProof: nodes is {describe(nodes)}; it must be an array on the host"
            )
        own = np.array(words)
        own.flags.writeable = False
        values = {
            "format": format,
            "arity": int(arity),
            "count": None if count is None else int(count),
            "nodes": nodes.wrap_like(own) if isinstance(nodes, FieldArray) else own,
            "flags": None if flags is None else tuple(map(bool, flags)),
            "indices": None if indices is None else tuple(map(int, indices)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"a MerkleProof cannot be changed; {name} stays as it is")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"a MerkleProof cannot be changed; {name} stays as it is")

    def __reduce__(self) -> tuple[Any, ...]:
        return MerkleProof, tuple(
            getattr(self, name)
            for name in ("format", "arity", "count", "nodes", "flags", "indices")
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MerkleProof):
            return NotImplemented
        names = ("format", "arity", "count", "flags", "indices")
        alike = type(self.nodes) is type(other.nodes) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )
        if alike and isinstance(self.nodes, FieldArray):
            alike = self.nodes.field == other.nodes.field
        return alike and bool(np.array_equal(self.nodes, other.nodes))

    def __hash__(self) -> int:
        return hash((self.format, self.arity, self.count, self.flags, self.indices, len(self)))

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @property
    def nbytes(self) -> int:
        """The bytes of the nodes, and of the flags as bits."""
        flags = 0 if self.flags is None else math.ceil(len(self.flags) / 8)
        return int(self.nodes.nbytes) + flags

    def __repr__(self) -> str:
        of = "" if self.count is None else f" of a tree of {self.count} leaves"
        return f"<MerkleProof{of}, {self.format!r}: {len(self)} nodes, {self.nbytes} bytes>"

    def to_dict(self) -> dict[str, Any]:
        """The proof for JSON: `format`, `arity`, `count` and `nodes`, and `flags` and `indices` for
        "openzeppelin".

        A node of bytes is a hexadecimal string with "0x", an element a decimal string, and a node
        of several elements a list of these.
        """
        found: dict[str, Any] = {
            "format": self.format,
            "arity": self.arity,
            "count": self.count,
            "nodes": encode_nodes(self.nodes),
        }
        if self.flags is not None:
            found["flags"] = list(self.flags)
            found["indices"] = None if self.indices is None else list(self.indices)
        return found

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], hash: HashFunction) -> MerkleProof:
        """The proof that `to_dict` wrote.

        Args:
            document (dict): What `to_dict` returned, also after a way through JSON.
            hash (HashFunction): The hash function of the tree.

        Raises:
            ArgumentTypeError: An entry has the wrong type.
            ArgumentValueError: An entry is missing, or the nodes are no digests of the function.
        """
        names = {"format", "arity", "count", "nodes", "flags", "indices"}
        if not isinstance(document, Mapping):
            raise ArgumentTypeError(
                f"MerkleProof.from_dict: the document is {describe(document)}, not a dict"
            )
        lacks = {"format", "arity", "count", "nodes"} - set(document)
        if lacks or set(document) - names:
            raise ArgumentValueError(
                f"MerkleProof.from_dict: a document has format, arity, count and nodes; this one "
                f"has {', '.join(map(str, document)) or 'nothing'}"
            )
        if not isinstance(document["nodes"], list):
            raise ArgumentTypeError("MerkleProof.from_dict: nodes must be a list")
        nodes = TreeHash("MerkleProof.from_dict", hash, "plain", 2, False).decode_nodes(
            document["nodes"]
        )
        return cls(
            document["format"],
            document["arity"],
            document["count"],
            nodes,
            document.get("flags"),
            document.get("indices"),
        )


def _is_list(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(values, list | tuple) and all(map(is_right, values))
