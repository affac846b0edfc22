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
    print_absent,
    print_device,
    report_measurement,
)
from gpu_executor.cli.output import console, format_milliseconds, make_table
from gpu_executor.cli.progress import show_progress

LEGEND = (
    "The first four times are of device arrays: transforms from natural to bit-reversed or "
    "natural order, and inverse transforms from these orders back to natural order. Each was "
    "recorded as a graph, small ones several in one graph, and submitted many times in a row; "
    "only the last submission was waited for. growth: the time to natural order over n log2 n, "
    "relative to the largest size. products alone: those of the butterflies at the "
    "rate of Horner's rule; memory alone: each element read and written once at the rate of a "
    "copy. Neither is a lower bound: products with roots of 250 to 255 bits take less than those "
    "of Horner's rule, and small arrays stay in caches. Arrays of the host: upload, transform in "
    "natural order and readback, each call waited for, and the same copies without a transform. "
    "lde: from a quarter of the elements, on a coset; poly_mul: two polynomials with half of the "
    "elements each. All inverses "
    "gave the original input, and one value of each size was checked against the polynomial at "
    "its point.\n"
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
    with report_measurement("ntt", measured, json_file):
        for field_rows in measured.by_field:
            console.print(_make_transforms_table(field_rows))
            console.print(_make_host_table(field_rows))
            console.print(_make_polynomials_table(field_rows))
        console.print(LEGEND)
        if measured.comparisons:
            console.print(_make_comparisons_table(measured.comparisons))
        print_absent(measured.absent)


def _make_transforms_table(rows: Sequence[TransformRow]) -> Table:
    """Make a table of all sizes of one field."""
    table = make_table(
        f"Number-theoretic transforms in {rows[0].field}",
        *("size", "to reversed\norder", "to natural\norder"),
        *("back from\nreversed", "back from\nnatural", "products\nalone", "memory\nalone"),
        "growth",
    )
    for row, growth in zip(rows, transforms.compute_growth(rows), strict=True):
        times = (
            row.to_reversed_ms,
            row.to_natural_ms,
            row.back_from_reversed_ms,
            row.back_from_natural_ms,
            row.products_alone_ms,
            row.memory_alone_ms,
        )
        table.add_row(_format_size(row), *map(format_milliseconds, times), f"{growth:.2f}")
    return table


def _make_host_table(rows: Sequence[TransformRow]) -> Table:
    """Make a table of transforms between arrays of the host, with the copies that they take."""
    table = make_table(
        f"Between arrays of the host, {rows[0].field}",
        *("size", "NumPy to\nNumPy", "copies\nalone", "mapped to\nmapped", "copies\nalone"),
    )
    for row in rows:
        times = row.numpy_ms, row.numpy_copies_ms, row.mapped_ms, row.mapped_copies_ms
        table.add_row(_format_size(row), *map(format_milliseconds, times))
    return table


def _make_polynomials_table(rows: Sequence[TransformRow]) -> Table:
    """Make a table of what is built from transforms, beside its products and memory alone."""
    parts = "products\nalone", "memory\nalone"
    table = make_table(f"Polynomials in {rows[0].field}", "size", "lde", *parts, "poly_mul", *parts)
    for row in rows:
        times = (
            row.lde_ms,
            row.lde_products_alone_ms,
            row.lde_memory_alone_ms,
            row.poly_mul_ms,
            row.poly_mul_products_alone_ms,
            row.poly_mul_memory_alone_ms,
        )
        table.add_row(_format_size(row), *map(format_milliseconds, times))
    return table


def _format_size(row: TransformRow) -> str:
    return f"2^{row.log_n}" if row.rows == 1 else f"{row.rows} x 2^{row.log_n}"


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
