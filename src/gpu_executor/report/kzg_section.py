"""The section on KZG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import (
    BarGroup,
    ChartAxis,
    ChartBar,
    ChartLine,
    DataPoint,
    draw_bars,
)
from gpu_executor.report.contents import (
    OWN_SCALES,
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import (
    format_time,
)
from gpu_executor.report.shared_figures import (
    make_line_figure,
    make_stack_figure,
)


def show_kzg(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    batches = sorted({row["blobs"] for row in rows})
    functions = list(dict.fromkeys(row["function"] for row in rows))
    text = "From bytes to bytes."
    if not any(row["ckzg_ms"] for row in rows):
        text += " ckzg was not measured beside it."
    if len(batches) == 1:
        return ReportSection(name, title, text, [_compare_functions(rows, batches[0])])
    figures = [_compare_batches(given, function, rows, batches) for function in functions]
    figures += [_show_kzg_stages(given)] if given.rows("stages") else []
    return ReportSection(name, title, text, figures)


KZG_COLUMNS = {
    "this package": ("ms", 1),
    "ckzg, one thread": ("ckzg_ms", 0),
    "ckzg, all cores": ("ckzg_all_cores_ms", 2),
}


def _compare_functions(rows: Sequence[Mapping[str, Any]], blobs: int) -> Figure:
    """Bars of the columns that were measured, for each function."""
    columns = {
        label: (key, style)
        for label, (key, style) in KZG_COLUMNS.items()
        if any(row[key] is not None for row in rows)
    }
    groups = [
        BarGroup(
            row["function"],
            [
                ChartBar(label, time, style)
                for label, (key, style) in columns.items()
                if (time := find_time_per_blob(row, key)) is not None
            ],
        )
        for row in rows
    ]
    return Figure(
        "kzg-functions",
        f"KZG functions for {blobs} blob{'s' if blobs > 1 else ''}",
        "Times per blob. ckzg on one thread: of one blob; on all cores: of the batch, with a "
        f"process for each core. {OWN_SCALES}",
        partial(draw_bars, groups, format_time, own_scales=True),
        _make_kzg_table(rows),
        [LegendEntry(label, style, bar=True) for label, (_, style) in columns.items()],
    )


def _make_kzg_table(rows: Sequence[Mapping[str, Any]]) -> ValueTable:
    return ValueTable(
        ["function", "blobs", *(f"{name}, per blob" for name in KZG_COLUMNS), "first call, all"],
        [
            [
                row["function"],
                str(row["blobs"]),
                *(
                    "" if time is None else format_time(time)
                    for time in (find_time_per_blob(row, key) for key, _ in KZG_COLUMNS.values())
                ),
                format_time(row["first_ms"]),
            ]
            for row in rows
        ],
    )


def find_time_per_blob(row: Mapping[str, Any], column: str) -> float | None:
    """A column's milliseconds for each blob. ckzg on one thread was timed with one blob."""
    if row[column] is None:
        return None
    time: float = row[column] / (1 if column == "ckzg_ms" else row["blobs"])
    return time


def _compare_batches(
    given: Measurements,
    function: str,
    rows: Sequence[Mapping[str, Any]],
    batches: Sequence[int],
) -> Figure:
    """Milliseconds per blob by batch size, beside ckzg."""
    own = [row for row in rows if row["function"] == function]
    lines = []
    for label, (key, style) in KZG_COLUMNS.items():
        points = []
        for row in own:
            if row[key] is None:
                continue
            blobs = row["blobs"]
            of_blobs = 1 if key == "ckzg_ms" else blobs
            point = given.point(
                blobs, row[key] / of_blobs, "rows", key, function=function, blobs=blobs
            )
            if point.low is not None and point.high is not None:
                point = DataPoint(blobs, point.y, point.low / of_blobs, point.high / of_blobs)
            points.append(point)
        if points:
            lines.append(ChartLine(label, points, style))
    return make_line_figure(
        "kzg-" + function.replace(" ", "-"),
        f"{function.capitalize()}, time per blob",
        "By the number of blobs in a batch.",
        lines,
        ChartAxis("blobs", lambda value: f"{value:g}", ticks=batches),
        ChartAxis("time per blob", format_time),
        half=True,
    )


def _show_kzg_stages(given: Measurements) -> Figure:
    return make_stack_figure(
        "kzg-stages",
        "Stages of cells and proofs",
        "The stages are waited for one by one, so their sum need not be the time of a call.",
        [
            (f"{row['blobs']} {'blob' if row['blobs'] == 1 else 'blobs'}", row["stages_ms"])
            for row in given.rows("stages")
        ],
    )
