"""`gpu-executor bench kernels`: matrix products and reductions beside the roofline."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import kernels
from gpu_executor.bench.kernels import KernelMeasurement
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, format_milliseconds, make_table
from gpu_executor.cli.progress import show_work
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

LEGEND = (
    "All arrays are in device memory; times are by the device's clock. roofline: the time of the "
    "same arithmetic in registers, or of moving the same bytes at the rate of a copy by a kernel, "
    "the longer of both. Work on arrays that fit into caches can take less. Integer products are "
    "compared with f32 arithmetic too. A sample of every result was checked.\n"
)


@click.command("kernels")
@json_option
def bench_kernels(json_file: Path | None) -> None:
    """Matrix products and reductions beside the roofline."""
    with PersistentVulkanBackend() as gpu:
        print_device(gpu.device)
        with show_work("matrix products and reductions"):
            measured = kernels.measure_kernels(gpu, kernels.choose_sizes(gpu.device))
    with report_measurement("kernels", measured, json_file):
        console.print(_make_table(measured))
        console.print(
            f"f32 arithmetic: {measured.f32_flops / 1e12:.3g} TFLOP/s; copy: "
            f"{measured.copy_bytes_per_second / 1e9:,.0f} GB/s, read and written\n"
        )
        console.print(LEGEND)


def _make_table(measured: KernelMeasurement) -> Table:
    columns = "kernel", "shapes", "time", "roofline", "", "of roofline"
    table = make_table("Matrix products and reductions", *columns)
    for row in measured.rows:
        table.add_row(
            row.kernel,
            kernels.describe_shapes(row.shapes),
            format_milliseconds(row.ms),
            format_milliseconds(row.roofline_ms),
            row.limit,
            f"{row.of_roofline:.2f}",
        )
    return table
