"""The section on hash functions and Merkle trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.kernels.chains import MIXES
from gpu_executor.report.charts import BarGroup, ChartAxis, ChartBar, ChartLine, Dash, draw_bars
from gpu_executor.report.contents import (
    OWN_SCALES,
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import (
    format_bandwidth,
    format_bytes,
    format_power,
    format_rate,
    format_time,
    round_digits,
)
from gpu_executor.report.shared_figures import make_line_figure

DEVICE, BOUND, PEER, NUMPY, BUS = 2, 6, 0, 1, 5
"""Styles of bars."""
MAX_TREES = 7
"""Lines that a chart has colors for."""


def show_hashes(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    figures = [_show_rates(given, rows), _show_transfers(rows)]
    if given.rows("trees"):
        figures.append(_show_trees(given))
    return ReportSection(name, title, " ".join(_describe(given)), figures)


def describe_row(row: Mapping[str, Any]) -> str:
    """What is hashed, in words."""
    length = int(row["length"])
    if row["what"] == "message":
        return f"one message of {format_bytes(length)}"
    return f"{length:,} {'B' if row['unit'] == 'bytes' else row['unit']}"


def make_label(row: Mapping[str, Any]) -> str:
    """The function, and what is hashed where the function's name does not say it."""
    name = str(row["hash"])
    return f"{name}, {describe_row(row)}" if row["unit"] == "bytes" else name


def describe_operation(operation: str) -> str:
    """The operations of a mix, or the products of a field."""
    return operation.replace("_", ", ") if operation in MIXES else f"products in {operation}"


def _describe(given: Measurements) -> Iterator[str]:
    yield (
        "The bound is the smaller of two rates: that of the operations of a hash, counted, at the "
        "rate of such operations in chains in registers, and that of memory. A sample of every "
        "result was compared with the host's."
    )
    rates = ", ".join(
        f"{describe_operation(each['operation'])} {format_rate(each['per_second'])}"
        for each in given.rows("rates")
    )
    yield f"Rates in chains: {rates}."
    for each in given.rows("peers"):
        if each["reason"] is not None:
            yield f"{each['package']}, {each['hash']}: {each['reason']}."


def _show_rates(given: Measurements, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Rates on the device beside their bounds and other packages."""
    others = {
        (each["hash"], each["what"], each["length"]): each
        for each in given.rows("peers")
        if each["per_second"] is not None
    }
    groups, cells = [], []
    for row in rows:
        bound = min(row["arithmetic_per_second"], row["memory_per_second"])
        other = others.get((row["hash"], row["what"], row["length"]))
        bars = [
            ChartBar("on the device", row["hashes_per_second"], DEVICE),
            ChartBar("bound", bound, BOUND),
        ]
        if other is not None:
            bars.append(ChartBar(other["package"], other["per_second"], PEER))
        label = make_label(row)
        share = round_digits(row["hashes_per_second"] / bound)
        groups.append(BarGroup(label, bars, f"{share} of the bound"))
        cells.append(
            [
                label,
                format_rate(row["hashes_per_second"]),
                format_rate(bound),
                share,
                "" if other is None else format_rate(other["per_second"]),
            ]
        )
    return Figure(
        "hash-rates",
        "Hashes per second, rows on the device",
        "Beside hashlib, `blake3` and `pycryptodome`, which hash on all cores, each core in a "
        "process of its own; one large message by all threads of `blake3`. "
        f"{OWN_SCALES}",
        partial(draw_bars, groups, format_rate, own_scales=True),
        ValueTable(["hash", "on the device", "bound", "share", "other, all cores"], cells),
        [
            LegendEntry("on the device", DEVICE, bar=True),
            LegendEntry("bound", BOUND, bar=True),
            LegendEntry("other packages", PEER, bar=True),
        ],
    )


def _show_transfers(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Bytes per second from NumPy to NumPy, beside the bus."""

    def convert(row: Mapping[str, Any], column: str) -> float:
        """Hashes per second as bytes of rows."""
        return float(row[column] * row["bytes_per_second"] / row["hashes_per_second"])

    groups = [
        BarGroup(
            make_label(row),
            [
                ChartBar("NumPy to NumPy", convert(row, "numpy_per_second"), NUMPY),
                ChartBar("bus", convert(row, "bus_per_second"), BUS),
            ],
            f"{round_digits(row['numpy_per_second'] / row['bus_per_second'])} of the bus",
        )
        for row in rows
    ]
    cells = [
        [
            group.label,
            *(format_bandwidth(bar.value) for bar in group.bars),
            round_digits(group.bars[0].value / group.bars[1].value),
        ]
        for group in groups
    ]
    return Figure(
        "hash-transfers",
        "From NumPy to NumPy",
        "Bytes of rows per second. The bus: the upload of the rows or the download of the digests, "
        f"whichever takes longer. {OWN_SCALES}",
        partial(draw_bars, groups, format_bandwidth, own_scales=True),
        ValueTable(["hash", "NumPy to NumPy", "bus", "share"], cells),
        [LegendEntry("NumPy to NumPy", NUMPY, bar=True), LegendEntry("bus", BUS, bar=True)],
    )


def _show_trees(given: Measurements) -> Figure:
    """Times of trees by the number of leaves, with their bounds."""
    rows, lines = given.rows("trees"), []
    names = list(dict.fromkeys(row["hash"] for row in rows))[:MAX_TREES]
    for style, name in enumerate(names):
        own = [row for row in rows if row["hash"] == name]
        columns: list[tuple[str, str, Dash]] = [
            ("ms", name, "solid"),
            ("bound_ms", f"{name}, bound", "dashed"),
        ]
        for column, label, dash in columns:
            points = [
                given.point(
                    1 << row["log_leaves"],
                    row[column],
                    "trees",
                    column,
                    hash=name,
                    log_leaves=row["log_leaves"],
                )
                for row in own
            ]
            lines.append(ChartLine(label, points, style, dash))
    sizes = sorted({1 << row["log_leaves"] for row in rows})
    return make_line_figure(
        "hash-trees",
        "Merkle trees by the number of leaves",
        "From digests on the device to the root in NumPy memory. The bound: the operations of all "
        "nodes at the rate of chains.",
        lines,
        ChartAxis("leaves", format_power, ticks=sizes),
        ChartAxis("time", format_time),
    )
