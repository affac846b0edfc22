"""Building the levels of a tree: on the host, on a device, or streamed through a device.

On a device nothing waits for the host: every level is submitted as soon as the one below is. A tree
that does not fit into the memory of the device is built of subtrees, whose levels are copied to the
host while the next subtree is computed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from gpu_executor.arrays.typed_array import get_words
from gpu_executor.backend import Backend
from gpu_executor.calls.dispatch import ArrayDevice, upload
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.merkle.nodes import Nodes, fetch, find_place, join, wrap
from gpu_executor.merkle.tree_hash import Leaves, TreeHash

SUBTREES_IN_FLIGHT = 2
"""Subtrees that a device holds at once: one is computed while the other is copied to the host."""


@dataclass(slots=True, eq=False)
class Builder:
    """Makes the levels of a tree of a given depth."""

    tree_hash: TreeHash
    depth: int
    """The number of levels above the leaves."""
    zeroes: Nodes | None = None
    """The nodes of every level that stand for absent ones, on the host; None in trees that have
    none."""
    hasher: Backend | None = None
    """What hashes arrays of the host; None: the host itself."""

    def build(self, nodes: Nodes, first: int = 0, stop: int | None = None) -> list[Nodes]:
        """Levels in the place of the nodes, which are not waited for.

        Args:
            nodes (array): The nodes of level `first`.
            first (int): Their level.
            stop (int): The last level; None: that of the root.
        """
        levels = [nodes]
        for level in range(first, self.depth if stop is None else stop):
            levels[-1] = self._pad(levels[-1], level)
            levels.append(self.compress(levels[-1]))
        return levels

    def build_on(self, device: ArrayDevice, leaves: Leaves, memory: int) -> list[Nodes]:
        """Levels on a device, or on the host if they do not fit.

        Args:
            device (ArrayDevice): The device.
            leaves (Leaves): The leaves, on the host or on this device.
            memory (int): The bytes that the tree and its leaves may take on the device.
        """
        if leaves.rows is None:
            nodes = self.tree_hash.hash_leaves(leaves, self.hasher)
            leaves = Leaves(nodes, (), are_nodes=True)
        if self.count_bytes(leaves) <= memory:
            return self.build(self._load(device, leaves, 0, len(leaves)))
        return self._stream(device, leaves, memory)

    def make_leaf_nodes(self, device: ArrayDevice | None, leaves: Leaves, memory: int) -> Nodes:
        """The nodes of the leaves alone, on the device if the tree fits into its memory.

        Args:
            device (ArrayDevice): The device; None: the host.
            leaves (Leaves): The leaves, on the host or on this device.
            memory (int): The bytes that the tree and its leaves may take on the device.
        """
        on_host = leaves.rows is None or find_place(leaves.rows) is None
        if device is None or leaves.rows is None or self.count_bytes(leaves) > memory:
            nodes = fetch(self.tree_hash.hash_leaves(leaves, self.hasher if on_host else None))
            if device is None or len(leaves) * 2 * self.tree_hash.digest_bytes > memory:
                return nodes
            return upload(device, nodes)
        return self._load(device, leaves, 0, len(leaves))

    def count_bytes(self, leaves: Leaves) -> int:
        """The bytes that a tree takes on a device, with those of its leaves while they are
        hashed."""
        return len(leaves) * self._count_bytes_of_leaf(leaves) + self.depth * 256

    def _count_bytes_of_leaf(self, leaves: Leaves) -> int:
        arity, nodes = self.tree_hash.arity, self.tree_hash.digest_bytes
        rows: Any = leaves.rows
        own = 0
        if not leaves.are_nodes and find_place(rows) is None and len(rows):
            own = rows.nbytes // len(rows)
        return own + nodes + -(-nodes // (arity - 1))

    def _load(self, device: ArrayDevice, leaves: Leaves, start: int, stop: int) -> Nodes:
        """The nodes of some of the leaves on the device, in memory of their own."""
        rows: Any = leaves.rows
        part = rows[start:stop]
        if find_place(part) is None:
            part = upload(device, part)
        elif leaves.are_nodes:
            part = part.copy()
        return self.tree_hash.hash_leaves(Leaves(part, (), leaves.are_nodes))

    def _pad(self, nodes: Nodes, level: int) -> Nodes:
        """The nodes of a level, with nodes that stand for absent children of its last parent."""
        absent = -len(nodes) % self.tree_hash.arity
        if self.zeroes is None or not absent:
            return nodes
        zero = self.zeroes[level : level + 1]
        device = find_place(nodes)
        if device is not None:
            zero = upload(device, zero)
        return join([nodes, *[zero] * absent])

    def compress(self, nodes: Nodes) -> Nodes:
        """The level above. Where the last node has no siblings, it is carried on."""
        hasher = self.hasher if find_place(nodes) is None else None
        if len(nodes) % self.tree_hash.arity:
            full = [self.tree_hash.compress(nodes[:-1], hasher)] if len(nodes) > 1 else []
            return join([*full, nodes[-1:]])
        return self.tree_hash.compress(nodes, hasher)

    # --- streamed ---

    def _stream(self, device: ArrayDevice, leaves: Leaves, memory: int) -> list[Nodes]:
        """Levels on the host, of subtrees that the device computes."""
        arity = self.tree_hash.arity
        if not self.depth:
            step = max(memory // self._count_bytes_of_leaf(leaves), 1)
            parts = range(0, len(leaves), step)
            return [join([fetch(self._load(device, leaves, at, at + step)) for at in parts])]
        levels: list[Nodes] = []
        first = 0
        while first < self.depth:
            height = 1
            each = SUBTREES_IN_FLIGHT * self._count_bytes_of_leaf(leaves)
            while height < self.depth - first and each * arity ** (height + 1) <= memory:
                height += 1
            made = self._stream_subtrees(device, leaves, first, height)
            levels[first:] = made
            leaves, first = Leaves(made[-1], (), are_nodes=True), first + height
        return levels

    def _stream_subtrees(
        self, device: ArrayDevice, leaves: Leaves, first: int, height: int
    ) -> list[Nodes]:
        """The levels from `first` to `first + height`, on the host."""
        rows: Any = leaves.rows
        on_host = leaves.are_nodes and find_place(rows) is None
        size, chunk = len(leaves), self.tree_hash.arity**height
        made: list[Nodes] = [None] * (height + 1)
        words: list[Any] = [None] * (height + 1)
        if on_host:
            made[0] = self._pad(rows.copy(), first)
        pending: deque[tuple[int, list[Nodes]]] = deque()

        def fetch_oldest() -> None:
            start, levels = pending.popleft()
            for level in range(int(on_host), height + 1):
                part = get_words(levels[level])
                at = start // self.tree_hash.arity**level
                if words[level] is None:
                    length = -(-size // self.tree_hash.arity**level)
                    if self.zeroes is not None and level < height:
                        length += -length % self.tree_hash.arity
                    words[level] = np.empty((length, *part.shape[1:]), part.dtype)
                    made[level] = wrap(levels[level], words[level])
                device.fetch(part, words[level][at : at + len(part)])

        for start in range(0, size, chunk):
            nodes = self._load(device, leaves, start, min(start + chunk, size))
            pending.append((start, self.build(nodes, first, first + height)))
            if len(pending) == SUBTREES_IN_FLIGHT:
                fetch_oldest()
        while pending:
            fetch_oldest()
        return made
