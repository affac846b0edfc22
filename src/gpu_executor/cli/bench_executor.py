"""`gpu-executor bench executor`: GpuExecutor against its backend, and what coalescing gains."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import suite
from gpu_executor.bench.executor_jobs import (
    MAP_ELEMENTS,
    MAP_JOBS,
    SMALL_ELEMENTS,
    THREADS,
    ExecutorMeasurement,
)
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, format_milliseconds, format_rate, make_table
from gpu_executor.cli.progress import show_progress, show_work
from gpu_executor.report.format import format_count


@click.command("executor")
@json_option
def bench_executor(json_file: Path | None) -> None:
    """GpuExecutor against its backend; jobs of many threads."""
    print_device(suite.select_device())
    with show_work("calls and jobs"):
        found = suite.measure_executor(show_progress)
    with report_measurement("executor", found, json_file):
        console.print(_make_measurement_table(found.calls))


def _make_measurement_table(measured: ExecutorMeasurement) -> Table:
    table = make_table("BLS12-381 base-field additions, NumPy to NumPy", "what", "measured")
    call = f"call of {SMALL_ELEMENTS} elements"
    jobs = f"{MAP_JOBS:,} jobs of {format_count(MAP_ELEMENTS)}"
    for what, value in (
        (f"{call}: backend.run", format_milliseconds(measured.direct_us / 1e3)),
        (f"{call}: executor.run", format_milliseconds(measured.run_us / 1e3)),
        (f"{call}: executor.submit and result", format_milliseconds(measured.submit_us / 1e3)),
        (f"{jobs}: backend.run_batch", format_milliseconds(measured.batch_ms)),
        (f"{jobs}: executor.map", format_milliseconds(measured.map_ms)),
        ("submit and result, jobs of one thread", format_rate(measured.one_thread)),
        (f"submit and result, jobs of {THREADS} threads", format_rate(measured.threads)),
    ):
        table.add_row(what, value)
    return table
