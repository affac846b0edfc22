"""Output of all benchmarks: the device, tables, targets, and a JSON file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from gpu_executor.bench.measurement import Measurement, Target
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import JsonOutput, console, make_table, print_text
from gpu_executor.device_info import DeviceInfo

json_option = make_json_option("Write all measurements to this file;")


def print_device(device: DeviceInfo) -> None:
    print_text(f"{device.name}, {device.driver} {device.driver_version}\n")


@contextlib.contextmanager
def report_measurement(name: str, measured: Measurement, json_file: Path | None) -> Iterator[None]:
    """Write the file of --json before the block, which prints the tables of the benchmark, and
    print its targets after the block. If the block fails, the file is there."""
    file = _write_json(json_file, name, measured)
    yield
    if measured.targets:
        console.print(_make_targets_table(measured.targets))
    file.report()


def print_absent(packages: Sequence[str]) -> None:
    """Print a line for each package that is not installed."""
    for package in packages:
        console.print(f"{package} is not installed: no comparison with it\n")


def _make_targets_table(targets: Sequence[Target]) -> Table:
    table = make_table("Targets on this device", "what", "measured", "target", "met")
    for each in targets:
        bound = "at most" if each.at_most else "at least"
        table.add_row(
            each.what,
            f"{each.measured:.3g} {each.unit}",
            f"{bound} {each.aim:g} {each.unit}",
            "yes" if each.met else "no",
        )
    return table


def _write_json(path: Path | None, name: str, measured: Measurement) -> JsonOutput:
    """Write the measurements of one benchmark to the file of --json, with their environment."""
    if path is None:
        return JsonOutput(None, {})
    run = BenchmarkRun(describe_environment(measured.device))
    run.benchmarks[name] = BenchmarkResult.of(measured)
    return JsonOutput(path, run.as_dict())


def format_millions(rate: float) -> str:
    """Write a rate in millions, with a decimal below a hundred."""
    return f"{rate / 1e6:,.1f}" if rate < 1e8 else f"{rate / 1e6:,.0f}"


def break_line(name: str) -> str:
    """Write the last word of a column's name below the others, so that all columns fit."""
    return "\n".join(name.replace("_", " ").rsplit(" ", 1))
