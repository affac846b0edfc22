"""`gpu-executor bench ntt`: number-theoretic transforms, and those of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import suite, transforms
from gpu_executor.bench.transform_comparison import TransformComparison
from gpu_executor.bench.transforms import TransformRow
from gpu_executor.cli.bench_output import (
    json_option,
    print_device,
    print_targets,
    write_json,
)
from gpu_executor.cli.output import console, format_milliseconds, make_table, show_progress

LEGEND = (
    "The first four times are of device arrays: transforms from natural to bit-reversed or natural "
    "order, and inverse transforms from these orders back to natural order. Each was recorded as a "
    "graph and submitted many times in a row; only the last submission was waited for. NumPy to "
    "NumPy: upload, transform in natural order and readback, each call waited for. growth: the "
    "time to natural order over n log2 n, relative to the largest size. All inverses gave the "
    "original input, and one value of each size was checked against the polynomial at its point.\n"
)


@click.command("ntt")
@click.option(
    "--largest",
    type=click.IntRange(transforms.SMALLEST, 27),
    show_default="24; 16 without a GPU",
    help="Log2 of the largest size.",
)
@json_option
def bench_ntt(largest: int | None, json_file: Path | None) -> None:
    """Number-theoretic transforms, ours and other packages'."""
    print_device(suite.select_device())
    measured = suite.measure_transforms(show_progress, largest=largest)
    file = write_json(json_file, "ntt", measured)
    for field_rows in measured.by_field:
        console.print(_make_transforms_table(field_rows))
    console.print(LEGEND)
    if measured.comparisons:
        console.print(_make_comparisons_table(measured.comparisons))
    print_targets(measured.targets, measured.absent)
    file.report()


def _make_transforms_table(rows: Sequence[TransformRow]) -> Table:
    """Make a table of all sizes of one field."""
    table = make_table(
        f"Number-theoretic transforms in {rows[0].field}",
        *("size", "to reversed\norder", "to natural\norder"),
        *("back from\nreversed", "back from\nnatural", "NumPy to\nNumPy", "growth"),
    )
    for row, growth in zip(rows, transforms.compute_growth(rows), strict=True):
        table.add_row(
            f"2^{row.log_n}" if row.rows == 1 else f"{row.rows} x 2^{row.log_n}",
            format_milliseconds(row.to_reversed_ms),
            format_milliseconds(row.to_natural_ms),
            format_milliseconds(row.back_from_reversed_ms),
            format_milliseconds(row.back_from_natural_ms),
            format_milliseconds(row.numpy_ms),
            f"{growth:.2f}",
        )
    return table


def _make_comparisons_table(comparisons: Sequence[TransformComparison]) -> Table:
    table = make_table(
        "The same work by packages on the CPU, array to array",
        *("package", "work", "package's time", "our time", "speed-up"),
    )
    for each in comparisons:
        table.add_row(
            each.package,
            each.what,
            format_milliseconds(each.theirs_ms),
            format_milliseconds(each.ours_ms),
            f"{each.faster:.2f}x",
        )
    return table
