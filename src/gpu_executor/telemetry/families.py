"""Families of samples: what is counted, in the form that monitoring systems take it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpu_executor.telemetry.histogram import Distribution

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    labels: tuple[str, ...]
    """Their values, in the order of the family's names for them."""
    value: float | Distribution


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one kind under one name, told apart by their labels."""

    name: str
    kind: Kind
    text: str
    """What it counts, for those who read the numbers."""
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)


class MetricSource(Protocol):
    """Statistics that can say what they hold as families."""

    def families(self) -> Iterable[Family]: ...


class StatsSource(Protocol):
    """What is asked for its figures whenever somebody wants to see them."""

    def stats(self) -> MetricSource: ...
