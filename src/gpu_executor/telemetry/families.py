"""Metric families: named samples with labels, independent of the monitoring system."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Literal, Protocol

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.telemetry.histogram import Distribution

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family."""

    labels: tuple[str, ...]
    """Label values, in the order of the family's label names."""
    value: float | Distribution


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one metric; the samples differ in their label values."""

    name: str
    kind: Kind
    text: str
    """The help text."""
    labels: tuple[str, ...] = ()
    """Label names."""
    samples: list[Sample] = field(default_factory=list)


MetricValue = tuple[str, tuple[str, ...], float | Distribution]
"""A family's name without the package's prefix, the values of its own labels, and the number."""


class MetricSource(Protocol):
    """Statistics that can be read as metric families."""

    def families(self) -> Iterable[Family]: ...


class StatsSource(Protocol):
    """An object whose statistics are read at every scrape."""

    def stats(self) -> MetricSource: ...


class MetricsEndpoint(Protocol):
    """Metrics that are being served; `serve_metrics` of an executor returns it.

    Address, port and URL are None where the caller serves the registry.
    """

    @property
    def address(self) -> str | None: ...

    @property
    def port(self) -> int | None: ...

    @property
    def url(self) -> str | None: ...

    def close(self) -> None:
        """Stop serving the metrics. A second call does nothing."""
