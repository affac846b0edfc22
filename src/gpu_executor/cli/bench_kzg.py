"""`gpu-executor bench kzg`: KZG functions by batch size, beside ckzg, and their stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import kzg as bench
from gpu_executor.bench import suite
from gpu_executor.bench.kzg import KzgRow, StageRow
from gpu_executor.cli.bench_output import (
    break_line,
    format_millions,
    json_option,
    print_device,
    report_measurement,
)
from gpu_executor.cli.options import CountInMemory
from gpu_executor.cli.output import console, make_table
from gpu_executor.cli.progress import show_progress

BLOB_BYTES = 1 << 20
"""Memory of a blob, roughly: its bytes, its elements, its cells and their proofs."""
LEGEND = (
    "ms: the median of calls from bytes to bytes; first: the first call, which makes tables and "
    "compiles pipelines. ckzg: one blob on one thread, and the batch with a process for each core, "
    "with ckzg's precompute = 8. Verification of cells: all 128 cells of every blob.\n"
)
STAGES_LEGEND = (
    "The stages of cells and proofs are waited for one by one, so their sum is more than a call. "
    "bytes to cells: all of a call without proofs. columns: transforms of the coefficients. M "
    "prod/s: millions of products in a second of both kinds of sums (fixed sets and convolution), "
    "counted from their plans. chains: what chains of products reach in the same run.\n"
)


@click.command("kzg")
@click.option("--setup", "path", type=click.Path(exists=True, path_type=Path), help="A setup.")
@click.option(
    "--blobs", "batches", type=CountInMemory(BLOB_BYTES), multiple=True, help="Batch sizes."
)
@click.option(
    "--function",
    "functions",
    type=click.Choice(tuple(bench.FUNCTIONS)),
    multiple=True,
    help="Functions; all by default.",
)
@click.option("--peer/--no-peer", default=True, show_default=True, help="Time ckzg too.")
@json_option
def bench_kzg(
    path: Path | None,
    batches: tuple[int, ...],
    functions: tuple[str, ...],
    peer: bool,
    json_file: Path | None,
) -> None:
    """KZG functions by batch size, beside ckzg."""
    print_device(suite.select_device())
    measured = suite.measure_kzg(
        show_progress, path=path, batches=batches, functions=functions, peer=peer
    )
    with report_measurement("kzg", measured, json_file):
        console.print(_make_table(measured.rows))
        console.print(LEGEND)
        if measured.device_products_per_second is not None:
            console.print(_make_stages_table(measured.stages, measured.device_products_per_second))
            console.print(STAGES_LEGEND)


def _make_table(rows: Sequence[KzgRow]) -> Table:
    table = make_table("KZG", "function", "blobs", "ms", "ms a blob", "first", "ckzg", "all cores")
    for row in rows:
        table.add_row(
            row.function,
            f"{row.blobs}",
            f"{row.ms:,.2f}",
            f"{row.ms / row.blobs:,.2f}",
            f"{row.first_ms:,.0f}",
            "" if row.ckzg_ms is None else f"{row.ckzg_ms:,.1f}",
            "" if row.ckzg_all_cores_ms is None else f"{row.ckzg_all_cores_ms:,.1f}",
        )
    return table


def _make_stages_table(stages: Sequence[StageRow], rate: float) -> Table:
    names = tuple(stages[0].stages_ms)
    table = make_table(
        "Stages, ms", "blobs", *map(break_line, names), "M\nprod/s", "chains", "share"
    )
    for row in stages:
        table.add_row(
            f"{row.blobs}",
            *(f"{row.stages_ms[name]:,.2f}" for name in names),
            format_millions(row.products_per_second),
            format_millions(rate),
            f"{row.products_per_second / rate:.2f}",
        )
    return table
