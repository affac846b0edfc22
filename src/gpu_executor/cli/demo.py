"""`gpu-executor demo`: the devices, a check of every backend, one-shot against persistent calls."""

from __future__ import annotations

import click

from gpu_executor.bench import persistent
from gpu_executor.cli.bench_persistent import print_comparison
from gpu_executor.cli.output import console, show_progress
from gpu_executor.cli.smoke import check_every_path
from gpu_executor.vulkan.instance import find_devices

SIZES = (64, 1 << 12, 1 << 16)


@click.command()
def demo() -> None:
    """Show the devices, check every backend, compare speeds."""
    for device in find_devices():
        console.print(f"[bold]{device.name}[/] ({device.kind}), {device.driver_version}")
    console.print("\nField additions on every backend and data path, compared with exact integers:")
    for description, right in check_every_path(1_000):
        mark = "[green]right[/]" if right else "[red]wrong[/]"
        console.print(f"  {mark}  {description}", soft_wrap=True)
    console.print()
    rows = show_progress(map(persistent.measure_size, SIZES), len(SIZES), "sizes")
    print_comparison(list(rows))
    console.print("`gpu-executor bench persistent` measures all sizes.")
