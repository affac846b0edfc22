"""`gpu-executor bench interfaces`: the same operations by Vulkan and by WebGPU."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench import interfaces
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, make_table
from gpu_executor.cli.progress import show_work

LEGEND = "Best times of one operation on device arrays; an MSM ends when its result is computed.\n"


@click.command("interfaces")
@json_option
def bench_interfaces(json_file: Path | None) -> None:
    """The same operations by Vulkan and by WebGPU, on one driver."""
    with show_work("operations"):
        device, rows = interfaces.measure_interfaces()
    measured = MeasuredRows(device, rows, targets=interfaces.check_targets(rows))
    with report_measurement("interfaces", measured, json_file):
        print_device(device)
        table = make_table("Vulkan and WebGPU", "operation", "Vulkan ms", "WebGPU ms", "ratio")
        for row in rows:
            table.add_row(
                row.operation, f"{row.vulkan_ms:.3g}", f"{row.webgpu_ms:.3g}", f"{row.ratio:.2f}"
            )
        console.print(table)
        console.print(LEGEND)
