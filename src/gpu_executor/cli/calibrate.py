"""`gpu-executor calibrate`: what the device and its host can do, measured and kept."""

from __future__ import annotations

import sys

import click
from rich.table import Table

from gpu_executor.calibration import Calibration
from gpu_executor.cli.screen import console, milliseconds, per_second, table
from gpu_executor.settings import Settings
from gpu_executor.vulkan.disk_cache import calibration_path, read_calibration
from gpu_executor.vulkan.persistent import PersistentVulkanBackend


@click.command()
@click.option("--show", is_flag=True, help="Show what was kept, and measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="The figures as they are kept.")
def calibrate(show: bool, as_json: bool) -> None:
    """Measure the device, show its figures and keep them for plans to be made from."""
    settings = Settings.from_environment()
    folder = settings.cache_dir
    with PersistentVulkanBackend(settings=settings) as gpu:
        device = gpu.device
        figures = None if show else gpu.calibrate()
    if show and folder is not None:
        figures = read_calibration(folder, device)
    name = device.name
    if figures is None:
        click.echo(f"there are no figures of {name}: gpu-executor calibrate measures it", err=True)
        sys.exit(1)
    if as_json:
        click.echo(figures.to_json())
        return
    console.print(_table(name, figures))
    where = (
        "not kept: GPU_CACHE is 0"
        if folder is None
        else f"kept in {calibration_path(folder, device)}"
    )
    took = milliseconds(figures.seconds * 1e3)
    console.print(f"measured on {figures.when} in {took}, {where}", soft_wrap=True)


def _table(name: str, figures: Calibration) -> Table:
    listing = table(name, "what", "figure")
    rates = {
        "copies to the device": figures.copy_in,
        "copies back": figures.copy_out,
        "both at once, together": figures.copy_both,
        **{
            f"the host's copies, {threads} thread{'' if threads == 1 else 's'}": rate
            for threads, rate in figures.host_copy
        },
        "the host's copies of a shared piece": figures.shared_copy,
        "the host's copies while pieces overlap": figures.pieces_copy,
        "a kernel in device memory": figures.kernel,
        "a kernel in mapped memory": figures.kernel_mapped,
    }
    times = {
        "a small call in mapped memory": figures.call_mapped,
        "a small call through device memory": figures.call_staged,
        "one more small piece, in mapped memory": figures.piece_mapped,
        "through device memory": figures.piece_staged,
        "with copies on queues of their own": figures.piece_split,
        "on several queues in turn": figures.piece_several,
        "leaving a piece's copies to other threads": figures.handing_over,
        "sharing them": figures.sharing,
    }
    for what, rate in rates.items():
        listing.add_row(what, per_second(rate).replace("/s", "B/s"))
    for what, seconds in times.items():
        listing.add_row(what, "-" if seconds is None else f"{seconds * 1e6:.1f} us")
    return listing
