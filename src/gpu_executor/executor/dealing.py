"""Dealing: units of work to devices in proportion to their rates, and again when one falls behind.

Every device gets a run of neighbouring units and takes half of what is left of it at a time, so
that the end of it can still be had by others: whoever is done takes from the one who has most left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def shares(rates: Sequence[float | None]) -> list[float]:
    """Parts of one, in proportion to rates; None is not known yet and counts like the others' mean.

    A rate of 0 gets nothing, unless all have it.
    """
    known = [rate for rate in rates if rate]
    mean = sum(known) / len(known) if known else 1.0
    filled = [mean if rate is None else rate for rate in rates]
    whole = sum(filled)
    return [rate / whole for rate in filled] if whole else [1 / len(rates)] * len(rates)


class Deal:
    """Units 0, 1, ... among devices, which are numbers too. For one thread at a time."""

    def __init__(self, units: int, parts: Sequence[float]) -> None:
        """`parts` are the devices' shares of one."""
        ends = [min(round(units * part), units) for part in accumulate(parts)]
        self._runs = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        self.left = units
        """Units that nobody has taken."""

    def take(self, who: int, parts: Sequence[float]) -> range:
        """The next units for a device; none when all are taken, or better left to others."""
        if not self._runs[who]:
            self._steal(who, parts)
        run = self._runs[who]
        half = -(-len(run) // 2)
        self._runs[who] = run[half:]
        self.left -= half
        return run[:half]

    def _steal(self, thief: int, parts: Sequence[float]) -> None:
        """From the end of the longest run, so much that both are done with it at the same time."""
        victim = max(range(len(self._runs)), key=lambda each: len(self._runs[each]))
        run, own, other = self._runs[victim], parts[thief], parts[victim]
        if len(run) * own < other:
            return  # it would take longer for one unit than the other does for all of them
        kept = int(len(run) * other / (own + other)) if other else 0
        self._runs[victim], self._runs[thief] = run[:kept], run[kept:]
