"""`gpu-executor bench buckets`: batches on WebGPU, as tables and with an analysis in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import buckets, suite
from gpu_executor.bench.buckets import NOTHING, BucketRow, SingleTaskRow, Spread
from gpu_executor.cli.bench_output import json_option, report_measurement
from gpu_executor.cli.output import console, format_milliseconds, make_table
from gpu_executor.cli.progress import show_progress


@click.command("buckets")
@json_option
def bench_buckets(json_file: Path | None) -> None:
    """Batches on WebGPU, with and without size buckets."""
    measured = suite.measure_buckets(show_progress)
    adapter, rows, singles = measured.device, measured.rows, measured.singles
    with report_measurement("buckets", measured, json_file):
        console.print(f"{adapter.name}, {adapter.backend}, wgpu-py {adapter.wgpu}\n")
        console.print(_make_batches_table(rows))
        console.print(_format_batches_legend(rows))
        console.print(_make_single_tasks_table(singles))
        console.print(_describe_created(rows, singles))
        for paragraph in _analyse(rows, singles):
            console.print(f"- {paragraph}")


def _make_batches_table(rows: Sequence[BucketRow]) -> Table:
    table = make_table(
        "Batches of uint32 additions, NumPy to NumPy (ms)",
        *("tasks", "no\ncaches", "pipelines", "buckets", "kernel", "gain", "quartiles"),
        "target,\nmet",
    )
    for row in rows:
        gain = row.over_pipelines
        table.add_row(
            row.name,
            _format_digits(row.no_caches_ms),
            _format_digits(row.pipelines_ms),
            _format_digits(row.buckets_ms),
            _format_digits(row.kernel_ms),
            f"{gain.ratio:.2f}",
            f"{gain.low:.2f}-{gain.high:.2f}",
            "" if row.aim is None else f"{row.aim} {_format_met(gain.ratio >= row.aim)}",
        )
    return table


def _format_batches_legend(rows: Sequence[BucketRow]) -> str:
    rounds = [row.turns for row in rows]
    return (
        "no caches: everything is created for every task. pipelines: one pipeline and one "
        "submission, buffers created for every task. buckets: WgpuExecutor.run_batch after a "
        "warm-up. kernel: the dispatches alone. gain: time of pipelines over that of buckets, "
        f"medians of {min(rounds)} to {max(rounds)} rounds; quartiles: of the gain within a round. "
        "In each round every program is called once untimed before its timed call.\n"
    )


def _make_single_tasks_table(singles: Sequence[SingleTaskRow]) -> Table:
    table = make_table(
        f"A single task of {buckets.SINGLE_ELEMENTS:,} elements, repeated",
        *("queue", "baseline", "executor", "ratio", "target", "met"),
        *("95th", "/median", "target", "met"),
    )
    for each in singles:
        table.add_row(
            _name_queue(each),
            format_milliseconds(each.plain_us / 1e3),
            format_milliseconds(each.median_us / 1e3),
            f"{each.ratio:.2f}",
            f"{each.aim}",
            _format_met(each.ratio <= each.aim),
            format_milliseconds(each.p95_us / 1e3),
            f"{each.tail:.2f}",
            f"{buckets.TAIL_TARGET}",
            _format_met(each.tail <= buckets.TAIL_TARGET),
        )
    return table


def _describe_created(rows: Sequence[BucketRow], singles: Sequence[SingleTaskRow]) -> str:
    """Describe the objects that the executors created while they were timed."""
    created = sum([*(row.made for row in rows), *(each.made for each in singles)], NOTHING)
    return (
        f"Created in steady state: {created.total} ({created.pipelines} pipelines, "
        f"{created.buffer_sets} buffer sets, {created.buffers} buffers; target 0)\n"
    )


def _analyse(rows: Sequence[BucketRow], singles: Sequence[SingleTaskRow]) -> Iterator[str]:
    """Return a paragraph for each row of the tables."""
    for row in rows:
        yield f"{row.name}: {_judge_gain(row.over_pipelines)}. {_explain_gain(row)}"
    for each in singles:
        yield (
            f"single task, {_name_queue(each)} queue: {each.ratio:.2f} of the baseline's time. The "
            f"95th percentile is {each.tail:.2f} of the median, {each.plain_tail:.2f} for the "
            f"baseline."
        )


def _judge_gain(gain: Spread) -> str:
    spread = f"(quartiles {gain.low:.2f} to {gain.high:.2f})"
    if gain.low > 1:
        return f"buckets are {gain.ratio:.2f}x as fast as pipelines {spread}"
    if gain.high < 1:
        return f"buckets lose, {gain.ratio:.2f}x the speed of pipelines {spread}"
    return f"buckets and pipelines are about even, {gain.ratio:.2f}x {spread}"


def _explain_gain(row: BucketRow) -> str:
    """Explain how much each improvement saves, and how much there was to save."""
    saved, phases = row.saved, row.parts
    times = "once" if row.submissions == 1 else f"{row.submissions} times"
    share = (saved.reuse_ms + saved.private_ms) / saved.beside_kernel_ms
    return (
        f"Saved, in ms: one pipeline for all {_format_digits(saved.one_pipeline_ms)}, buffers and "
        f"bind groups reused {_format_digits(saved.reuse_ms)}, native queue "
        f"{_format_digits(saved.private_ms)}. Pipelines spend {_format_digits(phases.making_ms)} "
        f"creating buffers, {_format_digits(phases.submitting_ms)} recording and submitting, "
        f"{_format_digits(phases.reading_ms)} waiting and reading; the executor submits {times}. "
        f"Of the {_format_digits(saved.beside_kernel_ms)} ms outside the kernel, buckets save "
        f"{share:.0%}; all of it would be a gain of {row.most:.2f}x."
    )


def _name_queue(single: SingleTaskRow) -> str:
    return "native" if single.private else "public"


def _format_met(met: bool) -> str:
    return "yes" if met else "no"


def _format_digits(value: float) -> str:
    """Format with three significant digits and at most two decimals."""
    decimals = sum(abs(value) < limit for limit in (9.995, 99.95))
    return f"{value:.{decimals}f}"
