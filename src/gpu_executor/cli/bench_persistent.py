"""`gpu-executor bench persistent`: one-shot against persistent calls, and their references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import suite
from gpu_executor.bench.first_call import FirstCallTimes
from gpu_executor.bench.overhead import KernelRate, Overhead
from gpu_executor.bench.persistent import PersistentRow
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, format_milliseconds, format_rate, make_table
from gpu_executor.cli.progress import show_progress
from gpu_executor.report.format import format_count
from gpu_executor.telemetry.stages import STAGES

STAGE_HEADINGS = {"descriptors": "sets", "recording": "record"}
"""Short headings for stages whose names are too long."""
OVERHEAD_LEGEND = (
    "beside: the same work in its barest form. commands alone: the recorded commands of the call, "
    "submitted and waited for through the Vulkan binding; copies in turn: the copies of the "
    "arguments by the copy threads and the copies over the bus, one after the other, without a "
    "kernel; copies and kernel in turn: each timed alone, and added up. A call that overlaps its "
    "copies takes less than copies in turn.\n"
)


@click.command("persistent")
@json_option
def bench_persistent(json_file: Path | None) -> None:
    """One-shot and persistent calls, their references, kernels."""
    print_device(suite.select_device())
    measured = suite.measure_persistent(show_progress)
    with report_measurement("persistent", measured, json_file):
        print_comparison(measured.rows)
        console.print(_make_stages_table(measured.rows))
        console.print(_make_overheads_table(measured.ratios))
        console.print(OVERHEAD_LEGEND)
        console.print(_make_rates_table(measured.rates))
        console.print(_describe_first_call(measured.first_call_of_a_process))


def print_comparison(rows: Sequence[PersistentRow]) -> None:
    """Print one-shot and persistent calls side by side, and explain the columns."""
    table = make_table(
        "BLS12-381 base-field additions, NumPy to NumPy",
        *("size", "path", "one-shot", "open", "first", "call", "speed-up", "Rust", "adds"),
    )
    for row in rows:
        original = f"{row.seed_speed_up:.1f}x" if row.seed_speed_up else ""
        for path, times in (("host", row.host_visible), ("device", row.device_local)):
            first = path == "host"
            table.add_row(
                format_count(row.elements) if first else "",
                path,
                format_milliseconds(row.one_shot_ms) if first else "",
                format_milliseconds(times.init_ms),
                format_milliseconds(times.first_ms),
                format_milliseconds(times.average_ms),
                f"{times.speed_up:.1f}x",
                original if first else "",
                format_rate(times.additions_per_second),
            )
    console.print(table)
    console.print(
        "One-shot creates and frees everything in each call. Persistent is opened once (open), "
        "then has a first call and further calls. Its data path goes through host-visible or "
        "device-local memory. Rust: the speed-up of the Rust original.\n"
    )


def _make_stages_table(rows: Sequence[PersistentRow]) -> Table:
    headings = [STAGE_HEADINGS.get(stage, stage) for stage in STAGES]
    table = make_table("Stages of a call (ms)", "size", "path", *headings)
    for row in rows:
        for name, stages in (
            ("one-shot", row.one_shot_stages_ms),
            ("host", row.host_visible.stages_ms),
            ("device", row.device_local.stages_ms),
        ):
            cells = [_format_stage(stages.get(stage, 0.0)) for stage in STAGES]
            table.add_row(format_count(row.elements) if name == "one-shot" else "", name, *cells)
    return table


def _format_stage(milliseconds: float) -> str:
    if not milliseconds:
        return "-"
    return f"{milliseconds:.3f}" if milliseconds < 1_000 else f"{milliseconds:.1f}"


def _make_overheads_table(overheads: Sequence[Overhead]) -> Table:
    table = make_table(
        "Calls beside the same work in its barest form, measured in the same run",
        *("what", "measured", "beside", "", "ratio", "target"),
    )
    for each in overheads:
        table.add_row(
            each.name,
            f"{each.measured:.1f} {each.unit}",
            f"{each.reference:.1f} {each.unit}",
            each.beside,
            f"{each.ratio:.2f}",
            f"at most {each.allowed:.1f}",
        )
    return table


def _make_rates_table(rates: Sequence[KernelRate]) -> Table:
    table = make_table(
        "Single kernels, timed by the device's clock", "kernel", "elements", "rate", "bandwidth"
    )
    for rate in rates:
        moved = "" if rate.bytes_per_second is None else f"{rate.bytes_per_second / 1e9:,.1f} GB/s"
        table.add_row(rate.name, format_count(rate.elements), format_rate(rate.per_second), moved)
    return table


def _describe_first_call(first: FirstCallTimes) -> str:
    without, with_cache = map(format_milliseconds, (first.without_ms, first.with_ms))
    pipeline_without, pipeline_with = map(
        format_milliseconds, (first.pipeline_without_ms, first.pipeline_with_ms)
    )
    return (
        f"First call of a process: {without} without the pipeline cache on disk, {with_cache} with "
        f"it. Creating the pipeline takes {pipeline_without} and {pipeline_with} of this. The "
        f"cache has {first.cache_bytes:,} bytes."
    )
