"""`gpu-executor demo`: the device, a check against exact integers, what persistence is worth."""

from __future__ import annotations

import click

from gpu_executor.bench import persistent
from gpu_executor.cli.bench import comparison
from gpu_executor.cli.figures import with_progress
from gpu_executor.cli.screen import console
from gpu_executor.cli.smoke import check_every_path
from gpu_executor.vulkan.instance import find_devices

SIZES = (64, 1 << 12, 1 << 16)


@click.command()
def demo() -> None:
    """Show what this is: found, checked, compared, in under a minute."""
    for device in find_devices():
        console.print(f"[bold]{device.name}[/] ({device.kind}), {device.driver_version}")
    console.print("\nThe same additions, every way there is, against exact integers:")
    for description, agrees in check_every_path(1_000):
        mark = "[green]right[/]" if agrees else "[red]wrong[/]"
        console.print(f"  {mark}  {description}", soft_wrap=True)
    console.print()
    rows = with_progress(map(persistent.measure, SIZES), len(SIZES), "measuring")
    console.print(comparison(list(rows)))
    console.print(
        "One-shot makes and frees everything at each call; persistent keeps it. "
        "`gpu-executor bench persistent` measures all sizes."
    )
