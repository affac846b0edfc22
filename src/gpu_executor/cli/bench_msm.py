"""`gpu-executor bench msm`: multi-scalar multiplications by curve, size and stage."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from gpu_executor.bench import msm
from gpu_executor.cli.bench_output import (
    json_option,
    print_device,
    print_targets,
    targets_as_dicts,
    write_json,
)
from gpu_executor.cli.output import console, make_table, show_progress
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

LEGEND = (
    "Points are on the device. All times are milliseconds. ms: the median of calls from scalars in "
    "NumPy memory to an affine point on the host; first: the first call, which compiles pipelines. "
    "The stages are waited for one by one, so their sum is more than a call. M add/s: mixed "
    "additions while points are added to buckets. Every result was checked by the known logarithms "
    "of the points.\n"
)
STAGES = ("sort", "accumulate", "reduce", "join")
"""The stages that take time; the JSON file has all of them."""


@click.command("msm")
@click.option(
    "--largest",
    type=click.IntRange(0, 24),
    show_default=f"{msm.LARGEST}; {msm.LARGEST_ON_CPU} without a GPU",
    help="Log2 of the largest number of points.",
)
@click.option(
    "--curve", "curves", multiple=True, default=msm.CURVES, show_default=True, help="Curves."
)
@json_option
def bench_msm(largest: int | None, curves: tuple[str, ...], json_file: Path | None) -> None:
    """Multi-scalar multiplications by curve, size and stage."""
    with PersistentVulkanBackend() as gpu:
        print_device(gpu.device)
        measured = msm.measure_msms(gpu, msm.choose_sizes(gpu.device, largest), curves)
        rows = [row for each in show_progress(measured, len(curves), "curves") for row in each]
    table = make_table(
        "Multi-scalar multiplication", "curve", "points", "ms", "first", *STAGES, "M add/s"
    )
    for row in rows:
        stages = (f"{row.stages_ms[stage]:.2f}" for stage in STAGES)
        rate = f"{row.additions_per_second / 1e6:,.1f}"
        times = f"{row.ms:.2f}", f"{row.first_ms:,.0f}"
        table.add_row(row.curve, f"2^{row.log_points}", *times, *stages, rate)
    console.print(table)
    console.print(LEGEND)
    targets = msm.check_targets(rows, gpu.device)
    print_targets(targets)
    if json_file is not None:
        content = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "aims": targets_as_dicts(targets),
        }
        write_json(json_file, gpu.device, content)
