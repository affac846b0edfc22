"""`gpu-executor bench arrays`: NumPy's arithmetic on device arrays."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench import device_arrays
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, format_rate, make_table
from gpu_executor.cli.progress import show_work

LEGEND = (
    "Medians of operations in a recorded graph. memory: bytes that are read and written; copy: "
    "these bytes a second over those of a copy on the device.\n"
)


@click.command("arrays")
@click.option(
    "--log-count",
    type=click.IntRange(10, 28),
    show_default=f"{device_arrays.LOG_COUNT}; {device_arrays.LOG_COUNT_ON_CPU} without a GPU",
    help="Log2 of the number of elements.",
)
@json_option
def bench_arrays(log_count: int | None, json_file: Path | None) -> None:
    """NumPy's arithmetic on device arrays, beside a copy on the device."""
    with show_work("operations"):
        device, rows = device_arrays.measure_arrays(log_count)
    with report_measurement("arrays", MeasuredRows(device, rows), json_file):
        print_device(device)
        title = f"Arrays of 2^{rows[0].elements.bit_length() - 1} elements"
        table = make_table(title, "operation", "dtype", "ms", "memory", "copy")
        for row in rows:
            table.add_row(
                row.operation,
                row.dtype,
                f"{row.ms:.3g}",
                format_rate(row.bytes_per_second).replace("/s", "B/s"),
                f"{row.share_of_copy:.2f}",
            )
        console.print(table)
        console.print(LEGEND)
