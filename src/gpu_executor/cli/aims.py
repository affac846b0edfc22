"""Aims as a table, and what there was nothing to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpu_executor.bench.aims import Aim
from gpu_executor.cli.screen import table


def aims(found: Sequence[Aim]) -> Any:
    """What was aimed for on this device."""
    made = table("Aims on this device", "what", "measured", "aim", "met")
    for each in found:
        bound = "at most" if each.at_most else "at least"
        made.add_row(
            each.what,
            f"{each.measured:.3g} {each.unit}",
            f"{bound} {each.aim:g} {each.unit}",
            "yes" if each.met else "no",
        )
    return made


def absent(packages: Sequence[str]) -> Iterator[str]:
    """A line for each package that is not installed."""
    for package in packages:
        yield f"{package} is not installed and was left out"
