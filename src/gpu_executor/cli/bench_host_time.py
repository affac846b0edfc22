"""`gpu-executor bench host-time`: the host time of operations that return at once."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench import host_time
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, make_table
from gpu_executor.cli.progress import show_work

LEGEND = (
    "Medians of the time that an operation takes the calling thread. Operations on device arrays "
    "return before the device is done; calls on NumPy arrays wait for their results.\n"
)


@click.command("host-time")
@json_option
def bench_host_time(json_file: Path | None) -> None:
    """The host time of operations on device arrays, and of small calls."""
    with show_work("operations"):
        device, rows = host_time.measure_host_times()
    measured = MeasuredRows(device, rows, targets=host_time.check_targets(rows, device))
    with report_measurement("host-time", measured, json_file):
        print_device(device)
        table = make_table("Host time of one operation", "operation", "us")
        for row in rows:
            table.add_row(row.operation, f"{row.us:.1f}")
        console.print(table)
        console.print(LEGEND)
