"""`gpu-executor bench opening`: imports, opening a device and the first call of a process."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench import opening, suite
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.cli.bench_output import json_option, print_device, report_measurement
from gpu_executor.cli.output import console, make_table, print_text
from gpu_executor.curves.parameters import NAMES

COLUMNS = {
    "numpy_ms": "NumPy",
    "import_ms": "import",
    "open_ms": "open",
    "call_ms": "call",
    "together_ms": "together",
    "instance_ms": "instance",
    "devices_ms": "find",
    "device_ms": "device",
}
LEGEND = (
    "Medians of processes that ran in turns. together: import gpu_executor, open, first call; "
    "NumPy's import comes before. instance, find, device: in vkCreateInstance, "
    "vkEnumeratePhysicalDevices and vkCreateDevice, which are parts of open. The first call of the "
    "last processes is an MSM.\n"
)


@click.command("opening")
@click.option("--rounds", default=opening.ROUNDS, show_default=True, type=click.IntRange(1))
@click.option(
    "--curve",
    "curves",
    type=click.Choice(NAMES),
    multiple=True,
    default=opening.CURVES,
    show_default=True,
    help="Curves of first MSMs.",
)
@click.option(
    "--sizes",
    type=click.IntRange(0, opening.MAX_LOG_POINTS),
    multiple=True,
    default=opening.LOG_POINTS,
    show_default=True,
    help="log2 of the points of first MSMs; repeat it for several.",
)
@json_option
def bench_opening(
    rounds: int, curves: tuple[str, ...], sizes: tuple[int, ...], json_file: Path | None
) -> None:
    """Imports, opening a device and the first call, in new processes."""
    device = suite.select_device()
    print_device(device)
    rows = opening.measure_opening(device, rounds)
    msms = opening.measure_first_msms(curves, sizes)
    targets = opening.check_targets(rows) + opening.check_msm_targets(msms)
    rows += msms
    measured = MeasuredRows(device, rows, targets=targets)
    with report_measurement("opening", measured, json_file):
        table = make_table("The first result of a process (ms)", "process", *COLUMNS.values())
        for row in rows:
            table.add_row(row.what, *(_format(getattr(row, name)) for name in COLUMNS))
        console.print(table)
        console.print(LEGEND)
        for row in rows:
            if row.printed:
                print_text(f"{row.what} wrote to stderr:\n{row.printed}")


def _format(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds else "-"
