"""`gpu-executor devices`: the devices of this machine, by Vulkan and by WebGPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from rich.markup import escape

from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import JsonOutput, console, format_gibibytes, make_table, print_text
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import GpuError
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.webgpu.device import find_adapters


@click.command()
@make_json_option("Write everything known about each device to this file;")
def devices(json_file: Path | None) -> None:
    """List the devices of Vulkan and of WebGPU, best first; as JSON, Vulkan's alone."""
    found = find_devices()
    file = JsonOutput(json_file, [device.as_dict() for device in found])
    table = make_table(
        "Vulkan devices, best first", "#", "name", "kind", "driver", "Vulkan", "memory"
    )
    for device in found:
        version = ".".join(map(str, device.api_version))
        table.add_row(
            str(device.index),
            device.name,
            device.kind,
            f"{device.driver} {device.driver_version}",
            version,
            format_gibibytes(device.device_memory),
        )
    console.print(table)
    for device in found:
        print_text(f"{device.index}: {device.uuid}, queues {_describe_queues(device)}")
    console.print(f"WebGPU: {_list_webgpu()}", soft_wrap=True)
    file.report()


def _list_webgpu() -> str:
    try:
        return list_adapters(find_adapters()) or "no device found"
    except GpuError as error:
        return escape(str(error))


def list_adapters(adapters: Iterable[tuple[str, str]]) -> str:
    """List the names and types of adapters, each once: several APIs may have the same device."""
    return "; ".join(dict.fromkeys(f"{name} ({kind})" for name, kind in adapters))


def _describe_queues(device: DeviceInfo) -> str:
    return ", ".join(f"{family.count} {'+'.join(family.work)}" for family in device.queue_families)
