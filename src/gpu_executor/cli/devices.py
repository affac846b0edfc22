"""`gpu-executor devices`: the Vulkan devices of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import JsonOutput, console, format_gibibytes, make_table, print_text
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.instance import find_devices


@click.command()
@make_json_option("Write everything known about each device to this file;")
def devices(json_file: Path | None) -> None:
    """List the Vulkan devices, best first."""
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
    file.report()


def _describe_queues(device: DeviceInfo) -> str:
    return ", ".join(f"{family.count} {'+'.join(family.work)}" for family in device.queue_families)
