"""`gpu-executor bench batch`: sequential and pipelined batches, and the host time of a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import batch, suite
from gpu_executor.bench.batch import BatchRow, HotPath
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, make_table
from gpu_executor.cli.progress import show_progress
from gpu_executor.report.format import format_count

QUEUE_COUNTS = {"one": "one", "split": "three"}


@click.command("batch")
@click.option(
    "--all", "all_sizes", is_flag=True, help="Measure all sizes on a software device too."
)
@json_option
def bench_batch(all_sizes: bool, json_file: Path | None) -> None:
    """Sequential and pipelined batches; host time of a chunk."""
    print_device(suite.select_device())
    measured = suite.measure_batches(show_progress, all_sizes=all_sizes)
    with report_measurement("batch", measured, json_file):
        console.print(_make_batches_table(measured.rows))
        console.print(_summarize(measured.rows))
        console.print(_make_hot_path_table(measured.hot_path))


def _make_batches_table(rows: Sequence[BatchRow]) -> Table:
    table = make_table(
        "Batches of BLS12-381 base-field additions (ms)",
        *("size", "arrays", "jobs", "sequential", "pipelined", "a job", "faster", "Rust"),
        *("plan", "ratio"),
    )
    for row in rows:
        first = row.jobs == batch.JOBS[0]
        original = "" if row.seed_speed_up is None else f"{row.seed_speed_up:.2f}x"
        table.add_row(
            format_count(row.elements) if first and row.arrays == "plain" else "",
            row.arrays if first else "",
            str(row.jobs),
            _format_digits(row.sequential_ms),
            _format_digits(row.pipelined_ms),
            _format_digits(row.job_ms),
            f"{row.speed_up:.2f}x",
            original,
            _format_digits(row.plan_ms),
            f"{row.of_best:.2f}",
        )
    return table


def _summarize(rows: Sequence[BatchRow]) -> str:
    """Explain the columns, and name the batch for which the plan is worst."""
    worst = min(rows, key=lambda row: row.of_best)
    return (
        "size: elements of a job. a job: one job of the pipelined batch. faster: pipelined over "
        "sequential, medians of rounds. Rust: the same in the Rust "
        "original, from which this project started. plan: the mode that the planner chose. "
        "ratio: the time of the faster mode over the plan's.\n"
        f"The plan reaches at least {worst.of_best:.2f} of the faster mode (target "
        f"{batch.PLAN_TARGET}); its worst batch is {worst.jobs} jobs of "
        f"{format_count(worst.elements)}, {worst.arrays} arrays.\n"
    )


def _format_digits(value: float) -> str:
    """Format with three significant digits."""
    decimals = sum(value < limit for limit in (0.9995, 9.995, 99.95))
    return f"{value:.{decimals}f}"


def _make_hot_path_table(measured: Sequence[HotPath]) -> Table:
    table = make_table(
        f"Host time of a mapped chunk of {batch.SMALL_CHUNK} elements (us)",
        *("queues", "submissions", "start", "finish", "both", "target"),
    )
    for each in measured:
        table.add_row(
            QUEUE_COUNTS[each.queues],
            str(each.submissions),
            f"{each.start_us:.1f}",
            f"{each.finish_us:.1f}",
            f"{each.chunk_us:.1f}",
            f"at most {batch.HOT_PATH_TARGET_US:.0f}",
        )
    return table
