"""`gpu-executor bench hashes`: hash functions and Merkle trees beside bounds and other packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import hashes, suite
from gpu_executor.bench.hash_bounds import ChainRate
from gpu_executor.bench.hash_peers import HashPeerRow
from gpu_executor.bench.hashes import HashRow, TreeRow
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.options import CountInMemory
from gpu_executor.cli.output import (
    console,
    format_milliseconds,
    format_rate,
    make_table,
    print_text,
)
from gpu_executor.cli.progress import show_progress
from gpu_executor.report.format import format_prefixed
from gpu_executor.report.hashes_section import describe_row

MAX_LOG_LEAVES = 26
RATES_LEGEND = (
    "Operations in chains in registers: on 32-bit words, or products in a field. Their rate "
    "divided by the operations of a hash, counted, is the bound of arithmetic.\n"
)
ROWS_LEGEND = (
    "Rows and digests are in device memory. bound: the smaller of what the counted operations and "
    "what reading rows and writing digests allow; share: of that bound. Products by small "
    "constants and sums in a field are not counted. others: hashlib, blake3 and pycryptodome, on "
    "all cores, each core in a process of its own; one large message by all threads of blake3. A "
    "sample of every result was compared with the host's.\n"
)
TRANSFERS_LEGEND = (
    "From rows to digests in NumPy memory. bus: what the upload of the rows or the download of the "
    "digests allows, whichever takes longer.\n"
)
TREES_LEGEND = (
    "From digests on the device to the root in NumPy memory, all levels kept. bound: the "
    "operations of all nodes at the rate of chains.\n"
)


@click.command("hashes")
@click.option(
    "--hash",
    "names",
    type=click.Choice(tuple(hashes.CASES)),
    multiple=True,
    help="Hash functions; all by default.",
)
@click.option(
    "--length",
    "lengths",
    type=CountInMemory(1),
    multiple=True,
    show_default=" and ".join(map(str, hashes.LENGTHS)),
    help="Bytes of a row; repeat it for several.",
)
@click.option(
    "--trees",
    type=click.IntRange(1, MAX_LOG_LEAVES),
    multiple=True,
    show_default="20 and 24; 10 without a GPU",
    help="Log2 of the number of leaves; repeat it for several.",
)
@click.option("--quick", is_flag=True, help="Few hash functions and short times.")
@click.option("--peer/--no-peer", default=True, show_default=True, help="Time other packages too.")
@json_option
def bench_hashes(
    names: tuple[str, ...],
    lengths: tuple[int, ...],
    trees: tuple[int, ...],
    quick: bool,
    peer: bool,
    json_file: Path | None,
) -> None:
    """Hash functions and Merkle trees, beside hashlib and blake3."""
    print_device(suite.select_device())
    measured = suite.measure_hashes(
        show_progress,
        quick=quick,
        names=tuple(dict.fromkeys(names)),
        lengths=tuple(dict.fromkeys(lengths)),
        trees=tuple(sorted(set(trees))),
        peer=peer,
    )
    with report_measurement("hashes", measured, json_file):
        console.print(_make_rates_table(measured.rates))
        console.print(RATES_LEGEND)
        console.print(_make_rows_table(measured.rows, measured.peers))
        console.print(ROWS_LEGEND)
        console.print(_make_transfers_table(measured.rows))
        console.print(TRANSFERS_LEGEND)
        for each in measured.peers:
            if each.reason is not None:
                print_text(f"{each.package}, {each.hash}: {each.reason}")
        if measured.trees:
            console.print(_make_trees_table(measured.trees))
            console.print(TREES_LEGEND)


def _make_rates_table(rates: Sequence[ChainRate]) -> Table:
    table = make_table("Operations per second, in chains", "operations", "rate")
    for each in rates:
        table.add_row(each.operation.replace("_", ", "), format_rate(each.per_second))
    return table


def _make_rows_table(rows: Sequence[HashRow], peers: Sequence[HashPeerRow]) -> Table:
    table = make_table(
        "Hashes per second, on the device",
        *("hash", "row", "operations", "rate", "bound", "share", "others"),
    )
    others = {(each.hash, each.what, each.length): each.per_second for each in peers}
    for row in rows:
        other = others.get((row.hash, row.what, row.length))
        table.add_row(
            row.hash,
            describe_row(dataclasses.asdict(row)),
            f"{row.operations:,}" if row.what != "message" else format_prefixed(row.operations),
            format_rate(row.hashes_per_second),
            format_rate(min(row.arithmetic_per_second, row.memory_per_second)),
            f"{row.of_bound:.2f}",
            "-" if other is None else format_rate(other),
        )
    return table


def _make_transfers_table(rows: Sequence[HashRow]) -> Table:
    table = make_table(
        "Hashes per second, from NumPy to NumPy", "hash", "row", "rate", "bus", "share"
    )
    for row in rows:
        table.add_row(
            row.hash,
            describe_row(dataclasses.asdict(row)),
            format_rate(row.numpy_per_second),
            format_rate(row.bus_per_second),
            f"{row.numpy_per_second / row.bus_per_second:.2f}",
        )
    return table


def _make_trees_table(trees: Sequence[TreeRow]) -> Table:
    table = make_table("Merkle trees", "hash", "leaves", "time", "bound", "share", "nodes")
    for row in trees:
        table.add_row(
            row.hash,
            f"2^{row.log_leaves}",
            format_milliseconds(row.ms),
            format_milliseconds(row.bound_ms),
            f"{row.of_bound:.2f}",
            format_rate(row.hashes_per_second),
        )
    return table
