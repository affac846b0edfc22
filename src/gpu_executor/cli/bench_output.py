"""Output of all benchmarks: the device, the targets, and a JSON file."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpu_executor.bench.targets import Target
from gpu_executor.cli.output import JsonFile, console, make_json_option, make_table
from gpu_executor.device_info import DeviceInfo
from gpu_executor.settings import Settings
from gpu_executor.version import __version__
from gpu_executor.vulkan.instance import Instance, choose_device

json_option = make_json_option("Write all measurements to this file.")


class DescribedDevice(Protocol):
    """A device or adapter that a JSON file can describe."""

    def as_dict(self) -> dict[str, Any]: ...


def select_device() -> DeviceInfo:
    """Return the device that backends open: the best, or the one that GPU_DEVICE selects."""
    instance = Instance()
    try:
        return choose_device(instance.devices(), Settings.from_environment().device)[1]
    finally:
        instance.close()


def print_device(device: DeviceInfo) -> None:
    console.print(f"{device.name}, {device.driver} {device.driver_version}\n")


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


def targets_as_dicts(targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Return the targets as dictionaries, for JSON."""
    return [dataclasses.asdict(each) | {"met": each.met} for each in targets]


def write_json(path: Path | None, device: DescribedDevice, measured: dict[str, Any]) -> JsonFile:
    """Write the measurements to the file of --json, with machine, device, commit and date."""
    return JsonFile(path, {} if path is None else _describe_environment(device) | measured)


def _describe_environment(device: DescribedDevice) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "commit": _read_commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _read_processor(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "device": device.as_dict(),
    }


def _read_commit() -> str | None:
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return git.stdout.strip()


def _read_processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def format_millions(rate: float) -> str:
    """Write a rate in millions, with a decimal below a hundred."""
    return f"{rate / 1e6:,.1f}" if rate < 1e8 else f"{rate / 1e6:,.0f}"


def break_line(name: str) -> str:
    """Write the last word of a column's name below the others, so that all columns fit."""
    return "\n".join(name.replace("_", " ").rsplit(" ", 1))
