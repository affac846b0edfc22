"""Output of all benchmarks: the device, the targets, and a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.bench.suite import Measurement
from gpu_executor.bench.targets import Target
from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import JsonOutput, console, make_table, print_text
from gpu_executor.device_info import DeviceInfo

json_option = make_json_option("Write all measurements to this file;")


def print_device(device: DeviceInfo) -> None:
    print_text(f"{device.name}, {device.driver} {device.driver_version}\n")


def print_targets(targets: Sequence[Target], absent: Sequence[str] = ()) -> None:
    """Print a line for each package that is not installed, then the targets."""
    for package in absent:
        console.print(f"{package} is not installed: no comparison with it\n")
    if not targets:
        return
    table = make_table("Targets on this device", "what", "measured", "target", "met")
    for each in targets:
        bound = "at most" if each.at_most else "at least"
        table.add_row(
            each.what,
            f"{each.measured:.3g} {each.unit}",
            f"{bound} {each.aim:g} {each.unit}",
            "yes" if each.met else "no",
        )
    console.print(table)


def write_json(path: Path | None, name: str, measured: Measurement) -> JsonOutput:
    """Write the measurements of one benchmark to the file of --json, with their environment."""
    if path is None:
        return JsonOutput(None, {})
    run = BenchmarkRun(describe_environment(measured.device))
    run.benchmarks[name] = BenchmarkResult.of(measured.device, measured.tables())
    return JsonOutput(path, run.as_dict())


def format_millions(rate: float) -> str:
    """Write a rate in millions, with a decimal below a hundred."""
    return f"{rate / 1e6:,.1f}" if rate < 1e8 else f"{rate / 1e6:,.0f}"


def break_line(name: str) -> str:
    """Write the last word of a column's name below the others, so that all columns fit."""
    return "\n".join(name.replace("_", " ").rsplit(" ", 1))
