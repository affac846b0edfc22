"""Figures that several sections of the report have: lines, bars and stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_executor.report.charts import (
    ChartAxis,
    ChartLine,
    DataPoint,
    draw_lines,
    draw_stacks,
)
from gpu_executor.report.contents import (
    Figure,
    LegendEntry,
    ValueTable,
)
from gpu_executor.report.format import format_time


def make_line_figure(
    name: str,
    title: str,
    caption: str,
    lines: Sequence[ChartLine],
    x_axis: ChartAxis,
    y_axis: ChartAxis,
    *,
    half: bool = False,
) -> Figure:
    """A figure of lines. Its table has a row for each value of x and a column for each line."""
    values = sorted({point.x for line in lines if line.markers for point in line.points})
    shown = [line for line in lines if line.markers]
    by_line = [{point.x: point for point in line.points} for line in shown]
    rows = [
        [
            x_axis.format(x),
            *(_write_point(points.get(x), y_axis) for points in by_line),
        ]
        for x in values
    ]
    legend = [LegendEntry.of(line) for line in lines]
    table = ValueTable([x_axis.label, *(line.name for line in shown)], rows)

    def draw(width: int, label: str) -> str:
        return draw_lines(lines, x_axis, y_axis, width, label)

    return Figure(name, title, caption, draw, table, legend, half)


def _write_point(point: DataPoint | None, axis: ChartAxis) -> str:
    if point is None:
        return ""
    if point.low is None or point.high is None:
        return axis.format(point.y)
    return f"{axis.format(point.y)} ({axis.format(point.low)} to {axis.format(point.high)})"


def make_stack_figure(
    name: str, title: str, caption: str, stacks: Sequence[tuple[str, Mapping[str, float]]]
) -> Figure:
    """Stacked bars of stages in milliseconds; a row for each name."""
    stages = list(dict.fromkeys(stage for _, parts in stacks for stage in parts))
    styles = {stage: index % 7 for index, stage in enumerate(stages)}
    rows = [
        (label, dict(parts), f"total {format_time(sum(parts.values()))}") for label, parts in stacks
    ]
    table = ValueTable(
        ["call", *stages],
        [
            [label, *(format_time(parts[stage]) if parts.get(stage) else "" for stage in stages)]
            for label, parts in stacks
        ],
    )

    def draw(width: int, label: str) -> str:
        return draw_stacks(rows, styles, width, label, format_time)

    legend = [LegendEntry(stage, styles[stage], bar=True) for stage in stages]
    return Figure(name, title, caption, draw, table, legend)
