"""`gpu-executor bench executor`: what GpuExecutor adds, and what gathering gains."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from gpu_executor.bench import executor
from gpu_executor.bench.executor import FEW, MAPPED_ELEMENTS, MAPPED_JOBS, THREADS, Figures
from gpu_executor.cli.figures import chosen_device, plain_aims, show_aims, show_device, write
from gpu_executor.cli.screen import console, elements, milliseconds, per_second, table


@click.command("executor")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_executor(json_file: Path | None) -> None:
    """GpuExecutor beside its backend: single calls, map, and jobs from many threads."""
    device = chosen_device()
    show_device(device)
    figures = executor.measure()
    console.print(_table(figures))
    aims = executor.aims(figures, on_gpu=device.kind != "cpu")
    show_aims(aims, [])
    if json_file is not None:
        write(json_file, device, dataclasses.asdict(figures) | {"aims": plain_aims(aims)})


def _table(figures: Figures) -> Any:
    made = table("BLS12-381 base-field additions, NumPy to NumPy", "what", "measured")
    one, many = f"one call of {FEW} elements", f"{MAPPED_JOBS:,} of {elements(MAPPED_ELEMENTS)}"
    for what, measured in (
        (f"{one}: backend.run", milliseconds(figures.direct_us / 1e3)),
        (f"{one}: executor.run", milliseconds(figures.run_us / 1e3)),
        (f"{one}: executor.submit and result", milliseconds(figures.submit_us / 1e3)),
        (f"{many}: backend.run_batch, pipelined", milliseconds(figures.batch_ms)),
        (f"{many}: executor.map", milliseconds(figures.map_ms)),
        ("submit and result, one thread", per_second(figures.one_thread)),
        (f"submit and result, {THREADS} threads", per_second(figures.threads)),
    ):
        made.add_row(what, measured)
    return made
