"""`gpu-executor devices`: what there is to run on."""

from __future__ import annotations

import json

import click

from gpu_executor.cli.screen import console, gibibytes, table
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.instance import find_devices


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
def devices(as_json: bool) -> None:
    """List the Vulkan devices, best first."""
    found = find_devices()
    if as_json:
        click.echo(json.dumps([device.as_dict() for device in found], indent=2))
        return
    listing = table("Vulkan devices, best first", "#", "name", "kind", "driver", "Vulkan", "memory")
    for device in found:
        version = ".".join(map(str, device.api_version))
        listing.add_row(
            str(device.index),
            device.name,
            device.kind,
            f"{device.driver} {device.driver_version}",
            version,
            gibibytes(device.device_memory),
        )
    console.print(listing)
    for device in found:
        console.print(f"{device.index}: {device.uuid}, queues {_queues(device)}")


def _queues(device: DeviceInfo) -> str:
    return ", ".join(f"{family.count} {'+'.join(family.work)}" for family in device.queue_families)
