"""`TreeShape`: how many nodes the levels of a tree have, and which nodes an opening needs.

A node has `arity` children, neighbours in the level below. In a tree of RFC 6962 the last node of
an odd level has no sibling: it is also the last node of the level above.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.merkle.nodes import Positions

MAX_LEAVES = 1 << 62
"""Leaves that a tree has room for at most: their positions are 64-bit integers."""


def count_levels(count: int, arity: int) -> int | None:
    """The exponent of a power of the arity; None if the number is no power of it."""
    exponent, power = 0, 1
    while power < count:
        power *= arity
        exponent += 1
    return exponent if power == count else None


@dataclass(frozen=True, slots=True)
class OpenedLevel:
    """What an opening needs of one level, to compute the parents of the nodes that it has."""

    missing: Positions
    """The nodes that the proof brings, in ascending order."""
    order: npt.NDArray[np.intp]
    """Where the children of `parents` are, in the order of their positions: the known nodes come
    first, then the missing ones."""
    parents: Positions
    """The nodes of the level above that are known then, in ascending order."""
    carried: bool
    """Whether the last of the parents is the last child itself."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The levels of a tree, from the leaves to the roots."""

    arity: int
    sizes: tuple[int, ...]
    """The number of nodes of every level."""

    @classmethod
    def full(cls, count: int, arity: int, roots: int = 1) -> TreeShape:
        """A tree whose nodes all have `arity` children.

        Args:
            count (int): The number of leaves, a power of the arity.
            arity (int): The number of children of a node.
            roots (int): The number of nodes of the last level, a power of the arity.
        """
        sizes = [count]
        while sizes[-1] > roots:
            sizes.append(sizes[-1] // arity)
        return cls(arity, tuple(sizes))

    @classmethod
    def ragged(cls, count: int) -> TreeShape:
        """A binary tree of any number of leaves, as RFC 6962 has it.

        Args:
            count (int): The number of leaves, not 0.
        """
        sizes = [count]
        while sizes[-1] > 1:
            sizes.append((sizes[-1] + 1) // 2)
        return cls(2, tuple(sizes))

    @property
    def depth(self) -> int:
        """The number of levels above the leaves."""
        return len(self.sizes) - 1

    def open(self, positions: Positions) -> Iterator[OpenedLevel]:
        """What an opening needs of every level below the roots.

        Args:
            positions (numpy.ndarray): The opened leaves, in ascending order and each one once.
        """
        known = positions
        for size in self.sizes[:-1]:
            opened = self._open_level(known, size)
            yield opened
            known = opened.parents

    def _open_level(self, known: Positions, size: int) -> OpenedLevel:
        parents = np.unique(known // self.arity)
        children = (parents[:, None] * self.arity + np.arange(self.arity)).ravel()
        children = children[children < size]
        at = np.searchsorted(known, children)
        is_known = known[np.minimum(at, len(known) - 1)] == children
        is_missing = ~is_known
        order = np.where(is_known, at, len(known) + np.cumsum(is_missing) - 1)
        return OpenedLevel(
            missing=children[is_missing],
            order=order,
            parents=parents,
            carried=len(children) < len(parents) * self.arity,
        )
