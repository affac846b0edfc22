"""What `gpu-executor bench buckets` prints: tables, and what they say in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpu_executor.bench import buckets
from gpu_executor.bench.bucket_figures import NOTHING, Row, Single, Spread
from gpu_executor.cli.screen import milliseconds, table


def batches(rows: Sequence[Row]) -> Any:
    """The ways side by side."""
    made = table(
        "Batches of additions of uint32, NumPy to NumPy (ms)",
        *("tasks", "no\ncaches", "pipelines", "buckets", "kernel", "gain", "quartiles", "aim"),
        "met",
    )
    for row in rows:
        gain = row.over_pipelines
        made.add_row(
            row.name,
            _figures(row.no_caches_ms),
            _figures(row.pipelines_ms),
            _figures(row.buckets_ms),
            _figures(row.kernel_ms),
            f"{gain.median:.2f}",
            f"{gain.low:.2f}-{gain.high:.2f}",
            *_aim(gain.median, row.aim),
        )
    return made


def single_tasks(singles: Sequence[Single]) -> Any:
    """One small task, the executor's against the plain program's."""
    made = table(
        f"One task of {buckets.SINGLE_ELEMENTS:,} elements, again and again",
        *("waiting", "plain", "executor", "ratio", "aim", "met", "95th", "/median", "aim"),
        "met",
    )
    for each in singles:
        made.add_row(
            "private" if each.private else "public",
            milliseconds(each.plain_us / 1e3),
            milliseconds(each.median_us / 1e3),
            f"{each.ratio:.2f}",
            f"{each.aim}",
            _met(each.ratio <= each.aim),
            milliseconds(each.p95_us / 1e3),
            f"{each.tail:.2f}",
            f"{buckets.TAIL_AIM}",
            _met(each.tail <= buckets.TAIL_AIM),
        )
    return made


def legend(rows: Sequence[Row]) -> str:
    """What the columns are."""
    turns = [row.turns for row in rows]
    return (
        "no caches: all is made for every task. pipelines: one pipeline and one submission, "
        "buffers made for every task. buckets: WgpuExecutor.run_batch, called before. kernel: the "
        "dispatches alone. gain: pipelines over buckets, the median of each turn's own ratio, "
        f"{min(turns)} to {max(turns)} turns. Each is called once more right before it is timed.\n"
    )


def analysis(rows: Sequence[Row], singles: Sequence[Single]) -> Iterator[str]:
    """What the figures say, a paragraph for each line of the tables."""
    for row in rows:
        yield f"{row.name}: {_verdict(row.over_pipelines)}. {_sources(row)}"
    for each in singles:
        name = "private" if each.private else "public"
        yield (
            f"single task, {name} waiting: {each.ratio:.2f} of the plain program's time. The 95th "
            f"percentile is {each.tail:.2f} of the median, {each.plain_tail:.2f} for the plain "
            f"program."
        )


def made_in_steady_state(rows: Sequence[Row], singles: Sequence[Single]) -> str:
    """What executors made while they were timed."""
    grown = [row.made for row in rows] + [single.made for single in singles]
    made = sum(grown, NOTHING)
    return (
        f"made in steady state: {made.total} ({made.pipelines} pipelines, {made.buffer_sets} "
        f"buffer sets, {made.buffers} buffers; aim 0)\n"
    )


def _verdict(gain: Spread) -> str:
    spread = f"(quartiles {gain.low:.2f} to {gain.high:.2f})"
    if gain.low > 1:
        return f"buckets are {gain.median:.2f}x as fast as pipelines {spread}"
    if gain.high < 1:
        return f"buckets lose, {gain.median:.2f}x the speed of pipelines {spread}"
    return f"buckets and pipelines are about even, {gain.median:.2f}x {spread}"


def _sources(row: Row) -> str:
    """Which step saves how much, and how much there was to save."""
    saved, parts = row.saved, row.parts
    times = "once" if row.submissions == 1 else f"{row.submissions} times"
    share = (saved.reuse_ms + saved.private_ms) / saved.beside_kernel_ms
    return (
        f"Saved, in ms: one pipeline for all {_figures(saved.one_pipeline_ms)}, buffers and bind "
        f"groups reused {_figures(saved.reuse_ms)}, private waiting {_figures(saved.private_ms)}. "
        f"Pipelines spend {_figures(parts.making_ms)} making buffers, "
        f"{_figures(parts.submitting_ms)} recording, {_figures(parts.reading_ms)} waiting and "
        f"reading; the executor submits {times}. Of the {_figures(saved.beside_kernel_ms)} beside "
        f"the kernel, buckets save {share:.0%}; all of it would be {row.most:.2f}x."
    )


def _aim(value: float, aim: float | None) -> tuple[str, str]:
    return ("", "") if aim is None else (f"{aim}", _met(value >= aim))


def _met(met: bool) -> str:
    return "yes" if met else "no"


def _figures(value: float) -> str:
    decimals = sum(abs(value) < limit for limit in (9.995, 99.95))
    return f"{value:.{decimals}f}"
