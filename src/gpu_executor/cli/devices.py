"""`gpu-executor devices`: the Vulkan devices of this machine."""

from __future__ import annotations

import json

import click

from gpu_executor.cli.output import console, format_gibibytes, make_table
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.instance import find_devices


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print everything known about each device as JSON."
)
def devices(as_json: bool) -> None:
    """List the Vulkan devices, best first."""
    found = find_devices()
    if as_json:
        click.echo(json.dumps([device.as_dict() for device in found], indent=2))
        return
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
        console.print(f"{device.index}: {device.uuid}, queues {_describe_queues(device)}")


def _describe_queues(device: DeviceInfo) -> str:
    return ", ".join(f"{family.count} {'+'.join(family.work)}" for family in device.queue_families)
