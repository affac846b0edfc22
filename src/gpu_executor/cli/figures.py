"""What every benchmark shows and writes: the device, progress, aims, figures as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

from gpu_executor.bench.aims import Aim
from gpu_executor.bench.timing import circumstances
from gpu_executor.cli import aims as aim_tables
from gpu_executor.cli.screen import console
from gpu_executor.device_info import DeviceInfo
from gpu_executor.settings import Settings
from gpu_executor.vulkan.instance import Instance, choose

Item = TypeVar("Item")


def show_aims(aims: list[Aim], absent: list[str]) -> None:
    """The aims, behind a line for each package that there was nothing to compare with."""
    for line in aim_tables.absent(absent):
        console.print(f"{line}\n")
    if aims:
        console.print(aim_tables.aims(aims))


def plain_aims(aims: list[Aim]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) | {"met": each.met} for each in aims]


def with_progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items as they come, with a bar that shows how many have."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            progress.advance(task)
            yield item


def chosen_device() -> DeviceInfo:
    instance = Instance()
    try:
        return choose(instance.devices(), Settings.from_environment().device)[1]
    finally:
        instance.close()


def show_device(device: DeviceInfo) -> None:
    console.print(f"{device.name}, {device.driver} {device.driver_version}\n")


def write(path: Path, device: DeviceInfo, figures: dict[str, Any]) -> None:
    path.write_text(json.dumps(circumstances(device) | figures, indent=2) + "\n")
    console.print(f"written to {path}")
