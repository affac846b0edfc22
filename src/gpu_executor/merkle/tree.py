"""`MerkleTree`: the levels of a tree in the place where they were computed, and proofs of its
leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.typed_array import get_words
from gpu_executor.backend import Backend
from gpu_executor.calls.arguments import describe, is_integer
from gpu_executor.calls.dispatch import ArrayDevice, upload
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    ElementIndexError,
)
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle import documents, openzeppelin, rfc6962
from gpu_executor.merkle.levels import Builder
from gpu_executor.merkle.nodes import (
    Nodes,
    Positions,
    fetch,
    find_place,
    join,
    put,
    take,
    take_levels,
)
from gpu_executor.merkle.openzeppelin import HeapShape
from gpu_executor.merkle.proof import MerkleProof
from gpu_executor.merkle.shape import MAX_LEAVES, TreeShape, count_levels
from gpu_executor.merkle.tree_hash import Leaves, TreeHash
from gpu_executor.merkle.verification import Indices, parse_indices, verify

NAME = "MerkleTree"


class MerkleTree:
    """A Merkle tree over a hash function of bytes or of field elements.

    The nodes stay where they are computed: on the host, or on a device as device arrays. A tree
    that does not fit into the memory of a device is computed there in parts, and its nodes are on
    the host.

    A leaf as wide as a digest is a node, unless `hash_leaves` says that it is hashed first. Leaves
    of another width are hashed first. Formats:

    - "plain": the number of leaves is a power of the arity.
    - "imt", as npm's `@zk-kit/imt`: up to `arity ** depth` leaves; nodes without leaves have the
      hashes of `zero`.
    - "openzeppelin", as npm's `@openzeppelin/merkle-tree`, with KECCAK256: leaves and the two
      children of a node are sorted. Leaves as wide as a digest are nodes, as in SimpleMerkleTree;
      others, messages of a list, and all with `hash_leaves`, are hashed twice, as in
      StandardMerkleTree.
    - "rfc6962": any number of leaves, all of which are hashed, with the prefix 00; nodes have the
      prefix 01.
    """

    def __init__(
        self,
        leaves: Any,
        *,
        hash: HashFunction,
        device: Backend | None = None,
        arity: int = 2,
        cap: int = 1,
        format: str = "plain",
        hash_leaves: bool = False,
        depth: int | None = None,
        zero: Any = None,
        memory: int | None = None,
    ) -> None:
        """Build the tree.

        Args:
            leaves (array or list): Bytes as a NumPy array or a device array of uint8 of shape (n,
                length); elements as an array of the hash function's field of shape (n,) or (n,
                length); for "openzeppelin" and "rfc6962" also a list of bytes.
            hash (HashFunction): The hash function, one of `gx.hashes`.
            device (Backend): The executor or backend that computes a tree of leaves on the host;
                None: the host. Leaves on a device are computed there.
            arity (int): The number of children of a node.
            cap (int): The number of roots, a power of the arity: the level of so many nodes is the
                last one. For "plain" alone.
            format (str): "plain", "imt", "openzeppelin" or "rfc6962".
            hash_leaves (bool): Whether leaves as wide as a digest are hashed too.
            depth (int): For "imt": the number of levels above the leaves; None: the smallest one.
            zero (int or array or bytes): For "imt": the leaf that stands for absent ones; None: 0.
            memory (int): The bytes that the tree may take on a device; None: what is free there. A
                larger tree is computed in parts, and is on the host.

        Raises:
            ArgumentTypeError: An argument has the wrong type.
            ArgumentShapeError: The leaves have a shape that does not fit.
            ArgumentValueError: An argument has a value that does not fit the others.
        """
        tree_hash = TreeHash(NAME, hash, format, arity, hash_leaves)
        given = tree_hash.load_leaves(leaves)
        if memory is not None and not is_integer(memory):
            raise ArgumentTypeError(f"{NAME}: memory is {describe(memory)}, not a number of bytes")
        if memory is not None and memory < 0:
            raise ArgumentValueError(f"{NAME}: memory is {memory}; it must be 0 or more")
        for name, value in (("depth", depth), ("zero", zero)):
            if value is not None and format != "imt":
                raise ArgumentValueError(f"{NAME}: {name} is for the format 'imt', not {format!r}")
        self._tree_hash = tree_hash
        self._count = len(given)
        self._row_shape = given.row_shape
        self._are_nodes = given.are_nodes
        self._place = _choose_place(given, device)
        self._hasher = device
        self._roots: Nodes | None = None
        self._levels: list[Nodes] | None = None
        self._zeroes: Nodes | None = None
        self._ranks: Positions | None = None
        roots = _check_cap(cap, tree_hash.arity, format)
        if format == "imt":
            depth = self._choose_depth(depth)
            self._zeroes = self._compute_zeroes(zero, depth)
        self._shape = self._choose_shape(roots, depth)
        self._build(given, memory)

    # --- construction ---

    def _choose_depth(self, depth: Any) -> int:
        arity, least = self.arity, 0
        while arity**least < self._count:
            least += 1
        if depth is None:
            return least
        if not is_integer(depth):
            raise ArgumentTypeError(f"{NAME}: depth is {describe(depth)}, not an integer")
        if depth < least:
            raise ArgumentValueError(
                f"{NAME}: depth is {depth}; {self._count} leaves need a depth of {least}"
            )
        if arity ** int(depth) > MAX_LEAVES:
            raise ArgumentValueError(
                f"{NAME}: depth is {depth}; a tree has room for 2^62 leaves at most"
            )
        return int(depth)

    def _compute_zeroes(self, zero: Any, depth: int) -> Nodes:
        """The nodes of each level that stand for absent ones, the root of an empty tree last."""
        tree_hash = self._tree_hash
        shape = (1, *tree_hash.digest_shape)
        field = tree_hash.field
        node: Nodes
        if zero is None:
            node = np.zeros(shape, np.uint8) if field is None else field.zeros(shape)
        elif field is not None and is_integer(zero):
            node = field.full(shape, zero) if not tree_hash.digest_shape else None
        else:
            node = tree_hash.load_nodes("zero", zero)
            node = node.reshape(shape) if node.shape == shape[1:] else None
        if node is None:
            raise ArgumentShapeError(
                f"{NAME}: zero is no digest of {tree_hash.hash.name}, of shape {shape[1:]}"
            )
        found = [node]
        for _ in range(depth):
            found.append(tree_hash.compress(join([found[-1]] * self.arity)))
        return join(found)

    def _choose_shape(self, roots: int, depth: int | None) -> TreeShape | None:
        """The shape of the tree; None for heaps, and for a tree without leaves."""
        count, arity, format = self._count, self.arity, self.format
        if format == "openzeppelin":
            if not count:
                raise ArgumentShapeError(f"{NAME}: leaves is empty; there must be a leaf at least")
            return None
        if format == "rfc6962":
            return TreeShape.ragged(count) if count else None
        if format == "imt":
            assert depth is not None
            return TreeShape.full(arity**depth, arity)
        if count_levels(count, arity) is None:
            raise ArgumentShapeError(
                f"{NAME}: there are {count} leaves; the format 'plain' takes a power of the arity "
                f"{arity}. Add leaves, or use the format 'imt' or 'rfc6962'"
            )
        if roots > count:
            raise ArgumentValueError(f"{NAME}: cap is {roots}, and there are {count} leaves")
        return TreeShape.full(count, arity, roots)

    def _build(self, leaves: Leaves, memory: int | None) -> None:
        tree_hash = self._tree_hash
        shape, heap = self._shape, HeapShape(self._count)
        depth = heap.rows if self.format == "openzeppelin" else shape.depth if shape else 0
        builder = Builder(tree_hash, depth, self._zeroes, self._hasher)
        limit = 0
        if self._place is not None:
            limit = self._place.free_memory if memory is None else int(memory)
        if not self._count:
            self._levels = []
        elif self.format == "openzeppelin":
            self._levels = self._build_heap(builder, leaves, limit)
        elif self._place is None:
            nodes = tree_hash.hash_leaves(leaves, self._hasher)
            self._levels = builder.build(nodes.copy() if leaves.are_nodes else nodes)
        else:
            self._levels = builder.build_on(self._place, leaves, limit)

    def _build_heap(self, builder: Builder, leaves: Leaves, limit: int) -> list[Nodes]:
        """The rows of a heap, the last one first. The host sorts the leaves."""
        heap = HeapShape(self._count)
        flat = builder.make_leaf_nodes(self._place, leaves, limit)
        order = openzeppelin.sort_digests(fetch(flat))
        self._ranks = np.empty(self._count, np.int64)
        self._ranks[order] = np.arange(self._count)
        descending = order[::-1].astype(np.int64)
        above = self._count - heap.last_row
        levels = [take(flat, descending[above:])]
        if above:
            leaves_above = take(flat, descending[:above])
            levels.append(join([builder.compress(levels[0]), leaves_above]))
        first = len(levels) - 1
        return [*levels[:-1], *builder.build(levels[-1], first)]

    # --- what the tree is ---

    @property
    def hash(self) -> HashFunction:
        """The hash function."""
        return self._tree_hash.hash

    @property
    def arity(self) -> int:
        """The number of children of a node."""
        return self._tree_hash.arity

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._tree_hash.format.name

    @property
    def depth(self) -> int:
        """The number of levels above the leaves."""
        if self.format == "openzeppelin":
            return HeapShape(self._count).rows
        return 0 if self._shape is None else self._shape.depth

    def __len__(self) -> int:
        """The number of leaves."""
        return self._count

    @property
    def levels(self) -> tuple[Nodes, ...]:
        """The nodes, level by level, from those of the leaves to the roots, where they are.

        They are the tree's own memory. A level of "imt" ends with the nodes that stand for absent
        children; level 0 of "openzeppelin" is the last row of the heap.
        """
        return tuple(self._use_levels())

    @property
    def place(self) -> ArrayDevice | None:
        """The device that holds the nodes; None for the host."""
        levels = self._use_levels()
        return find_place(levels[0]) if levels else None

    @property
    def nbytes(self) -> int:
        """The bytes of the nodes."""
        return sum(get_words(level).nbytes for level in self._use_levels())

    @property
    def ranks(self) -> Positions:
        """For "openzeppelin": the places of the leaves in ascending order of their nodes."""
        if self._ranks is None:
            raise ArgumentValueError(f"{NAME}.ranks: only the format 'openzeppelin' sorts leaves")
        return self._ranks

    @property
    def cap(self) -> Nodes:
        """The roots on the host, of shape (cap, *digest_shape), read-only."""
        levels = self._use_levels()
        if self._roots is None:
            if levels:
                roots = fetch(levels[-1])
            elif self._zeroes is not None:
                roots = self._zeroes[-1:]
            else:
                roots = self.hash.hash(np.empty((1, 0), np.uint8))  # RFC 6962: of nothing
            roots = self._tree_hash.load_nodes("root", roots)
            get_words(roots).flags.writeable = False
            if levels and find_place(levels[-1]) is not None:
                return roots  # a graph that computes the levels may run again
            self._roots = roots
        return self._roots

    @property
    def root(self) -> Nodes:
        """The root on the host, of shape digest_shape; for a tree with several roots `cap` has
        them."""
        roots = self.cap
        if len(roots) > 1:
            raise ArgumentValueError(
                f"{NAME}.root: the tree has {len(roots)} roots; tree.cap has them"
            )
        return roots[0]

    def __repr__(self) -> str:
        start = f"<MerkleTree of {self._count} leaves, {self.hash.name}, {self.format!r}"
        if self._levels is None:
            return f"{start}, closed>"
        place = self.place
        where = f"{self.nbytes} bytes on {'the host' if place is None else place.info.name}"
        return f"{start}, arity {self.arity}, {len(self._levels)} levels, {where}>"

    def close(self) -> None:
        """Drop the nodes; the memory of device arrays is free when nothing else holds them. Closing
        twice does nothing."""
        self._levels = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _use_levels(self) -> list[Nodes]:
        if self._levels is None:
            raise ClosedError(f"{NAME}: the tree is closed; build it again")
        return self._levels

    # --- opening ---

    def open(self, indices: Indices) -> MerkleProof:
        """A proof that leaves are in the tree.

        Args:
            indices (int or list or numpy.ndarray): The leaves, in any order; repeats are allowed,
                negative indices are not.

        Raises:
            ArgumentTypeError: They are no integers.
            ArgumentShapeError: There are none, or they have several axes.
            ElementIndexError: There is no such leaf.
        """
        levels, positions = self._use_levels(), self._check_indices("open", indices)
        if self._ranks is not None:
            heap = HeapShape(self._count)
            opened = np.unique(positions)
            opened = opened[np.argsort(self._ranks[opened])]
            missing, flags = heap.open(heap.find_leaf(self._ranks[opened]))
            nodes = self._take(levels, missing)
            return MerkleProof(self.format, 2, None, nodes, flags, opened.tolist())
        assert self._shape is not None
        needed = [level.missing for level in self._shape.open(np.unique(positions))]
        nodes = self._take(levels, needed)
        return MerkleProof(self.format, self.arity, self._shape.sizes[0], nodes)

    @staticmethod
    def _take(levels: Sequence[Nodes], missing: Sequence[Positions]) -> Nodes:
        return take_levels(levels[: len(missing)] or levels[:1], missing or [np.empty(0, np.int64)])

    def _check_indices(self, method: str, indices: Indices) -> Positions:
        call = f"{NAME}.{method}"
        positions = parse_indices(call, indices)
        if positions is not None and not len(positions):
            raise ArgumentShapeError(f"{call}: indices is empty; give one index at least")
        if positions is None or positions.min() < 0 or positions.max() >= self._count:
            bad = next(
                each for each in np.ravel(np.array(indices, object)) if not 0 <= each < self._count
            )
            raise ElementIndexError(
                f"{call}: there is no leaf {bad}; there are {self._count}, from 0 on, and negative "
                "indices are not taken"
            )
        return positions

    @staticmethod
    def verify(
        root: Any,
        indices: Indices,
        leaves: Any,
        proof: MerkleProof,
        *,
        hash: HashFunction,
        arity: int = 2,
        format: str = "plain",
        hash_leaves: bool = False,
        count: int | None = None,
    ) -> bool:
        """Whether a proof shows that a tree with this root has these leaves; computed on the host.

        The verifier knows the root, the hash function, the arity, the format, the width of a leaf
        and whether leaves are hashed. A root alone does not say how many leaves there are: without
        `count` the verifier takes the word of the proof for it, and whoever writes the proof may
        then show a node of the tree as a leaf of a smaller tree, if leaves are nodes or have the
        length of the children of a node. Give `count` unless you trust the prover. A leaf as wide
        as a digest is taken for a node: where the leaves of the tree are hashed, give
        `hash_leaves=True`, also if they have another width, or a node passes as a leaf. A proof in
        the format "openzeppelin" shows that leaves are in the tree, not where: the indices are
        compared with those that the proof states, and `count` keeps inner nodes out only if it is a
        power of two.

        Args:
            root (array or bytes): `tree.root`, or `tree.cap` of a tree with several roots.
            indices (int or list or numpy.ndarray): The indices of the leaves, in any order; repeats
                are allowed. None for "openzeppelin": wherever they are, each one once.
            leaves (array or list): The leaf of each index; the one leaf for a single integer.
            proof (MerkleProof): What `tree.open` returned.
            hash (HashFunction): As in the tree; so are `arity`, `format` and `hash_leaves`.
            arity (int): The number of children of a node.
            format (str): The format of the tree.
            hash_leaves (bool): Whether leaves as wide as a digest are hashed.
            count (int): The number of leaves of the tree (`arity ** depth` for "imt"), where the
                verifier knows it; None takes the number that the proof states.

        Returns:
            True, or False for whatever does not match: no index, an index out of range, leaves of
            another shape, missing nodes, nodes that are not needed, elements above the modulus.

        Raises:
            ArgumentTypeError: An argument has the wrong type.
            ArgumentValueError: There is no such format, or it does not have this arity.
        """
        return verify(root, indices, leaves, proof, hash, arity, format, hash_leaves, count)

    def prove_consistency(self, old_count: int) -> npt.NDArray[np.uint8]:
        """The consistency proof of RFC 6962 that the tree begins with the leaves of an older one,
        for the format "rfc6962".

        Args:
            old_count (int): The number of leaves of the older tree.

        Returns:
            The nodes on the host, of shape (number, digest size).
        """
        call = f"{NAME}.prove_consistency"
        if self.format != "rfc6962":
            raise ArgumentValueError(f"{call}: the format is {self.format!r}, not 'rfc6962'")
        if not is_integer(old_count):
            raise ArgumentTypeError(f"{call}: old_count is {describe(old_count)}, not an integer")
        if not 0 <= old_count <= self._count:
            raise ArgumentValueError(
                f"{call}: old_count is {old_count}; the tree has {self._count} leaves"
            )
        wanted = rfc6962.list_consistency_nodes(int(old_count), self._count) if old_count else []
        if not wanted:
            return np.empty((0, *self.hash.digest_shape), np.uint8)
        levels = self._use_levels()
        positions, places = rfc6962.group_by_level(wanted, len(levels))
        nodes: npt.NDArray[np.uint8] = take_levels(levels, positions)[places]
        return nodes

    @staticmethod
    def verify_consistency(
        old_root: Any,
        old_count: int,
        root: Any,
        count: int,
        nodes: Any,
        *,
        hash: HashFunction,
    ) -> bool:
        """Whether a consistency proof of RFC 6962 shows that a tree begins with the leaves of an
        older one; computed on the host.

        Args:
            old_root (array or bytes): The root of the older tree.
            old_count (int): The number of its leaves.
            root (array or bytes): The root of the tree.
            count (int): The number of its leaves.
            nodes (array): What `prove_consistency` returned.
            hash (HashFunction): The hash function of both trees.

        Returns:
            True, or False for whatever does not match.

        Raises:
            ArgumentTypeError: An argument has the wrong type.
        """
        return rfc6962.verify_consistency(old_root, old_count, root, count, nodes, hash)

    # --- changing leaves ---

    def update(self, indices: Indices, leaves: Any) -> None:
        """Replace leaves, and compute the nodes above them; nothing waits for a device.

        Proofs that were opened before do not match the new root.

        Args:
            indices (int or list or numpy.ndarray): The leaves to replace. Where an index is there
                several times, the last leaf is written, as in NumPy.
            leaves (array or list): Their new values, in the form that the constructor took.

        Raises:
            ArgumentValueError: The format is "openzeppelin", whose leaves are sorted.
        """
        call = f"{NAME}.update"
        levels, positions = self._use_levels(), self._check_indices("update", indices)
        if self._ranks is not None:
            raise ArgumentValueError(
                f"{call}: leaves in the format 'openzeppelin' are sorted, so that a new leaf moves "
                "others; build a new tree"
            )
        new = self._load_new(call, indices, leaves, len(positions))
        # The last of the leaves of an index: the first one from the end.
        known, last = np.unique(positions[::-1], return_index=True)
        new = take(new, len(positions) - 1 - last)
        shape, arity = self._shape, self.arity
        assert shape is not None
        self._roots = None
        levels[0] = put(levels[0], known, new)
        hasher = self._hasher if self.place is None else None
        for level, size in enumerate(shape.sizes[:-1]):
            parents = np.unique(known // arity)
            children = (parents[:, None] * arity + np.arange(arity)).ravel()
            nodes = take(levels[level], children[children < size])
            if len(nodes) == len(children):
                values = self._tree_hash.compress(nodes, hasher)
            elif len(nodes) == 1:
                values = nodes
            else:
                values = join([self._tree_hash.compress(nodes[:-1], hasher), nodes[-1:]])
            levels[level + 1] = put(levels[level + 1], parents, values)
            known = parents

    def _load_new(self, call: str, indices: Indices, leaves: Any, count: int) -> Nodes:
        """New leaves as nodes in the place of the tree."""
        tree_hash = self._tree_hash
        if is_integer(indices) and not isinstance(indices, np.ndarray):
            if isinstance(leaves, bytes | bytearray | memoryview):
                leaves = [leaves]
            elif not isinstance(leaves, list | tuple):
                tree_hash.check_array("leaves", leaves)
                leaves = leaves.reshape(1, *leaves.shape)
        given = tree_hash.load_leaves(leaves)
        if len(given) != count:
            raise ArgumentShapeError(f"{call}: there are {count} indices and {len(given)} leaves")
        own, new = self._row_shape, given.row_shape
        if given.are_nodes != self._are_nodes or (own != new and None not in (own, new)):
            raise ArgumentShapeError(
                f"{call}: a leaf has the shape {new}; the leaves of the tree have {own}"
            )
        place = self.place
        there = None if given.rows is None else find_place(given.rows)
        if there is not None and there is not place:
            raise ArgumentTypeError(
                f"{call}: the leaves are on {there.info.name}, and the tree is on "
                f"{'the host' if place is None else place.info.name}; copy them there"
            )
        if place is not None and there is None and given.rows is not None:
            given = Leaves(upload(place, given.rows), (), given.are_nodes)
        nodes = tree_hash.hash_leaves(given, self._hasher if place is None else None)
        if place is not None and find_place(nodes) is None:
            nodes = upload(place, nodes)
        return nodes

    # --- what other packages read and write ---

    def export_proof(self, indices: Indices) -> Any:
        """Proofs in the shape that packages of the tree's format have.

        - "imt": a dict of root, leaf, leafIndex, pathIndices and siblings, of which there is a list
          for each level; a list of these dicts for several indices.
        - "openzeppelin": the list of siblings; for several indices, each one once, a dict of leaves
          (their nodes), proof and proofFlags.
        - "rfc6962": a dict of leaf_index, tree_size and audit_path, in base64; a list of these
          dicts for several indices.

        Bytes are hexadecimal strings if not said otherwise, and elements decimal strings.

        Args:
            indices (int or list or numpy.ndarray): The leaves.
        """
        positions = self._check_indices("export_proof", indices)
        is_single = is_integer(indices) and not isinstance(indices, np.ndarray)
        return documents.export_proof(self, positions.tolist(), is_single)

    @staticmethod
    def import_proof(
        document: Any, *, hash: HashFunction, format: str, arity: int = 2
    ) -> MerkleProof:
        """The proof that a package of that format wrote, in a shape of `export_proof`.

        Args:
            document (dict or list): The proof; for "imt" `pathElements` may stand for siblings, and
                a node for a list of one.
            hash (HashFunction): The hash function of the tree.
            format (str): "imt", "openzeppelin" or "rfc6962".
            arity (int): The number of children of a node.

        Raises:
            ArgumentValueError: It is no proof of this format.
        """
        return documents.import_proof(document, hash, format, arity)

    def dump(
        self, values: Sequence[Any] | None = None, leaf_encoding: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The document that `dump()` of npm's `@openzeppelin/merkle-tree` returns, for the format
        "openzeppelin".

        Args:
            values (list): The values of the leaves, for a StandardMerkleTree; None: the nodes
                themselves, for a SimpleMerkleTree.
            leaf_encoding (list of str): Their ABI types.
        """
        return documents.dump(self, values, leaf_encoding)

    @classmethod
    def load(
        cls, document: Any, *, hash: HashFunction, device: Backend | None = None
    ) -> MerkleTree:
        """The tree that `dump` wrote, or npm's `@openzeppelin/merkle-tree` with sorted leaves. It
        is computed again from the nodes of its leaves, and compared.

        Args:
            document (dict): The document.
            hash (HashFunction): The hash function of the tree.
            device (Backend): The device that computes it; None: the host.

        Raises:
            ArgumentValueError: The document is no such tree, or its nodes do not match.
        """
        nodes, leaves = documents.read_tree(document, hash)
        tree = cls(leaves, hash=hash, device=device, format="openzeppelin")
        if documents.list_heap(tree) != nodes:
            raise ArgumentValueError(
                f"{NAME}.load: the nodes do not follow from the leaves; the tree has other sorting "
                "or another hash function, or is damaged"
            )
        return tree


def _choose_place(leaves: Leaves, device: Any) -> ArrayDevice | None:
    """The device on which a tree is computed; None for the host."""
    if not (device is None or isinstance(device, Backend)):
        raise ArgumentTypeError(
            f"{NAME}: device is {describe(device)}; it must be an executor or a backend, or None"
        )
    there = None if leaves.rows is None else find_place(leaves.rows)
    if there is None:
        return None if device is None else device.array_device
    if device is not None and not any(each is there for each in device.array_devices):
        raise ArgumentTypeError(
            f"{NAME}: the leaves are on {there.info.name}, which is not a device of the argument "
            "`device`; leave that out, or copy the leaves"
        )
    return there


def _check_cap(cap: Any, arity: int, format: str) -> int:
    if not is_integer(cap):
        raise ArgumentTypeError(f"{NAME}: cap is {describe(cap)}; it must be a number of roots")
    if cap < 1 or count_levels(int(cap), arity) is None:
        raise ArgumentValueError(f"{NAME}: cap is {cap}; it must be a power of the arity {arity}")
    if cap > 1 and format != "plain":
        raise ArgumentValueError(
            f"{NAME}: cap is {cap}; trees in the format {format!r} have one root"
        )
    return int(cap)
