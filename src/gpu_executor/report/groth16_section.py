"""The section on Groth16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_executor.bench.groth16_stages import shorten_stages
from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import (
    BarGroup,
    ChartAxis,
    ChartBar,
    ChartLine,
    draw_bars,
)
from gpu_executor.report.contents import (
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import format_power, format_prefixed, format_time, round_digits
from gpu_executor.report.shared_figures import make_line_figure, make_stack_figure

PACKAGE_STYLES = {"snarkjs": 0, "rapidsnark": 3}
JOINED_STAGES = {"A": "A and C", "C": "A and C"}
"""Stages that a chart shows as one, so that there are as many as colors."""


def show_groth16(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    figures = [_show_proofs(given, rows), *_show_keys(given, rows)]
    stages = given.rows("stages")
    if stages:
        figures.append(_show_stages(stages))
        figures += _compare_products(stages)
    return ReportSection(name, title, " ".join(_describe(given)), figures)


def _describe(given: Measurements) -> Iterator[str]:
    """What was measured, and what was not."""
    yield "2^k stands for 2^k - 2 constraints. Every proof was verified."
    for each in given.rows("packages"):
        if each["reason"] is None:
            yield f"Beside {each['package']} (version {each['version']})."
        else:
            yield f"{each['package']} was not measured: {each['reason']}."
    for row in given.rows("peers"):
        if row["reason"] is not None:
            size = f"2^{row['log_constraints']}"
            yield f"{row['package']}, {row['circuit']}, {size}: {row['reason']}."
    for command in given.rows("command"):
        yield (
            f"`gpu-executor groth16 prove` with a key of 2^{command['log_constraints']} "
            f"constraints, as a process from files to files, takes "
            f"{format_time(command['first_ms'])} with empty caches and "
            f"{format_time(command['second_ms'])} the next time."
        )


def _make_line(
    given: Measurements,
    label: str,
    table: str,
    column: str,
    style: int,
    key: Mapping[str, Any],
    *,
    dashed: bool = False,
) -> ChartLine | None:
    """A column by the number of constraints, of the rows that have the values of `key`."""
    rows = [
        row
        for row in given.rows(table)
        if row[column] is not None and all(row[name] == value for name, value in key.items())
    ]
    points = []
    for row in rows:
        names = [name for name in ("package", "curve", "circuit") if name in row]
        own = {name: row[name] for name in (*names, "log_constraints")}
        if "batch" in row:
            own["batch"] = row["batch"]
        points.append(given.point(1 << row["log_constraints"], row[column], table, column, **own))
    return ChartLine(label, points, style, "dashed" if dashed else "solid") if points else None


def _show_proofs(given: Measurements, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Times of proofs by circuit, in batches and by other provers."""
    lines = []
    for style, circuit in enumerate(dict.fromkeys(row["circuit"] for row in rows), 1):
        key = {"circuit": circuit}
        lines += [
            _make_line(given, circuit, "rows", "ms", style, key),
            _make_line(
                given, f"{circuit}, in a batch", "rows", "batch_ms", style, key, dashed=True
            ),
        ]
    for package, style in PACKAGE_STYLES.items():
        lines += [
            _make_line(
                given,
                f"{package}, {circuit}",
                "peers",
                "ms",
                style,
                {"package": package, "circuit": circuit},
                dashed=circuit != "uniform",
            )
            for circuit in dict.fromkeys(row["circuit"] for row in rows)
        ]
    return make_line_figure(
        "groth16-by-size",
        f"Time of a proof by number of constraints, {rows[0]['curve']}",
        "From a witness in NumPy memory to a proof, with the key on the device. uniform: all "
        "values of the witness are; bits: nearly all are zero or one. Other provers take the same "
        "keys and witnesses, from files.",
        [line for line in lines if line is not None],
        _get_axis(rows),
        ChartAxis("time", format_time),
    )


def _get_axis(rows: Sequence[Mapping[str, Any]]) -> ChartAxis:
    sizes = sorted({1 << row["log_constraints"] for row in rows})
    return ChartAxis("constraints", format_power, ticks=sizes)


def _show_keys(given: Measurements, rows: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """What it takes to make and load a key, and its memory; of the first circuit."""
    circuit = rows[0]["circuit"]
    key = {"circuit": circuit}
    labels = {"setup_ms": "setup", "load_ms": "load", "verify_ms": "verify a proof"}
    lines = [
        _make_line(given, label, "rows", column, style, key)
        for style, (column, label) in enumerate(labels.items())
    ]
    yield make_line_figure(
        "groth16-keys",
        "Setup, load and verification",
        "Setup: from the .r1cs file to a key, for benchmarks only. Load: with checks of all "
        "points.",
        [line for line in lines if line is not None],
        _get_axis(rows),
        ChartAxis("time", format_time),
        half=True,
    )
    sizes = {"file_bytes": "file", "key_bytes": "key on the device", "device_bytes": "in use"}
    lines = [
        _make_line(given, label, "rows", column, style, key)
        for style, (column, label) in enumerate(sizes.items())
    ]
    yield make_line_figure(
        "groth16-memory",
        "Memory of a key",
        "In use: all device memory after proofs.",
        [line for line in lines if line is not None],
        _get_axis(rows),
        ChartAxis("memory", lambda value: f"{format_prefixed(value)}B"),
        half=True,
    )


def _pick_largest(stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The largest size of each circuit."""
    by_circuit: dict[str, Mapping[str, Any]] = {}
    for row in sorted(stages, key=lambda each: int(each["log_constraints"])):
        by_circuit[row["circuit"]] = row
    return list(by_circuit.values())


def _show_stages(stages: Sequence[Mapping[str, Any]]) -> Figure:
    return make_stack_figure(
        "groth16-stages",
        "Stages of a proof",
        "A to B2: points of that section are added to buckets. Each stage is recorded by itself "
        "and replayed many times in a row. A proof records all of them together: "
        + ", ".join(
            f"{format_time(row['device_ms'])} with {row['circuit']}"
            for row in _pick_largest(stages)
        )
        + ".",
        [
            (f"{row['circuit']}, 2^{row['log_constraints']}", _join_stages(row["stages_ms"]))
            for row in _pick_largest(stages)
        ],
    )


def _join_stages(measured: Mapping[str, float]) -> dict[str, float]:
    joined: dict[str, float] = {}
    for name, taken in shorten_stages(measured).items():
        shown = JOINED_STAGES.get(name, name)
        joined[shown] = joined.get(shown, 0.0) + taken
    return joined


def _compare_products(stages: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The largest circuit whose products were counted."""
    counted = [row for row in _pick_largest(stages) if row.get("products_ms")]
    if not counted:
        return []
    row = counted[-1]
    shown = [(name, row["stages_ms"][name], alone) for name, alone in row["products_ms"].items()]
    groups = [
        BarGroup(
            name,
            [ChartBar("measured", taken, 2), ChartBar("products alone", alone, 6)],
            f"products alone: {round_digits(alone / taken)} of the time",
        )
        for name, taken, alone in shown
    ]
    return [
        Figure(
            "groth16-products",
            f"Stages and their products alone, 2^{row['log_constraints']} constraints",
            "Products alone: the time of a stage's products at the rate of products in chains in "
            "registers: those of six transforms, and those of all additions of points. A stage "
            "that reaches a higher rate than the chains takes less.",
            partial(draw_bars, groups, format_time),
            ValueTable(
                ["stage", "measured", "products alone", "share"],
                [
                    [name, format_time(taken), format_time(alone), round_digits(alone / taken)]
                    for name, taken, alone in shown
                ],
            ),
            [LegendEntry("measured", 2, bar=True), LegendEntry("products alone", 6, bar=True)],
        )
    ]
