"""Pairwise choice: few combinations of several factors in which every two values still meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations, product
from typing import Any

Combination = tuple[Any, ...]
Pair = tuple[tuple[int, Any], tuple[int, Any]]
"""Two factors by their numbers, each with one of its values."""


def pairs_of(combination: Combination) -> Iterator[Pair]:
    """Every pair of values in a combination."""
    yield from combinations(enumerate(combination), 2)


def choose_pairwise(*factors: Collection[Any]) -> list[Combination]:
    """Combinations of one value per factor such that every pair of values of two factors occurs.

    Greedy: the next combination is the first of those that have most pairs which are still
    missing. The same factors give the same combinations every time.
    """
    candidates = list(product(*factors))
    missing = {pair for candidate in candidates for pair in pairs_of(candidate)}
    chosen: list[Combination] = []
    while missing:
        best = max(candidates, key=lambda candidate: len(missing.intersection(pairs_of(candidate))))
        chosen.append(best)
        missing.difference_update(pairs_of(best))
    return chosen
