"""`gpu-executor soak`: random calls with injected faults for some minutes, and a report."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from gpu_executor.cli.options import FiniteRange, make_json_option
from gpu_executor.cli.output import JsonOutput, console, make_table, print_text
from gpu_executor.cli.progress import open_progress
from gpu_executor.soak import SoakReport
from gpu_executor.soak import soak as run_soak
from gpu_executor.soak.load_generator import FIELD_OPERATIONS
from gpu_executor.soak.memory import MemoryTrend
from gpu_executor.soak.tally import DEFECTS, VERDICTS

MEMORY_LABELS = {
    "vulkan": "Vulkan backends",
    "webgpu": "WebGPU backends",
    "mapped": "memory shared with a GPU",
    "other": "process, without these",
}
"""Labels in the table of the quantities in bytes."""
JSON_METHOD_NAMES = {FIELD_OPERATIONS: "fields on the card"}
"""Call methods whose key in the JSON file differs from their name."""
MAX_MINUTES, MAX_FAULTS = 60.0 * 24 * 365, 60_000.0
"""A year, and a fault each millisecond."""
DEVICE_STATS = ("device", "backend", "calls", "batches", "retries", "reopened", "errors", "failed")


@click.command()
@click.option(
    "--minutes",
    type=FiniteRange(0, MAX_MINUTES, min_open=True),
    default=1.0,
    show_default=True,
    help="Duration of the run.",
)
@click.option(
    "--seed", type=click.IntRange(0), show_default="random", help="Seed of all random choices."
)
@click.option(
    "--faults",
    type=FiniteRange(0, MAX_FAULTS),
    default=60.0,
    show_default=True,
    help="Faults injected per minute, on average.",
)
@make_json_option("Write the report to this file;")
def soak(minutes: float, seed: int | None, faults: float, json_file: Path | None) -> None:
    """Check random calls under injected faults, and memory growth."""
    seed = secrets.randbits(32) if seed is None else seed
    console.print(f"{minutes:g} minutes with seed {seed} and {faults:g} faults per minute\n")
    with _quiet_log(), open_progress() as view:
        seconds = math.ceil(60 * minutes)
        task = view.begin("soaking, seconds", seconds)
        report = run_soak(minutes, seed, faults, lambda share: view.update(task, seconds * share))
    file = JsonOutput(json_file, as_dict(report))
    for absent in report.absent:
        print_text(f"not tested: {absent}\n")
    console.print(_make_calls_table(report))
    console.print(_make_executors_table(report))
    if report.faults:
        console.print(_make_faults_table(report))
    console.print(_make_memory_table(report))
    _print_verdict(report)
    if report.tally.defects["lost"]:
        console.file.flush()
        os._exit(1)  # threads that wait for a lost result would keep the process alive forever
    file.report()
    if not report.passed:
        sys.exit(1)


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Silence the executor's log: retries and reopened devices are in the report's counts."""
    log = logging.getLogger("gpu_executor.executor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def as_dict(report: SoakReport) -> dict[str, Any]:
    """Return the whole report as a dictionary, for JSON."""
    tally = report.tally
    return {
        "seed": report.seed,
        "seconds": report.seconds,
        "well": report.passed,
        "jobs": tally.jobs,
        "asked": {
            JSON_METHOD_NAMES.get(method, method): {
                "jobs": counts.jobs,
                "elements": counts.elements,
                "fates": dict(counts.verdicts),
            }
            for method, counts in tally.calls.items()
        },
        "troubles": dict(tally.defects),
        "described": tally.descriptions,
        "faults": [
            {"kind": kind, "call": call, "fired": fired}
            for (kind, call), fired in sorted(report.faults.items())
        ],
        "begun_again": report.restarts,
        "executors": [
            [{what: getattr(each, what) for what in DEVICE_STATS} for each in stats.devices]
            for stats in report.executors
        ],
        "absent": list(report.absent),
        "samples": [dataclasses.asdict(each) for each in report.samples],
        "moved": [dataclasses.asdict(each) | {"grew": each.grew} for each in report.trends],
        "left": report.leaked,
    }


def _make_calls_table(report: SoakReport) -> Table:
    title = f"{report.tally.jobs:,} jobs in {report.seconds:,.0f} s"
    table = make_table(title, "call method", "jobs", "elements", *VERDICTS)
    for method, counts in sorted(report.tally.calls.items()):
        verdicts = [counts.verdicts[verdict] for verdict in VERDICTS]
        cells = [f"{count:,}" if count else "-" for count in verdicts]
        table.add_row(method, f"{counts.jobs:,}", f"{counts.elements:,}", *cells)
    return table


def _make_executors_table(report: SoakReport) -> Table:
    names = {each.device: None for stats in report.executors for each in stats.devices}
    table = make_table(
        f"Executors on {', '.join(names)}", "executor", "calls", "batches", "retries", "reopened"
    )
    for number, stats in enumerate(report.executors, 1):
        for index, each in enumerate(stats.devices, 1):
            suffix = f", device {index}" if len(stats.devices) > 1 else ""
            counts = each.calls, each.batches, each.retries, each.reopened
            table.add_row(f"{number}: {each.backend}{suffix}", *(f"{n:,}" for n in counts))
    table.add_row(FIELD_OPERATIONS, "", "", f"{report.restarts:,}", "")
    return table


def _make_faults_table(report: SoakReport) -> Table:
    table = make_table(
        f"Injected faults: {sum(report.faults.values()):,}", "kind", "count", "by function"
    )
    kinds = sorted({kind for kind, _ in report.faults})
    for kind in kinds:
        calls = {call: n for (of, call), n in report.faults.items() if of == kind}
        named = ", ".join(f"{call.removeprefix('vk')} {n}" for call, n in sorted(calls.items()))
        table.add_row(kind, f"{sum(calls.values()):,}", named)
    return table


def _make_memory_table(report: SoakReport) -> Table:
    table = make_table(
        "Memory, sampled while nothing was in flight",
        *("held by", "after warm-up", "at the end", "allowed growth"),
    )
    for each in report.trends:
        allowed = (
            "too short to judge" if each.allowed is None else _format_bytes(each, each.allowed)
        )
        table.add_row(
            MEMORY_LABELS.get(each.what, "Vulkan objects"),
            _format_bytes(each, each.first),
            _format_bytes(each, each.last),
            allowed,
        )
    table.add_row("objects after closing", "", f"{sum(report.leaked.values()):,}", "0")
    return table


def _format_bytes(trend: MemoryTrend, value: float) -> str:
    return f"{value / (1 << 20):,.1f} MiB" if trend.what in MEMORY_LABELS else f"{value:,.0f}"


def _print_verdict(report: SoakReport) -> None:
    for description in report.tally.descriptions:
        console.print(f"[red]{escape(description)}[/]", soft_wrap=True)
    counts = ", ".join(f"{report.tally.defects[defect]} {defect}" for defect in DEFECTS)
    mark = "[green]passed[/]" if report.passed else "[red]failed[/]"
    console.print(f"{mark}: {counts}\nRepeat this run with --seed {report.seed}.")
