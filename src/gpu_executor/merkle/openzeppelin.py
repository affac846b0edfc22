"""Trees of npm's `@openzeppelin/merkle-tree`: sorted leaves in the order of a heap.

A tree of n leaves is an array of 2 n - 1 nodes. The children of node i are 2 i + 1 and 2 i + 2, and
the leaves are the last n nodes, in descending order of their bytes. The two children of a node are
sorted before they are hashed, so a root says which leaves there are, and not where they are.

A proof of several leaves takes nodes from a queue, at first the leaves in ascending order of their
bytes. A flag says whether the first two nodes of the queue are siblings, or the sibling of the
first one comes from the proof. Their parent goes to the end of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.merkle.nodes import Nodes, Positions
from gpu_executor.merkle.tree_hash import TreeHash


def sort_digests(digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """The order of digests as byte strings; equal ones stay in their order."""
    columns = np.ascontiguousarray(digests).view(">u4").astype(np.uint32)
    first = columns[:, 0].astype(np.uint64)
    if columns.shape[1] > 1:
        first = first << np.uint64(32) | columns[:, 1]
    order = np.argsort(first, kind="stable")
    if (np.diff(first[order]) == 0).any():  # rare: the first 8 bytes of two digests are equal
        order = np.lexsort(columns.T[::-1])
    return order


@dataclass(frozen=True, slots=True)
class HeapShape:
    """Where the nodes of a heap of leaves are. Level 0 is its last row, which has leaves alone."""

    count: int

    @property
    def rows(self) -> int:
        """The number of rows above the last one."""
        return (2 * self.count - 1).bit_length() - 1

    @property
    def last_row(self) -> int:
        """The number of nodes of the last row, all of them leaves."""
        return 2 * self.count - (1 << self.rows)

    def find_leaf(self, rank: Positions) -> Positions:
        """The nodes of leaves, given their places in ascending order of their bytes."""
        return 2 * self.count - 2 - rank

    def open(self, nodes: Positions) -> tuple[list[Positions], tuple[bool, ...]]:
        """What a proof of leaves needs: the positions of its nodes in each level, and the flags.

        Args:
            nodes (numpy.ndarray): The leaves as nodes of the heap, each one once.
        """
        missing, flags = [], []
        known: Positions = np.empty(0, np.int64)
        for row in range(self.rows, 0, -1):
            start = (1 << row) - 1
            leaves = nodes[(nodes >= start) & (nodes <= 2 * start)] - start
            known = np.sort(np.concatenate([known, leaves]))[::-1]
            groups, first, counts = np.unique(known // 2, return_index=True, return_counts=True)
            groups, first, counts = groups[::-1], first[::-1], counts[::-1]
            alone = known[first[counts == 1]]
            missing.append(alone ^ 1)
            flags += (counts == 2).tolist()
            known = groups
        return missing, tuple(flags)


def verify_nodes(
    tree_hash: TreeHash,
    root: Nodes,
    digests: Nodes,
    nodes: Nodes,
    flags: Sequence[bool],
    count: int | None,
) -> bool:
    """Whether flags and nodes of a proof lead from digests of leaves to a root.

    Args:
        tree_hash (TreeHash): How nodes are hashed.
        root (array): The root.
        digests (array): The digests of the leaves, at least one, in ascending order.
        nodes (array): The nodes of the proof.
        flags (sequence of bool): Its flags.
        count (int): The number of leaves of the tree; None if that is not known.
    """
    leaves, given, steps = len(digests), len(nodes), len(flags)
    if leaves + given != steps + 1 or steps - sum(flags) != given:
        return False
    # Values by number: leaves, nodes of the proof, results.
    queue, taken = list(range(leaves)), leaves
    children = np.empty((steps, 2), np.intp)
    heights = [0] * (leaves + given + steps)
    head = 0
    for step, both in enumerate(flags):
        if len(queue) - head < 1 + both:
            return False
        one, head = queue[head], head + 1
        if both:
            other, head = queue[head], head + 1
        else:
            other, taken = taken, taken + 1
        children[step] = one, other
        heights[leaves + given + step] = 1 + max(heights[one], heights[other])
        queue.append(leaves + given + step)
    if count is not None and not _fits_heap(count, leaves, leaves + given, children):
        return False
    values = np.concatenate([digests, nodes])
    values = np.concatenate([values, np.zeros((steps, *tree_hash.digest_shape), np.uint8)])
    levels = np.array(heights[leaves + given :])
    for level in range(1, int(levels.max(initial=0)) + 1):
        chosen = np.flatnonzero(levels == level)
        values[leaves + given + chosen] = tree_hash.compress(values[children[chosen].ravel()])
    return bool(np.array_equal(values[-1], root))


def _fits_heap(count: int, leaves: int, given: int, children: npt.NDArray[np.intp]) -> bool:
    """Whether every leaf of a proof is as far from the root as leaves of a heap are."""
    if count < leaves:
        return False
    rows = HeapShape(count).rows
    depths = [0] * (given + len(children))
    for step in range(len(children) - 1, -1, -1):
        for child in children[step]:
            depths[child] = depths[given + step] + 1
    least = rows if count == 1 << rows else rows - 1
    return all(least <= depth <= rows for depth in depths[:leaves])
