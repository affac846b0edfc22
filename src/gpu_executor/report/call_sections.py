"""Sections on calls: single ones, batches, the pipeline, streams, stages, buckets, executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from gpu_executor.bench.batch import ORIGINAL_SPEED_UPS
from gpu_executor.bench.persistent import ORIGINAL_MS
from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import (
    BarGroup,
    ChartAxis,
    ChartBar,
    ChartLine,
    DataPoint,
    HeatMap,
    draw_bars,
    draw_heat_maps,
)
from gpu_executor.report.contents import (
    OWN_SCALES,
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import (
    format_bandwidth,
    format_count,
    format_range,
    format_rate,
    format_ratio,
    format_time,
    round_digits,
)
from gpu_executor.report.shared_figures import (
    make_line_figure,
    make_stack_figure,
)

STREAMED = {
    "mapped": "between mapped arrays",
    "imported": "between imported arrays",
    "plain, into an array": "into your array",
    "plain, new results": "into new arrays",
}
"""Kinds of arrays of streamed additions, as ends of a sentence. Inputs are plain arrays where
nothing else is said."""
SOURCE = "Rust original (Intel i7-9750H, Windows)"


# --- calls ---


def show_calls(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    sizes = [row["elements"] for row in rows]

    def get_line(label: str, style: int, figure: str) -> ChartLine:
        points = []
        for row in rows:
            value: Any = row
            for part in figure.split("."):
                value = value[part]
            size = row["elements"]
            points.append(given.point(size, value, "rows", figure, elements=size))
        return ChartLine(label, points, style)

    original = [
        ChartLine(
            f"{kind}, {SOURCE}",
            [DataPoint(size, times[index]) for size, times in ORIGINAL_MS.items()],
            index,
            dash="dashed",
        )
        for index, kind in enumerate(("one-shot", "persistent"))
    ]
    lines = [
        get_line("one-shot", 0, "one_shot_ms"),
        get_line("persistent, host-visible", 1, "host_visible.average_ms"),
        get_line("persistent, device-local", 2, "device_local.average_ms"),
        *original,
    ]
    x_axis = ChartAxis("elements", format_count, ticks=sizes)
    y_axis = ChartAxis("time of a call", format_time)
    times = make_line_figure(
        "calls-by-size",
        "Time of a call by size",
        "Additions modulo a 381-bit prime, from NumPy array to NumPy array. One-shot creates and "
        "frees everything in each call; persistent keeps the device open. Dashed: the curve of "
        "the documents that this project started from, on another machine. Both axes are "
        "logarithmic; vertical strokes are the quartiles of the calls.",
        lines,
        x_axis,
        y_axis,
    )
    return ReportSection(
        name,
        title,
        _summarize_calls(rows),
        [times, _compare_paths(rows, sizes)],
    )


def _summarize_calls(rows: Sequence[Mapping[str, Any]]) -> str:
    first, last = rows[0], rows[-1]
    words = [
        f"At {format_count(row['elements'])} elements a persistent call takes "
        f"{format_time(best)} and a one-shot call {format_time(row['one_shot_ms'])}, "
        f"{format_ratio(row['one_shot_ms'] / best)} as long"
        for row in (first, last)
        for best in (min(row["host_visible"]["average_ms"], row["device_local"]["average_ms"]),)
    ]
    return ". ".join(words) + "."


def _compare_paths(rows: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Figure:
    points = [
        (row["elements"], row["host_visible"]["average_ms"] / row["device_local"]["average_ms"])
        for row in rows
    ]
    ends = [DataPoint(size, 1) for size in (sizes[0], sizes[-1])]
    even = ChartLine("equal", ends, 6, "dashed", markers=False)
    line = ChartLine("device-local over host-visible", [DataPoint(*each) for each in points], 2)
    crossings = [
        f"{format_count(a[0])} and {format_count(b[0])}"
        for a, b in pairwise(points)
        if (a[1] - 1) * (b[1] - 1) < 0
    ]
    if crossings:
        found = f"The paths cross between {', and between '.join(crossings)} elements."
    else:
        better = "device-local" if points[0][1] > 1 else "host-visible"
        found = f"On this device the {better} path is faster at every size that was measured."
    return make_line_figure(
        "path-crossover",
        "Crossover of the data paths",
        "The speed of the device-local path (copies to and from the device's own memory) over "
        "that of the host-visible path (the kernel reads memory of the host). Above 1, copying "
        f"pays. {found}",
        [line, even],
        ChartAxis("elements", format_count, ticks=sizes),
        ChartAxis("speed-up", format_ratio),
    )


# --- batches ---


def show_batches(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    sizes = sorted({row["elements"] for row in rows})
    jobs = sorted({row["jobs"] for row in rows})
    maps = []
    for arrays in ("plain", "mapped"):
        found = {
            (row["elements"], row["jobs"]): find_speed_up(row)
            for row in rows
            if row["arrays"] == arrays
        }
        if found:
            maps.append(_make_heat_map(f"{arrays} arrays", sizes, jobs, found))
    original = {
        (size, count): value
        for size, by_count in ORIGINAL_SPEED_UPS.items()
        for count, value in by_count.items()
    }
    source_sizes, source_jobs = sorted(ORIGINAL_SPEED_UPS), [2, 3, 4]
    maps.append(_make_heat_map("Rust original", source_sizes, source_jobs, original))
    best = max(rows, key=find_speed_up)

    def write_rounds(row: Mapping[str, Any]) -> str:
        key = {name: row[name] for name in ("elements", "jobs", "arrays")}
        quartiles = given.find_quartiles("rows", "speed_up", **key)
        return "" if quartiles is None else format_range(*quartiles)

    table = ValueTable(
        [
            *("elements", "jobs", "arrays", "sequential", "pipelined", "speed-up"),
            *("within rounds", "as planned"),
        ],
        [
            [
                format_count(row["elements"]),
                str(row["jobs"]),
                row["arrays"],
                format_time(row["sequential_ms"]),
                format_time(row["pipelined_ms"]),
                format_ratio(find_speed_up(row)),
                write_rounds(row),
                format_time(row["plan_ms"]),
            ]
            for row in rows
        ],
    )
    figure = Figure(
        "batch-speed-up",
        "Speed-up of pipelined over sequential batches",
        "Rows: elements of a job. Columns: jobs. Above 1, overlapping the copies of one job with "
        "the kernel of another pays. A speed-up is the quotient of the median times; within "
        "rounds: the quartiles of the quotients of neighbouring runs. The planner chooses the mode "
        "by itself. The Rust original, from which this project started, ran on another machine.",
        partial(draw_heat_maps, maps),
        table,
    )
    text = (
        f"The largest speed-up is {format_ratio(find_speed_up(best))}: {best['jobs']} jobs of "
        f"{format_count(best['elements'])} elements, {best['arrays']} arrays, "
        f"{format_time(best['sequential_ms'])} sequential and {format_time(best['pipelined_ms'])} "
        "pipelined."
    )
    return ReportSection(name, title, text, [figure])


def find_speed_up(row: Mapping[str, Any]) -> float:
    """The speed-up of a pipelined batch: the quotient of the two times that stand beside it."""
    speed_up: float = row["sequential_ms"] / row["pipelined_ms"]
    return speed_up


def _make_heat_map(
    title: str,
    sizes: Sequence[int],
    jobs: Sequence[int],
    values: Mapping[tuple[int, int], float],
) -> HeatMap:
    return HeatMap(
        [format_count(size) for size in sizes],
        [f"{count} jobs" if count == jobs[0] else str(count) for count in jobs],
        [[values.get((size, count)) for count in jobs] for size in sizes],
        title,
    )


def show_pipeline(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    timelines = given.rows("timelines")
    if not timelines:
        return ReportSection(name, title, "", missing="The file has no timelines.")
    ends = {each["mode"]: max(span["end_us"] for span in each["spans"]) for each in timelines}
    first = timelines[0]
    text = (
        f"The same batch of {first['jobs']} jobs with {format_count(first['elements'])} elements "
        "each, as the profiler recorded it on the device's queues and the host's threads. "
        "Sequential above, pipelined below, on one time scale: "
        f"{format_time(ends['sequential'] / 1e3)} and {format_time(ends['pipelined'] / 1e3)}. "
        "fill: the host copies arrays to memory that the device reads. copy in, copy out: the "
        "device copies. compute: the kernel. drain: the host copies results. In a pipelined batch "
        "the stages of different jobs run at the same time."
    )
    tracks = {span["track"] for each in timelines for span in each["spans"]}
    if len([track for track in tracks if not track.startswith("host ")]) == 1:
        text += (
            " All of them used one queue of the device, where copies and kernels take turns, so "
            "only the host's copies overlap them."
        )
    return ReportSection(name, title, text, timelines=timelines)


# --- streams and stages ---


def show_streams(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    streams, copies = given.rows("streams"), given.rows("copies")
    both = copies[0]["elements_per_second"]
    shares = [row["additions_per_second"] / both for row in streams]
    groups = [
        BarGroup(
            describe_stream(row),
            [ChartBar("additions", row["additions_per_second"], 1)],
            f"{round_digits(share)} of the limit",
        )
        for row, share in zip(streams, shares, strict=True)
    ]
    elements = given.result.tables["elements"]
    table = ValueTable(
        ["streamed", "time", "additions", "limit", "of the limit"],
        [
            [
                describe_stream(row),
                format_time(row["milliseconds"]),
                format_rate(row["additions_per_second"]),
                format_rate(both),
                round_digits(share),
            ]
            for row, share in zip(streams, shares, strict=True)
        ]
        + [
            [f"copies, {row['direction']}", "", format_rate(row["elements_per_second"]), "", ""]
            for row in copies
        ],
    )
    figure = Figure(
        "stream-rates",
        f"{format_count(elements)} additions, streamed",
        "Additions per second, from plain NumPy arrays into your array (out=) or into new arrays; "
        "mapped and imported arrays are memory that the device accesses itself. The limit is the "
        "rate of the same copies in both directions at once, without a kernel: "
        f"{format_bandwidth(copies[0]['bytes_in_per_second'])} in and "
        f"{format_bandwidth(copies[0]['bytes_out_per_second'])} out.",
        partial(draw_bars, groups, format_rate, limit=("limit of the copies", both)),
        table,
    )
    best = max(streams, key=lambda row: row["additions_per_second"])
    text = (
        f"Streamed additions {describe_stream(best)} reach "
        f"{format_rate(best['additions_per_second'])}, "
        f"{round_digits(best['additions_per_second'] / both)} of the limit, {format_rate(both)}."
    )
    return ReportSection(name, title, text, [figure])


def describe_stream(row: Mapping[str, Any]) -> str:
    """Where streamed additions read and write, in words."""
    arrays: str = row["arrays"]
    return STREAMED.get(arrays, arrays)


def show_stages(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    shown = [rows[0], rows[len(rows) // 2], rows[-1]] if len(rows) > 3 else rows
    stacks = []
    for row in shown:
        size = format_count(row["elements"])
        for label, stages in (
            ("one-shot", row["one_shot_stages_ms"]),
            ("host-visible", row["host_visible"]["stages_ms"]),
            ("device-local", row["device_local"]["stages_ms"]),
        ):
            stacks.append((f"{size} elements, {label}", stages))
    figure = make_stack_figure(
        "call-stages",
        "Stages of a call",
        "Shares of the stages. A one-shot call spends its time on setup and pipelines, which a "
        "persistent call does not repeat. compute: from the submission until the device has "
        "finished, its own copies included. Several threads copy large arrays at once and in "
        "pieces. Their times are added, so a total can be more than the time of a call.",
        stacks,
    )
    return ReportSection(name, title, "", [figure])


# --- buckets ---


def show_buckets(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    programs = {
        "no caches": ("no_caches_ms", 0),
        "one pipeline": ("pipelines_ms", 1),
        "buckets": ("buckets_ms", 2),
        "kernel alone": ("kernel_ms", 3),
    }
    groups = [
        BarGroup(
            row["name"],
            [ChartBar(label, row[key], style) for label, (key, style) in programs.items()],
            f"{format_ratio(row['pipelines_ms'] / row['buckets_ms'])} over one pipeline",
        )
        for row in rows
    ]
    table = ValueTable(
        ["tasks", *programs, "gain", "within rounds"],
        [
            [
                row["name"],
                *(format_time(row[key]) for key, _ in programs.values()),
                format_ratio(row["pipelines_ms"] / row["buckets_ms"]),
                format_range(row["over_pipelines"]["low"], row["over_pipelines"]["high"]),
            ]
            for row in rows
        ],
    )
    figure = Figure(
        "bucket-batches",
        "Batches of uint32 additions on WebGPU",
        "no caches: everything is created for every task. one pipeline: one pipeline and one "
        "submission, buffers created for every task. buckets: buffers and bind groups are reused "
        "by size. kernel alone: the dispatches on existing buffers. gain: the time of one pipeline "
        "over that of buckets; within rounds: the quartiles of the gain in each round. "
        f"{OWN_SCALES}",
        partial(draw_bars, groups, format_time, own_scales=True),
        table,
        [LegendEntry(label, style, bar=True) for label, (_, style) in programs.items()],
    )
    gains = [row["pipelines_ms"] / row["buckets_ms"] for row in rows]
    adapter = (given.result.device or {}).get("name", "the adapter")
    text = (
        f"Reusing buffers by size class is {format_ratio(min(gains))} to "
        f"{format_ratio(max(gains))} as fast as one pipeline with new buffers, on {adapter}."
    )
    return ReportSection(name, title, text, [figure])


# --- the executor ---


def show_executor(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    (row,) = given.rows("calls")
    calls = {
        "backend.run": row["direct_us"] / 1e3,
        "executor.run": row["run_us"] / 1e3,
        "executor.submit and result": row["submit_us"] / 1e3,
    }
    groups = [BarGroup(label, [ChartBar(label, value, 1)]) for label, value in calls.items()]
    figure = Figure(
        "executor-calls",
        "A call of 64 elements",
        "GpuExecutor adds futures, retries and several devices to the backend that it runs.",
        partial(draw_bars, groups, format_time),
        ValueTable(
            ["what", "measured"],
            [
                *([label, format_time(value)] for label, value in calls.items()),
                ["many jobs, backend.run_batch", format_time(row["batch_ms"])],
                ["many jobs, executor.map", format_time(row["map_ms"])],
                ["jobs of one thread", format_rate(row["one_thread"])],
                ["jobs of 8 threads", format_rate(row["threads"])],
            ],
        ),
    )
    ratio = row["threads"] / row["one_thread"]
    text = (
        f"Eight threads that wait for each job together reach {format_ratio(ratio)} the rate of "
        f"one, {format_rate(row['threads'])} and {format_rate(row['one_thread'])}"
    )
    text += ", because calls that wait together are coalesced." if ratio > 1 else "."
    return ReportSection(name, title, text, [figure])
