"""`gpu-executor bench host-time`: the host time of operations that return at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from gpu_executor.bench import host_time
from gpu_executor.bench.suite import MeasuredTables
from gpu_executor.bench.targets import targets_as_dicts
from gpu_executor.cli.bench_output import (
    json_option,
    print_device,
    print_targets,
    write_json,
)
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
    targets = host_time.check_targets(rows, device)
    content = {
        "rows": [dataclasses.asdict(row) for row in rows],
        "aims": targets_as_dicts(targets),
    }
    file = write_json(json_file, "host-time", MeasuredTables(device, content))
    print_device(device)
    table = make_table("Host time of one operation", "operation", "us")
    for row in rows:
        table.add_row(row.operation, f"{row.us:.1f}")
    console.print(table)
    console.print(LEGEND)
    print_targets(targets)
    file.report()
