"""`gpu-executor bench fields`: operations of every named field, and products of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import suite
from gpu_executor.bench.fields import FieldRow
from gpu_executor.bench.product_comparison import ProductComparison
from gpu_executor.cli.bench_output import (
    json_option,
    print_absent,
    print_device,
    report_measurement,
)
from gpu_executor.cli.options import CountInMemory
from gpu_executor.cli.output import console, format_milliseconds, format_rate, make_table
from gpu_executor.cli.progress import show_progress
from gpu_executor.report.format import format_count

PRODUCT_BYTES = 600
"""Memory of a product, roughly: operands and results as words and as Python's integers."""
LEGEND = (
    "Products, squares and additions read operands from device memory and write results to it. In "
    "chains, each operation takes the result of the one before from registers: squares by raising "
    "to the power 2^n, products by a kernel for primes that leave the highest bit of their words "
    "free. In fields of one word (31 and 64 bits) a square is a product. copy: an array of the "
    "same size, copied by a kernel. Where the share of the copy is near 1, memory bandwidth is the "
    "limit. Rates of sums and dot products are in elements per second. A sample of every result "
    "was checked against exact integers.\n"
)


@click.command("fields")
@click.option(
    "--products",
    "count",
    type=CountInMemory(PRODUCT_BYTES),
    show_default="1 Mi; 64 Ki without a GPU",
    help="Products in the comparison with other packages.",
)
@json_option
def bench_fields(count: int | None, json_file: Path | None) -> None:
    """Operations of every field; products of other packages."""
    print_device(suite.select_device())
    measured = suite.measure_fields(show_progress, count=count)
    rows, products = measured.rows, measured.products
    with report_measurement("fields", measured, json_file):
        console.print(_make_rates_table(rows))
        console.print(_make_bandwidth_table(rows))
        console.print(_make_reductions_table(rows))
        console.print(LEGEND)
        console.print(_make_products_table(products))
        print_absent(products.absent)


def _make_rates_table(rows: Sequence[FieldRow]) -> Table:
    table = make_table(
        f"Operations per second, arrays of {format_count(rows[0].elements)} elements",
        *("field", "bits", "products", "squares", "additions"),
        *("products\nin chains", "squares\nin chains"),
    )
    for row in rows:
        chained = row.products_in_chains
        table.add_row(
            row.field,
            str(row.bits),
            format_rate(row.products.per_second),
            format_rate(row.squares.per_second),
            format_rate(row.additions.per_second),
            "-" if chained is None else format_rate(chained),
            format_rate(row.squares_in_chains),
        )
    return table


def _make_bandwidth_table(rows: Sequence[FieldRow]) -> Table:
    table = make_table(
        "Memory bandwidth in GB/s (read and write), and share of the copy",
        *("field", "products", "share", "squares", "share", "additions", "share", "copy"),
    )
    for row in rows:
        cells = []
        for each in (row.products, row.squares, row.additions):
            cells += [_format_gigabytes(each.bytes_per_second), f"{each.of_copy:.2f}"]
        table.add_row(row.field, *cells, _format_gigabytes(row.copy_bytes_per_second))
    return table


def _make_reductions_table(rows: Sequence[FieldRow]) -> Table:
    table = make_table(
        f"Reductions of {format_count(rows[0].elements)} elements, and batch inversion",
        *("field", "sum", "dot product", f"{format_count(rows[0].inverted)} inverses"),
    )
    for row in rows:
        table.add_row(
            row.field,
            format_rate(row.sums_per_second),
            format_rate(row.dots_per_second),
            format_milliseconds(row.inversion_ms),
        )
    return table


def _make_products_table(comparison: ProductComparison) -> Table:
    table = make_table(
        f"{format_count(comparison.count)} products in bls12_381_fr, array to array",
        *("by", "operands", "time", "products", "time over\ngpu.run"),
    )
    for each in comparison.ways:
        table.add_row(
            each.name,
            each.kind,
            format_milliseconds(each.milliseconds),
            format_rate(each.per_second),
            f"{each.slower:.2f}x",
        )
    return table


def _format_gigabytes(rate: float) -> str:
    value = rate / 1e9
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"
