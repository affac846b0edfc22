"""`gpu-executor bench groth16`: Groth16 proofs by number of constraints, beside other provers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import groth16, suite
from gpu_executor.bench.groth16 import CommandTimes, Groth16Row
from gpu_executor.bench.groth16_peers import ProverPeerRow, ProverPeerState
from gpu_executor.bench.groth16_stages import ProofStageRow, shorten_stages
from gpu_executor.cli.bench_output import (
    json_option,
    print_device,
    report_measurement,
)
from gpu_executor.cli.output import console, make_table, print_text
from gpu_executor.cli.progress import show_progress
from gpu_executor.groth16.proof_curve import CURVE_NAMES
from gpu_executor.report.format import round_digits

PROOFS_LEGEND = (
    "2^k: 2^k - 2 constraints. uniform: all values of the witness are; bits: nearly all are zero "
    "or one. ms: the median of proofs of a witness in NumPy memory, with the key on the device; "
    "best: the fastest; batch: a proof of a batch. first: the first proof, which compiles "
    "pipelines or finds them in a cache on disk. Every proof was verified.\n"
)
KEYS_LEGEND = (
    "setup: from the .r1cs file to a key in main memory; save: the key to its file; load: from its "
    "file, which is in memory, to the device, with all checks. in use: device memory after "
    "proofs.\n"
)
STAGES_LEGEND = (
    "Each stage is recorded by itself and replayed many times in a row. all: all of them as a "
    "proof records them, which overlaps. quotient: sparse "
    "product and transforms; A to B2: points of that section added to buckets. products alone: "
    "what the products of these stages take in chains of products in registers; a witness of bits "
    "has fewer additions, so none are counted for it.\n"
)


@click.command("groth16")
@click.option(
    "--sizes",
    type=click.IntRange(groth16.SMALLEST, groth16.LARGEST),
    multiple=True,
    show_default=f"{groth16.SIZES[0]} to {groth16.SIZES[-1]} in steps of two; "
    f"{' and '.join(map(str, groth16.SIZES_ON_CPU))} without a GPU",
    help="Log2 of the number of constraints; repeat it for several.",
)
@click.option(
    "--curve",
    type=click.Choice(CURVE_NAMES),
    default=CURVE_NAMES[0],
    show_default=True,
    help="The curve.",
)
@click.option(
    "--circuit",
    "circuits",
    type=click.Choice(tuple(groth16.CIRCUITS)),
    multiple=True,
    help="Circuits by the values of their witness; all by default.",
)
@click.option("--quick", is_flag=True, help="Few sizes, and no process of its own.")
@click.option(
    "--snarkjs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with node_modules that has snarkjs.",
)
@click.option(
    "--rapidsnark",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The program `prover` of rapidsnark.",
)
@click.option("--peer/--no-peer", default=True, show_default=True, help="Time other provers too.")
@json_option
def bench_groth16(
    sizes: tuple[int, ...],
    curve: str,
    circuits: tuple[str, ...],
    quick: bool,
    snarkjs: Path | None,
    rapidsnark: Path | None,
    peer: bool,
    json_file: Path | None,
) -> None:
    """Groth16 proofs by number of constraints, beside other provers."""
    print_device(suite.select_device())
    measured = suite.measure_groth16(
        show_progress,
        quick=quick,
        curve=curve,
        sizes=tuple(sorted(set(sizes))),
        circuits=tuple(dict.fromkeys(circuits)),
        snarkjs=snarkjs,
        rapidsnark=rapidsnark,
        peer=peer,
    )
    with report_measurement("groth16", measured, json_file):
        console.print(_make_proofs_table(measured.rows, measured.peers))
        _print_peers(measured.packages, measured.peers)
        console.print(PROOFS_LEGEND)
        console.print(_make_keys_table(measured.rows))
        console.print(KEYS_LEGEND)
        for circuit in dict.fromkeys(each.circuit for each in measured.stages):
            own = [each for each in measured.stages if each.circuit == circuit]
            console.print(_make_stages_table(circuit, own))
        console.print(STAGES_LEGEND)
        if measured.command is not None:
            _print_command(measured.command)


def _make_proofs_table(rows: Sequence[Groth16Row], peers: Sequence[ProverPeerRow]) -> Table:
    packages = list(dict.fromkeys(each.package for each in peers))
    table = make_table(
        f"Groth16, {rows[0].curve}, ms",
        *("circuit", "size", "ms", "best", "batch", "first", "verify", *packages),
    )
    for row in rows:
        own = {
            each.package: each.ms
            for each in peers
            if (each.circuit, each.log_constraints) == (row.circuit, row.log_constraints)
        }
        times = (own.get(package) for package in packages)
        table.add_row(
            row.circuit,
            f"2^{row.log_constraints}",
            f"{row.ms:,.2f}",
            f"{row.best_ms:,.2f}",
            f"{row.batch_ms:,.2f}",
            f"{row.first_ms:,.0f}",
            f"{row.verify_ms:,.1f}",
            *("-" if each is None else f"{each:,.0f}" for each in times),
        )
    return table


def _print_peers(packages: Sequence[ProverPeerState], peers: Sequence[ProverPeerRow]) -> None:
    """Which versions were measured, and what was not, with the reason."""
    for each in packages:
        found = f"version {each.version}" if each.reason is None else each.reason
        print_text(f"{each.package}: {found}")
    for row in peers:
        if row.reason is not None:
            print_text(f"{row.package}, {row.circuit}, 2^{row.log_constraints}: {row.reason}")


def _make_keys_table(rows: Sequence[Groth16Row]) -> Table:
    table = make_table(
        "Keys, ms and MiB",
        *("circuit", "size", "signals", "setup", "save", "load", "file", "on device", "in use"),
    )
    for row in rows:
        table.add_row(
            row.circuit,
            f"2^{row.log_constraints}",
            f"{row.signals:,}",
            f"{row.setup_ms:,.0f}",
            f"{row.save_ms:,.0f}",
            f"{row.load_ms:,.0f}",
            *(
                f"{each / (1 << 20):,.1f}"
                for each in (row.file_bytes, row.key_bytes, row.device_bytes)
            ),
        )
    return table


def _make_stages_table(circuit: str, stages: Sequence[ProofStageRow]) -> Table:
    shown = [shorten_stages(row.stages_ms) for row in stages]
    names = list(dict.fromkeys(name for each in shown for name in each))
    heads = [name.replace(", ", "\n") for name in names]
    table = make_table(f"Stages, {circuit}, ms", "size", "all", *heads)
    for row, own in zip(stages, shown, strict=True):
        times = (own.get(name) for name in names)
        taken = ("-" if each is None else round_digits(each) for each in times)
        table.add_row(f"2^{row.log_constraints}", round_digits(row.device_ms), *taken)
        if row.products_ms:
            alone = map(shorten_stages(row.products_ms).get, names)
            table.add_row(
                "products alone",
                "",
                *("" if each is None else round_digits(each) for each in alone),
            )
    return table


def _print_command(command: CommandTimes) -> None:
    print_text(
        f"`gpu-executor groth16 prove` with a key of 2^{command.log_constraints} constraints, as a "
        f"process from files to files: {command.first_ms / 1e3:,.2f} s with empty caches, "
        f"{command.second_ms / 1e3:,.2f} s the next time.\n"
    )
