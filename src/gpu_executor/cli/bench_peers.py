"""`gpu-executor bench peers`: this package and its peers on the same work, packages of Python or
programs of the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from gpu_executor.bench import suite
from gpu_executor.bench.peer_programs import FIRST_WORK
from gpu_executor.bench.peers import FirstCall, PeerRow, PeerState
from gpu_executor.bench.program_comparison import TIMEOUT, ProgramRow
from gpu_executor.bench.program_works import OPERATIONS, ProgramOperation
from gpu_executor.bench.suite import PeersMeasurement
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.options import FiniteRange, make_programs_option
from gpu_executor.cli.output import (
    console,
    format_milliseconds,
    format_rate,
    make_table,
    print_text,
)
from gpu_executor.cli.progress import show_progress
from gpu_executor.report.format import format_count

UNITS = {
    "products": "BabyBear products",
    "polynomial product": "Products of BabyBear polynomials, by coefficients",
    "commitments": "KZG commitments, by blobs",
    "point sum": "Sums of multiples of BLS12-381 G1 points, by points",
    "sum": "Sums of 32-bit integers, NumPy to NumPy, by elements",
    "batch of sums": "Batches of sums of 32-bit integers, NumPy to NumPy, by elements of a job",
}
STATES = {"measured": "measured", "absent": "not installed", "failed": "failed"}
LEGEND = (
    "ratio: the package's time over that of gpu-executor; "
    "below 1 the package is faster. Results were checked against exact integers before "
    "they were timed.\n"
)
FIRST_CALLS_LEGEND = (
    "first call: a fresh process, from its start until its first result; the packages of a table "
    "have the same inputs. Caches of drivers and packages on disk are used as they are. memory: "
    "main memory that this process held then.\n"
)


PROGRAMS_LEGEND = (
    "ratio: the program's time over that of gpu-executor; below 1 the program is faster. answer: "
    "from a request to its answer, by the clock of this package, for each call; the other times "
    "are the program's own. result: whether the program wrote its result and it is the same.\n"
)
MAX_LOG_SIZE = 26
MAX_TIMEOUT = 86_400


@click.command("peers")
@click.option("--quick", is_flag=True, help="Few sizes and short times.")
@make_programs_option("Measure a program of yours in place of the packages;")
@click.option(
    "--operation",
    "operations",
    type=click.Choice(OPERATIONS),
    multiple=True,
    help="Of --program: operations; all that it supports by default.",
)
@click.option(
    "--sizes",
    type=click.IntRange(1, MAX_LOG_SIZE),
    multiple=True,
    help="Of --program: log2 of a size; repeat it for several.",
)
@click.option(
    "--timeout",
    type=FiniteRange(0.1, MAX_TIMEOUT),
    default=TIMEOUT,
    show_default=True,
    help="Of --program: seconds for an answer.",
)
@json_option
def bench_peers(
    quick: bool,
    programs: list[list[str]],
    operations: tuple[ProgramOperation, ...],
    sizes: tuple[int, ...],
    timeout: float,
    json_file: Path | None,
) -> None:
    """Other packages, or a program of yours, on the same work in the same run."""
    if not programs and (operations or sizes):
        raise click.UsageError("--operation and --sizes are for --program COMMAND")
    print_device(suite.select_device())
    if programs:
        _compare_programs(
            suite.measure_programs(
                show_progress,
                programs,
                quick=quick,
                operations=operations,
                sizes=sorted(set(sizes)),
                timeout=timeout,
            ),
            json_file,
        )
        return
    measured = suite.measure_peers(show_progress, quick=quick)
    with report_measurement("peers", measured, json_file):
        for table in _make_tables(measured):
            console.print(table)
        console.print(LEGEND)
        console.print(_make_packages_table(measured.packages))
        for table in _make_first_calls_tables(measured.first_calls):
            console.print(table)
        console.print(FIRST_CALLS_LEGEND)
        for line in _describe_programs(measured):
            console.print(line, markup=False)


def _compare_programs(measured: PeersMeasurement, json_file: Path | None) -> None:
    """Print and write what was measured; end with exit code 1 if a program failed."""
    rows = measured.program_rows
    with report_measurement("peers", measured, json_file):
        for operation in dict.fromkeys(row.operation for row in rows):
            console.print(_make_program_table([row for row in rows if row.operation == operation]))
        if rows:
            console.print(PROGRAMS_LEGEND)
        for line in _list_program_notes(measured):
            print_text(line)
    states = [each.state for each in measured.programs] + [row.state for row in rows]
    if "failed" in states or not rows:
        raise SystemExit(1)


def _make_program_table(rows: Sequence[ProgramRow]) -> Table:
    names = "package", "of", "size", "time", "rate", "ratio", "answer", "result"
    table = make_table(rows[0].operation, *names)
    for row in rows:
        what = "\n".join(each for each in (row.field, row.curve, row.what) if each)
        shown = escape(row.package), what, format_count(row.elements)
        if row.ms is None or row.per_second is None or row.slower is None:
            table.add_row(*shown, row.state, "", "", "", "")
            continue
        table.add_row(
            *shown,
            format_milliseconds(row.ms),
            format_rate(row.per_second),
            f"{row.slower:.2f}x",
            "" if row.answer_ms is None else format_milliseconds(row.answer_ms),
            "checked" if row.checked else "not checked",
        )
    return table


def _list_program_notes(measured: PeersMeasurement) -> Iterator[str]:
    """On what the programs computed, and what was not measured, with the reason."""
    for state in measured.programs:
        if state.device is not None:
            yield f"{state.package} on {state.device}"
        if state.reason is not None:
            yield f"{state.package}: {state.reason}"
    for row in measured.program_rows:
        if row.reason is not None:
            names = ", ".join(each for each in (row.field, row.curve, row.what) if each)
            what = f"{row.operation} of {format_count(row.elements)}, {names}"
            yield f"{row.package}, {what}: {row.state}, {row.reason}"
    if not measured.program_rows and any(each.state == "measured" for each in measured.programs):
        yield "nothing was measured: no program supports an operation and size that were chosen"


def _make_tables(measured: PeersMeasurement) -> Iterator[Table]:
    """A table for each operation, with all its sizes."""
    for operation, rows in groupby(measured.rows, key=lambda row: row.operation):
        table = make_table(UNITS[operation], "package", "size", "time", "rate", "ratio")
        for row in rows:
            table.add_row(row.package, _format_size(row), *_format_times(row))
        yield table


def _format_size(row: PeerRow) -> str:
    count = format_count(row.elements)
    return count if row.jobs == 1 else f"{row.jobs} x {count}"


def _format_times(row: PeerRow) -> tuple[str, str, str]:
    if row.ms is None or row.per_second is None or row.slower is None:
        return "failed", "", ""
    return format_milliseconds(row.ms), format_rate(row.per_second), f"{row.slower:.2f}x"


def _make_packages_table(states: Sequence[PeerState]) -> Table:
    """All packages, those that are absent too."""
    table = make_table("Packages", "package", "version", "state")
    for each in states:
        table.add_row(each.package, each.version or "", STATES[each.state])
    return table


def _make_first_calls_tables(calls: Sequence[FirstCall]) -> Iterator[Table]:
    """A table for each work, with the packages that do it."""
    for operation, rows in groupby(calls, key=lambda call: call.operation):
        title = f"First calls of a process: {FIRST_WORK[operation]}"
        table = make_table(title, "package", "first call", "memory")
        for each in rows:
            memory = each.resident_bytes
            table.add_row(
                each.package,
                "failed" if each.ms is None else format_milliseconds(each.ms),
                "" if memory is None else f"{memory / 1e6:,.0f} MB",
            )
        yield table


def _describe_programs(measured: PeersMeasurement) -> Iterator[str]:
    """What each program does and where; what was not measured, and why."""
    for each in measured.packages:
        if each.state != "absent":
            where = "" if each.device is None else f" on {each.device}"
            yield f"{each.package}{where}: {each.program}"
        if each.reason is not None:
            yield f"{each.package}: {each.reason}"
    for call in measured.first_calls:
        if call.reason is not None:
            yield f"{call.package}, {call.operation}: {call.reason}"
    for row in measured.rows:
        if row.reason is not None:
            yield f"{row.package}, {row.operation} of {row.elements:,}: {row.reason}"
    for operation, reason in measured.left_out.items():
        yield f"{operation}: {reason}"
