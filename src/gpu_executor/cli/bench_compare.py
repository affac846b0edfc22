"""`gpu-executor bench compare`: which figures of two runs differ by more than their spread."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench.comparison import (
    MIN_CHANGE,
    MIN_SAMPLES,
    Change,
    RunComparison,
    compare_runs,
)
from gpu_executor.bench.results import MILLISECONDS, Series, read_run
from gpu_executor.cli.output import console, format_milliseconds, format_rate, make_table

File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("compare")
@click.argument("before", metavar="A.json", type=File)
@click.argument("after", metavar="B.json", type=File)
def bench_compare(before: Path, after: Path) -> None:
    """What changed from one run to another beyond its spread."""
    found = compare_runs(read_run(before), read_run(after))
    for name, first, second in found.differences:
        console.print(f"different {name}: {first}, then {second}", markup=False)
    if not found.changes:
        console.print("The files have no figure in common: nothing can be compared.")
        return
    _print_drifts(found)
    for verdict in ("slower", "faster"):
        changes = found.select(verdict)
        if changes:
            _print_changes(f"{verdict.capitalize()}: {len(changes)}", changes)
    _print_rest(found)


def _print_drifts(found: RunComparison) -> None:
    """Name the benchmarks that changed as a whole."""
    for name, speed in found.drifts.items():
        if not 1 / MIN_CHANGE < speed < MIN_CHANGE:
            console.print(f"{name} as a whole: {speed:.2f}x, the median speed of its figures")
    if found.drifts:
        console.print()


def _print_changes(title: str, changes: list[Change]) -> None:
    table = make_table(title, "figure", "A", "B", "speed")
    for each in changes:
        table.add_row(
            f"{each.benchmark}, {each.before.name}",
            _format(each.before),
            _format(each.after),
            f"{each.speed:.2f}x",
        )
    console.print(table)


def _print_rest(found: RunComparison) -> None:
    same, unjudged = len(found.select("same")), len(found.select("not judged"))
    console.print(
        f"Of {len(found.changes):,} figures in both files, {same:,} are the same within their "
        f"spread or changed as their benchmark did as a whole, and {unjudged:,} have fewer than "
        f"{MIN_SAMPLES} samples and are not judged. Only in A: {found.only_before:,}. Only in B: "
        f"{found.only_after:,}. speed: B over A, above 1 is faster."
    )


def _format(series: Series) -> str:
    if series.unit in MILLISECONDS:
        return format_milliseconds(series.value * MILLISECONDS[series.unit])
    return format_rate(series.value)
