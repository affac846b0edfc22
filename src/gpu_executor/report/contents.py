"""The figures of a report: what each shows, how it is drawn, and its values as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_executor.bench.results import MILLISECONDS, BenchmarkResult, BenchmarkRun, Series
from gpu_executor.report.charts import MARKERS, ChartLine, Dash, DataPoint, draw_marker_path

OWN_SCALES = "Each group has a linear scale of its own, from 0."
"""The end of the caption of bars that are drawn with `own_scales`."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A name beside its color and marker."""

    name: str
    style: int
    bar: bool = False
    """Whether it stands for bars instead of a line."""
    dash: Dash = "solid"
    joined: bool = True
    markers: bool = True

    @classmethod
    def of(cls, line: ChartLine) -> LegendEntry:
        return cls(line.name, line.style, False, line.dash, line.joined, line.markers)

    def draw_mark(self) -> str:
        """The mark beside the name, 26 x 14 pixels of SVG."""
        if self.bar:
            return f'<rect x="4" y="2" width="14" height="10" class="bar s{self.style}"/>'
        hollow = "" if self.dash == "solid" else " hollow"
        shape = draw_marker_path(MARKERS[self.style], 13, 7)
        line = f'<line x1="0" x2="26" y1="7" y2="7" class="line {self.dash} s{self.style}"/>'
        marker = f'<path d="{shape}" class="marker{hollow} s{self.style}"/>'
        return (line if self.joined else "") + (marker if self.markers else "")


@dataclass(frozen=True, slots=True)
class ValueTable:
    """The values of a figure in words."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its caption."""

    name: str
    """The id of the element."""
    title: str
    caption: str
    draw: Callable[[int, str], str]
    """Takes the width in pixels and the label for readers that do not see the chart."""
    table: ValueTable
    legend: Sequence[LegendEntry] = ()
    half: bool = False
    """Whether two such charts stand side by side where there is room."""


@dataclass(frozen=True, slots=True)
class HeadFigure:
    """A number at the head of the page."""

    value: str
    what: str
    compared: str


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the page."""

    name: str
    title: str
    text: str
    figures: Sequence[Figure] = ()
    missing: str | None = None
    """Why the section has no figures."""
    timelines: Sequence[dict[str, Any]] = ()
    """The timelines that the script draws."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The tables and series of one benchmark that was measured."""

    result: BenchmarkResult
    _by_identity: dict[tuple[Any, ...], Series] = field(default_factory=dict)

    @classmethod
    def of(cls, result: BenchmarkResult) -> Measurements:
        return cls(result, {_identify(each): each for each in result.series})

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table; none if the file does not have it."""
        found = self.result.tables.get(table) or []
        return [found] if isinstance(found, dict) else list(found)

    def point(self, x: float, value: float, table: str, figure: str, **key: Any) -> DataPoint:
        """A point with the quartiles of its samples, times in milliseconds."""
        quartiles = self.find_quartiles(table, figure, **key)
        return DataPoint(x, value) if quartiles is None else DataPoint(x, value, *quartiles)

    def find_quartiles(self, table: str, figure: str, **key: Any) -> tuple[float, float] | None:
        """The quartiles of a figure's samples, times in milliseconds; None of fewer than three."""
        series = self._by_identity.get((table, figure, frozenset(key.items())))
        if series is None or len(series.samples) < 3:
            return None
        factor = MILLISECONDS.get(series.unit, 1.0)
        low, high = series.quartiles
        return low * factor, high * factor


def _identify(series: Series) -> tuple[Any, ...]:
    return series.table, series.figure, frozenset(series.key)


def find_benchmark(run: BenchmarkRun, benchmark: str) -> Measurements | None:
    """The measurements of a benchmark; None if there are none."""
    result = run.benchmarks.get(benchmark)
    return Measurements.of(result) if result is not None and result.state == "measured" else None
