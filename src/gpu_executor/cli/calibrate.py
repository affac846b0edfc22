"""`gpu-executor calibrate`: measure the device and its host, and save what the planner uses."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import (
    JsonOutput,
    console,
    format_milliseconds,
    format_rate,
    make_table,
    print_text,
)
from gpu_executor.cli.progress import show_work
from gpu_executor.common.files import check_folder_writable
from gpu_executor.errors import GpuError, SettingsError
from gpu_executor.plan.calibration import Calibration
from gpu_executor.settings import Settings
from gpu_executor.vulkan.disk_cache import calibration_path, read_calibration
from gpu_executor.vulkan.persistent import PersistentVulkanBackend


@click.command()
@click.option("--show", is_flag=True, help="Show the saved calibration; measure nothing.")
@make_json_option("Write the calibration, as it is saved, to this file;")
def calibrate(show: bool, json_file: Path | None) -> None:
    """Measure the device; show and save what the planner uses."""
    settings = Settings.from_environment()
    folder = settings.cache_dir
    if folder is not None and not show:
        _check_folder(folder)
    with PersistentVulkanBackend(settings=settings) as gpu:
        device = gpu.device
        calibration = None
        if not show:
            with show_work(f"measuring {device.name}"):
                calibration = gpu.calibrate()
    if show and folder is not None:
        calibration = read_calibration(folder, device)
    if calibration is None:
        raise GpuError(
            f"no saved calibration of {device.name}: run `gpu-executor calibrate` to measure it"
        )
    file = JsonOutput(json_file, json.loads(calibration.to_json()))
    console.print(_make_calibration_table(device.name, calibration))
    where = "not saved: GPU_CACHE is 0"
    if folder is not None:
        saved = read_calibration(folder, device) == calibration
        where = f"{'saved in' if saved else 'not saved in'} {calibration_path(folder, device)}"
    took = format_milliseconds(calibration.seconds * 1e3)
    print_text(f"measured on {calibration.when} in {took}, {where}")
    file.report()


def _check_folder(folder: Path) -> None:
    """Refuse to measure what could not be saved."""
    try:
        check_folder_writable(folder)
    except OSError as error:
        raise SettingsError(
            f"the calibration cannot be saved in {folder}: {error.strerror or error}; set "
            "GPU_CACHE_DIR to another folder, or GPU_CACHE=0 to measure without saving"
        ) from None


def _make_calibration_table(name: str, calibration: Calibration) -> Table:
    table = make_table(name, "what", "measured")
    rates = {
        "upload": calibration.copy_in,
        "readback": calibration.copy_out,
        "upload and readback at once, sum": calibration.copy_both,
        **{
            f"host copy, {threads} thread{'' if threads == 1 else 's'}": rate
            for threads, rate in calibration.host_copy
        },
        f"fill of inputs in {'device' if calibration.direct_fill else 'host'} memory, 1 thread": (
            calibration.fill_copy
        ),
        "host copy of one chunk, shared by threads": calibration.shared_copy,
        "host copies of several chunks, a thread each": calibration.chunks_copy,
        "kernel in device memory": calibration.kernel,
        "kernel in mapped memory": calibration.kernel_mapped,
    }
    times = {
        "small call in mapped memory": calibration.call_mapped,
        "small call through device memory": calibration.call_staged,
        "one more small chunk in mapped memory": calibration.chunk_mapped,
        "one more small chunk through device memory": calibration.chunk_staged,
        "one more small chunk, copies on transfer queues": calibration.chunk_split,
        "one more small chunk, on several queues": calibration.chunk_several,
        "handing a chunk's copies to other threads": calibration.handing_over,
        "sharing a chunk's copies between threads": calibration.sharing,
    }
    for what, rate in rates.items():
        table.add_row(what, format_rate(rate).replace("/s", "B/s"))
    for what, seconds in times.items():
        table.add_row(what, "-" if seconds is None else f"{seconds * 1e6:.1f} us")
    return table
