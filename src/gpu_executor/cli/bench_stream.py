"""`gpu-executor bench stream`: streamed additions against the bandwidth of the bus."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import stream, suite
from gpu_executor.bench.stream import StreamMeasurement
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.options import CountInMemory
from gpu_executor.cli.output import console, format_milliseconds, format_rate, make_table
from gpu_executor.cli.progress import show_progress
from gpu_executor.device_info import DeviceInfo
from gpu_executor.report.format import format_count

LEGEND = (
    "of the limit: the rate over that of copies in both directions at once, without a kernel.\n"
)


@click.command("stream")
@click.option(
    "--elements",
    "count",
    type=CountInMemory(10 * stream.ELEMENT_BYTES),
    show_default="16 Mi; 1 Mi without a GPU",
    help="Elements to add.",
)
@json_option
def bench_stream(count: int | None, json_file: Path | None) -> None:
    """Streamed additions against copies of the same bytes."""
    print_device(suite.select_device())
    found = suite.measure_stream(show_progress, count=count)
    with report_measurement("stream", found, json_file):
        console.print(_make_copies_table(found.measured))
        console.print(_make_streams_table(found.measured, found.device))
        console.print(LEGEND)


def _make_copies_table(measured: StreamMeasurement) -> Table:
    table = make_table(
        f"Copies without a kernel, chunks of {format_count(measured.chunk)}",
        *("direction", "elements", "in", "out"),
    )
    for each in measured.copies:
        moved = each.bytes_in_per_second, each.bytes_out_per_second
        table.add_row(
            each.direction,
            format_rate(each.elements_per_second),
            *(f"{rate / 1e9:.1f} GB/s" if rate else "" for rate in moved),
        )
    return table


def _make_streams_table(measured: StreamMeasurement, device: DeviceInfo) -> Table:
    table = make_table(
        f"{format_count(measured.elements)} BLS12-381 base-field additions",
        *("arrays", "time", "additions", "of the limit", "target"),
    )
    plain_target = f"{format_rate(stream.PLAIN_TARGET)} on H200"
    targets = {"mapped": f"{stream.MAPPED_TARGET} of the limit"}
    for each in measured.streams:
        plain = each.arrays.startswith("plain")
        target = plain_target if plain else targets.get(each.arrays, "")
        table.add_row(
            each.arrays,
            format_milliseconds(each.milliseconds),
            format_rate(each.additions_per_second),
            f"{each.of_limit:.2f}",
            target if device.kind == "discrete" else "",
        )
    return table
