"""`TreeHash`: how a format hashes leaves and nodes with a hash function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.backend import Backend
from gpu_executor.calls.arguments import describe, is_integer, is_masked
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementRangeError,
)
from gpu_executor.fields import Field, FieldArray
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle.nodes import Nodes, fetch

Message = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Format:
    """What formats differ in."""

    name: str
    is_of_bytes: bool = False
    """Whether the format is one of byte hashes and of binary trees."""
    leaf_prefix: bytes = b""
    node_prefix: bytes = b""
    sorts: bool = False
    """Whether leaves, and the two children of a node, are sorted."""
    leaf_hashes: int = 1
    """How many times a leaf is hashed that is not a node."""
    has_node_leaves: bool = True
    """Whether a leaf as wide as a digest is a node."""


FORMATS = {
    "plain": Format("plain"),
    "imt": Format("imt"),
    "openzeppelin": Format("openzeppelin", is_of_bytes=True, sorts=True, leaf_hashes=2),
    "rfc6962": Format(
        "rfc6962",
        is_of_bytes=True,
        leaf_prefix=b"\x00",
        node_prefix=b"\x01",
        has_node_leaves=False,
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The leaves that a caller gave, of one shape, or messages of different lengths."""

    rows: Nodes | None
    """An array of (n, length), of nodes or of what is hashed; None for messages."""
    messages: Sequence[Message]
    are_nodes: bool

    def __len__(self) -> int:
        return len(self.messages) if self.rows is None else len(self.rows)

    @property
    def row_shape(self) -> Shape | None:
        """The shape of one leaf; None for messages."""
        return None if self.rows is None else tuple(self.rows.shape[1:])


class TreeHash:
    """A hash function, and the rules of a format for leaves and nodes."""

    def __init__(
        self, call: str, hash: HashFunction, format: str, arity: int, hash_leaves: bool
    ) -> None:
        """Check the arguments, which both a tree and the verification of a proof have.

        Args:
            call (str): The name of the call, for messages.
            hash (HashFunction): The hash function.
            format (str): The name of the format.
            arity (int): The number of children of a node.
            hash_leaves (bool): Whether leaves as wide as a digest are hashed.
        """
        if not isinstance(hash, HashFunction):
            raise ArgumentTypeError(
                f"{call}: hash is {describe(hash)}; it must be a hash function of gx.hashes"
            )
        if not isinstance(format, str):
            raise ArgumentTypeError(f"{call}: format is {describe(format)}; it must be a str")
        if format not in FORMATS:
            raise ArgumentValueError(
                f"{call}: there is no format {format!r}; there are {', '.join(FORMATS)}"
            )
        if not is_integer(arity):
            raise ArgumentTypeError(f"{call}: arity is {describe(arity)}; it must be an integer")
        if not isinstance(hash_leaves, bool | np.bool_):
            raise ArgumentTypeError(
                f"{call}: hash_leaves is {describe(hash_leaves)}; it must be True or False"
            )
        self.call, self.hash, self.format, self.arity = call, hash, FORMATS[format], int(arity)
        self.field: Field | None = hash.field if isinstance(hash, FieldHash) else None
        """The field of the nodes; None for bytes."""
        if self.arity < 2:
            raise ArgumentValueError(f"{call}: arity is {arity}; it must be 2 or more")
        if self.format.is_of_bytes and self.arity != 2:
            raise ArgumentValueError(
                f"{call}: arity is {arity}; trees in the format {format!r} are binary"
            )
        if self.format.is_of_bytes and self.field is not None:
            raise ArgumentTypeError(
                f"{call}: the format {format!r} is one of byte hashes, and {hash.name} hashes "
                f"elements of {self.field.name}; use 'plain' or 'imt'"
            )
        self._hashes_nodes = bool(hash_leaves) or not self.format.has_node_leaves

    @property
    def digest_shape(self) -> Shape:
        """The shape of a node."""
        return self.hash.digest_shape

    @property
    def digest_bytes(self) -> int:
        """The bytes of a node in memory."""
        item = 1 if self.field is None else self.field.layout.element_bytes
        return math.prod(self.digest_shape) * item

    # --- arguments ---

    def check_array(self, name: str, array: Any) -> None:
        """Raise `ArgumentTypeError` unless an argument is an array of what the function hashes."""
        if self.field is None:
            right = isinstance(array, np.ndarray | DeviceArray) and array.dtype == np.uint8
            wanted = "an array of uint8"
        else:
            right = isinstance(array, FieldArray) and array.field == self.field
            wanted = f"an array of {self.field.name}"
        if not right or is_masked(array):
            dtype = f" of {array.dtype}" if isinstance(array, np.ndarray | DeviceArray) else ""
            other = f" of {array.field.name}" if isinstance(array, FieldArray) else ""
            raise ArgumentTypeError(
                f"{self.call}: {name} is {describe(array)}{dtype}{other}; {self.hash.name} hashes "
                f"{wanted}{' without a mask' if is_masked(array) else ''}"
            )

    def load_leaves(self, leaves: Any) -> Leaves:
        """The leaves that a caller gave.

        Args:
            leaves (array or list): An array of one leaf along the first axis, or messages.

        Raises:
            ArgumentTypeError: They are no array of what the function hashes.
            ArgumentShapeError: The array has too many axes, or too few.
        """
        if self.format.is_of_bytes and isinstance(leaves, list | tuple):
            for index, each in enumerate(leaves):
                if not isinstance(each, bytes | bytearray | memoryview):
                    raise ArgumentTypeError(
                        f"{self.call}: leaves[{index}] is {describe(each)}; a list has bytes"
                    )
            return Leaves(None, [bytes(each) for each in leaves], are_nodes=False)
        if isinstance(leaves, list | tuple):
            raise ArgumentTypeError(
                f"{self.call}: leaves is {describe(leaves)}; the format {self.format.name!r} takes "
                "an array, and the formats 'openzeppelin' and 'rfc6962' lists of bytes too"
            )
        self.check_array("leaves", leaves)
        shape = tuple(leaves.shape)
        if len(shape) == 1 and self.field is not None and (self.digest_shape or self._hashes_nodes):
            leaves = leaves.reshape(-1, 1)  # an element each
        if shape[1:] == self.digest_shape and shape and not self._hashes_nodes:
            return Leaves(leaves, (), are_nodes=True)
        if leaves.ndim != 2:
            wanted = "(n, length)" if self.field is None else "(n,) or (n, length)"
            raise ArgumentShapeError(
                f"{self.call}: leaves has the shape {shape}; it must be {wanted}"
            )
        return Leaves(leaves, (), are_nodes=False)

    # --- hashing ---

    def hash_leaves(self, leaves: Leaves, device: Backend | None = None) -> Nodes:
        """The nodes of leaves, where the leaves are; those that are nodes themselves as they are.

        Args:
            leaves (Leaves): The leaves.
            device (Backend): What hashes leaves of the host; None: the host.
        """
        if leaves.are_nodes:
            return leaves.rows
        hash: Any = self.hash
        prefix = self.format.leaf_prefix
        options = {"prefix": prefix} if prefix else {}
        if leaves.rows is not None:
            nodes = hash.hash(leaves.rows, device=device, **options)
        elif len({len(each) for each in leaves.messages}) == 1:
            joined = np.frombuffer(b"".join(leaves.messages), np.uint8)
            nodes = hash.hash(joined.reshape(len(leaves), -1), device=device, **options)
        elif leaves.messages:
            nodes = hash.hash_many([prefix + each for each in leaves.messages], device=device)
        else:
            nodes = np.empty((0, *self.digest_shape), np.uint8)
        for _ in range(self.format.leaf_hashes - 1):
            nodes = hash.hash(nodes, device=device)
        return nodes

    def compress(self, children: Nodes, device: Backend | None = None) -> Nodes:
        """The parents of nodes.

        Args:
            children (array): The nodes, `arity` for each parent.
            device (Backend): What hashes nodes of the host; None: the host.
        """
        hash: Any = self.hash
        options: dict[str, Any] = {}
        if self.format.node_prefix:
            options["prefix"] = self.format.node_prefix
        if self.format.sorts:
            options["sort"] = True
        return hash.compress(children, self.arity, device=device, **options)

    # --- nodes on the host ---

    def load_nodes(self, name: str, nodes: Any) -> Nodes:
        """A copy of nodes on the host, whose elements are checked.

        Args:
            name (str): The name of the argument.
            nodes (array or bytes): An array, or the bytes of one digest.

        Raises:
            ElementRangeError: An element is not below the modulus.
        """
        if self.field is None and isinstance(nodes, bytes | bytearray | memoryview):
            return np.frombuffer(bytes(nodes), np.uint8)
        self.check_array(name, nodes)
        found = fetch(nodes)
        if self.field is None:
            return np.array(found)
        return self.field.from_words(np.array(found.words()), found.form)

    def decode_nodes(self, values: Any) -> Nodes:
        """Nodes as `encode_nodes` writes them.

        Args:
            values (list): A string for each node, or a list; integers for elements too.

        Raises:
            ArgumentValueError: They are no nodes of this function.
        """
        size = math.prod(self.digest_shape)
        try:
            if self.field is None:
                rows = [decode_bytes(each) for each in values]
                if any(len(each) != size for each in rows):
                    raise ValueError(f"a digest has {size} bytes")
                return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, size)
            if not len(values):
                return self.field.zeros((0, *self.digest_shape))
            nodes = self.field.encode(_to_integers(values))
            if nodes.shape[1:] != self.digest_shape:
                raise ValueError(f"a digest has the shape {self.digest_shape}")
            return nodes
        except (ValueError, TypeError, ElementRangeError) as error:
            raise ArgumentValueError(
                f"{self.call}: what is given is no list of digests of {self.hash.name}: {error}"
            ) from None


def encode_nodes(nodes: Nodes) -> list[Any]:
    """Nodes of the host for JSON: a hexadecimal string for bytes, a decimal string for an element,
    a list of them for several."""
    if isinstance(nodes, FieldArray):
        found: list[Any] = _to_strings(nodes.tolist())
        return found
    return [encode_bytes(each) for each in nodes]


def encode_bytes(data: Any) -> str:
    """Bytes as a hexadecimal string."""
    return "0x" + bytes(data).hex()


def decode_bytes(text: Any) -> bytes:
    """The bytes of a hexadecimal string; raises TypeError or ValueError for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"{describe(text)} is no hexadecimal string")
    digits = text.removeprefix("0x")
    if not all(each in "0123456789abcdefABCDEF" for each in digits):  # fromhex ignores spaces
        raise ValueError(f"{text!r} is no hexadecimal string")
    return bytes.fromhex(digits)


def _to_strings(values: Any) -> Any:
    return [_to_strings(each) for each in values] if isinstance(values, list) else str(values)


def _to_integers(values: Any) -> Any:
    """Integers of nested lists of integers and decimal strings."""
    if isinstance(values, list | tuple):
        return [_to_integers(each) for each in values]
    if isinstance(values, str):
        if not (values.isascii() and values.isdigit()):
            raise ValueError(f"{values!r} is no decimal number")
        return int(values)
    if not is_integer(values):
        raise TypeError(f"{describe(values)} is no integer")
    return int(values)
