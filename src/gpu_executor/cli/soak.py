"""`gpu-executor soak`: mixed jobs and faults for a while; what was done, what failed, what grew."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from gpu_executor.cli.screen import console, table
from gpu_executor.soak import Report
from gpu_executor.soak import soak as run_soak
from gpu_executor.soak.memory import Movement
from gpu_executor.soak.tally import FATES, TROUBLES

BYTES = {
    "other": "the process itself",
    "vulkan": "held by Vulkan backends",
    "webgpu": "held by WebGPU backends",
}
OF_DEVICES = ("device", "backend", "calls", "batches", "retries", "reopened", "errors", "failed")


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="How long.",
)
@click.option(
    "--seed", type=click.IntRange(0), help="What is drawn follows from it; any unless set."
)
@click.option(
    "--faults",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Injected a minute.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def soak(minutes: float, seed: int | None, faults: float, json_file: Path | None) -> None:
    """Mixed kernels, sizes, backends and injected faults; checks every result, watches memory."""
    seed = secrets.randbits(32) if seed is None else seed
    console.print(f"{minutes:g} minutes with seed {seed} and {faults:g} faults a minute\n")
    with _quiet_log(), Progress(console=console, transient=True) as progress:
        task = progress.add_task("soaking", total=1.0)
        report = run_soak(
            minutes, seed, faults, lambda share: progress.update(task, completed=share)
        )
    for absent in report.absent:
        console.print(f"left out: {absent}\n", soft_wrap=True)
    console.print(_asked(report))
    console.print(_devices(report))
    if report.faults:
        console.print(_faults(report))
    console.print(_memory(report))
    _verdict(report)
    if json_file is not None:
        json_file.write_text(json.dumps(as_dict(report), indent=2) + "\n")
        console.print(f"written to {json_file}")
    if report.tally.troubles["lost"]:
        console.file.flush()
        os._exit(1)  # threads that wait for what is lost would keep the process for ever
    if not report.well:
        sys.exit(1)


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """What is run again and reopened is counted; a line for each is too much."""
    log = logging.getLogger("gpu_executor.executor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def as_dict(report: Report) -> dict[str, Any]:
    """All of a report, for JSON."""
    return {
        "seed": report.seed,
        "seconds": report.seconds,
        "well": report.well,
        "jobs": report.tally.jobs,
        "asked": {
            way: {"jobs": each.jobs, "elements": each.elements, "fates": dict(each.fates)}
            for way, each in report.tally.asked.items()
        },
        "troubles": dict(report.tally.troubles),
        "described": report.tally.described,
        "faults": [
            {"kind": kind, "call": call, "fired": fired}
            for (kind, call), fired in sorted(report.faults.items())
        ],
        "begun_again": report.begun_again,
        "executors": [
            [{what: getattr(each, what) for what in OF_DEVICES} for each in stats.devices]
            for stats in report.executors
        ],
        "absent": list(report.absent),
        "samples": [dataclasses.asdict(each) for each in report.samples],
        "moved": [dataclasses.asdict(each) | {"grew": each.grew} for each in report.moved],
        "left": report.left,
    }


def _asked(report: Report) -> Any:
    title = f"{report.tally.jobs:,} jobs in {report.seconds:,.0f} s"
    made = table(title, "how", "jobs", "elements", *FATES)
    for way, asked in sorted(report.tally.asked.items()):
        fates = [f"{asked.fates[fate]:,}" if asked.fates[fate] else "-" for fate in FATES]
        made.add_row(way, f"{asked.jobs:,}", f"{asked.elements:,}", *fates)
    return made


def _devices(report: Report) -> Any:
    names = {each.device: None for stats in report.executors for each in stats.devices}
    made = table(
        f"What executors did on {', '.join(names)}",
        *("executor", "calls", "batches", "run again", "reopened"),
    )
    for number, stats in enumerate(report.executors, 1):
        for index, each in enumerate(stats.devices, 1):
            of_several = f", device {index}" if len(stats.devices) > 1 else ""
            figures = each.calls, each.batches, each.retries, each.reopened
            made.add_row(f"{number}: {each.backend}{of_several}", *(f"{n:,}" for n in figures))
    made.add_row("chains of fields on the card", "", "", f"{report.begun_again:,}", "")
    return made


def _faults(report: Report) -> Any:
    made = table(f"{sum(report.faults.values()):,} injected faults", "kind", "times", "in")
    kinds = sorted({kind for kind, _ in report.faults})
    for kind in kinds:
        calls = {call: n for (of, call), n in report.faults.items() if of == kind}
        named = ", ".join(f"{call.removeprefix('vk')} {n}" for call, n in sorted(calls.items()))
        made.add_row(kind, f"{sum(calls.values()):,}", named)
    return made


def _memory(report: Report) -> Any:
    made = table(
        "Memory between stretches of work, when nothing was in flight",
        *("what", "after warming up", "at the end", "may grow by"),
    )
    for each in report.moved:
        allowed = "not judged: too short" if each.allowed is None else _amount(each, each.allowed)
        made.add_row(
            BYTES.get(each.what, "Vulkan objects"),
            _amount(each, each.first),
            _amount(each, each.last),
            allowed,
        )
    made.add_row("Vulkan objects after closing", "", f"{sum(report.left.values()):,}", "0")
    return made


def _amount(moved: Movement, value: float) -> str:
    return f"{value / (1 << 20):,.1f} MiB" if moved.what in BYTES else f"{value:,.0f}"


def _verdict(report: Report) -> None:
    for words in report.tally.described:
        console.print(f"[red]{words}[/]", soft_wrap=True)
    counts = ", ".join(f"{report.tally.troubles[kind]} {kind}" for kind in TROUBLES)
    mark = "[green]well[/]" if report.well else "[red]not well[/]"
    console.print(f"{mark}: {counts}; again with --seed {report.seed}")
