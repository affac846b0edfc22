"""`gpu-executor bench msm`: multi-scalar multiplications by curve, size and stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import msm, suite
from gpu_executor.bench.msm import CurveTimes
from gpu_executor.cli.bench_output import (
    break_line,
    format_millions,
    json_option,
    print_device,
    report_measurement,
)
from gpu_executor.cli.output import console, make_table
from gpu_executor.cli.progress import show_progress
from gpu_executor.curves.parameters import NAMES

SIZES_LEGEND = (
    "Points are on the device. ms: the median of calls from scalars in NumPy memory to an affine "
    "point on the host; mapped: the same from a NumPy array in mapped memory (gpu.asarray); "
    "resident: from scalars on the device. first: the first call, which compiles the pipelines "
    "that no earlier call has used, or finds them in a cache on disk. M add/s: additions of points "
    "to buckets. bound: products per second, measured in chains, divided by 10 for the 8 products "
    "and 2 squares of a mixed addition, or by 6 for an affine one in a round; by 30 over a field "
    "of degree 2, where a product of coordinates takes 3 products. Every result was checked by the "
    "known logarithms of the points.\n"
)
STAGES_LEGEND = (
    "The stages on the device, waited for one by one. The copy of the scalars to the device is not "
    "among them. limb form: points into the form that the kernels compute with.\n"
)
TABLES_LEGEND = (
    "without: the same sums without the tables. precompute: the time to make the tables, with all "
    "pipelines created.\n"
)
SKEWS_LEGEND = "ratio: the time relative to random scalars in the same rounds.\n"
COMPILE_LEGEND = "In a process that finds no pipelines in a cache.\n"
STAGES = ("limb form", "digits", "sort", "accumulate", "combine", "reduce", "join")


@click.command("msm")
@click.option(
    "--largest",
    type=click.IntRange(0, 24),
    show_default=f"{msm.LARGEST}; {msm.LARGEST_ON_CPU} without a GPU",
    help="Log2 of the largest number of points.",
)
@click.option(
    "--curve",
    "curves",
    type=click.Choice(NAMES),
    multiple=True,
    default=msm.CURVES,
    show_default=True,
    help="Curves.",
)
@json_option
def bench_msm(largest: int | None, curves: tuple[str, ...], json_file: Path | None) -> None:
    """Multi-scalar multiplications by curve, size and stage."""
    print_device(suite.select_device())
    found = suite.measure_msms(show_progress, largest=largest, curves=curves)
    measured, compiled = found.curves, found.compile_s
    with report_measurement("msm", found, json_file):
        for table, legend in (
            (_make_sizes_table(measured), SIZES_LEGEND),
            (_make_stages_table(measured), STAGES_LEGEND),
            (_make_precomputed_table(measured), TABLES_LEGEND),
            (_make_skews_table(measured), SKEWS_LEGEND),
        ):
            console.print(table)
            console.print(legend)
        if compiled:
            console.print(_make_compile_table(compiled))
            console.print(COMPILE_LEGEND)


def _make_sizes_table(measured: Sequence[CurveTimes]) -> Table:
    table = make_table(
        "Multi-scalar multiplication, ms",
        *("curve", "points", "ms", "mapped", "resident", "first", "M add/s", "bound", "share"),
    )
    for times in measured:
        for row in times.rows:
            rate, bound = row.additions_per_second, row.additions_bound
            table.add_row(
                times.curve,
                f"2^{row.log_points}",
                f"{row.ms:,.2f}",
                f"{row.mapped_ms:,.2f}",
                f"{row.resident_ms:,.2f}",
                f"{row.first_ms:,.0f}",
                format_millions(rate),
                "-" if bound is None else format_millions(bound),
                "-" if bound is None else f"{rate / bound:.2f}",
            )
    return table


def _make_stages_table(measured: Sequence[CurveTimes]) -> Table:
    table = make_table("Stages, ms", "curve", "points", *map(break_line, STAGES))
    for times in measured:
        for row in times.rows:
            stages = (f"{row.stages_ms[stage]:.2f}" for stage in STAGES)
            table.add_row(times.curve, f"2^{row.log_points}", *stages)
    return table


def _make_precomputed_table(measured: Sequence[CurveTimes]) -> Table:
    table = make_table(
        "With precomputed tables, ms",
        *("curve", "points", "ms", "without", "precompute", "tables", "window", "MiB"),
    )
    for times in measured:
        for row in times.tables:
            batch = f"{row.batch:,} x " if row.batch > 1 else ""
            table.add_row(
                times.curve,
                f"{batch}2^{row.log_points}",
                f"{row.ms:,.2f}",
                f"{row.without_ms:,.2f}",
                f"{row.precompute_ms:,.1f}",
                str(row.tables),
                f"{row.window_bits} bits",
                f"{row.nbytes / (1 << 20):,.1f}",
            )
    return table


def _make_skews_table(measured: Sequence[CurveTimes]) -> Table:
    table = make_table("Skewed scalars", "curve", "points", "scalars", "ms", "ratio")
    for times in measured:
        for row in times.skews:
            points = f"2^{row.log_points}"
            table.add_row(times.curve, points, row.scalars, f"{row.ms:,.2f}", f"{row.ratio:.2f}")
    return table


def _make_compile_table(compiled: Mapping[str, Mapping[str, float]]) -> Table:
    operations = next(iter(compiled.values()))
    table = make_table("Compile time of pipelines, s", "curve", *map(break_line, operations))
    for curve, seconds in compiled.items():
        table.add_row(curve, *(f"{seconds[operation]:.2f}" for operation in operations))
    return table
