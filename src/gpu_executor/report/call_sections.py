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
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import (
    format_bandwidth,
    format_count,
    format_rate,
    format_ratio,
    format_time,
)
from gpu_executor.report.shared_figures import (
    make_line_figure,
    make_stack_figure,
)

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
        f"{format_time(best)}, {format_ratio(row['one_shot_ms'] / best)} as fast as a one-shot call"
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
            (row["elements"], row["jobs"]): row["speed_up"]
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
    best = max(rows, key=lambda row: row["speed_up"])
    table = ValueTable(
        ["elements", "jobs", "arrays", "sequential", "pipelined", "speed-up", "as planned"],
        [
            [
                format_count(row["elements"]),
                str(row["jobs"]),
                row["arrays"],
                format_time(row["sequential_ms"]),
                format_time(row["pipelined_ms"]),
                format_ratio(row["speed_up"]),
                format_time(row["plan_ms"]),
            ]
            for row in rows
        ],
    )
    figure = Figure(
        "batch-speed-up",
        "Speed-up of pipelined over sequential batches",
        "Rows: elements of a job. Columns: jobs. Above 1, overlapping the copies of one job with "
        "the kernel of another pays. A speed-up is the median of the ratios of neighbouring runs, "
        "which is not the ratio of the median times. The planner chooses the mode by itself. The "
        "Rust original, from which this project started, ran on another machine.",
        partial(draw_heat_maps, maps),
        table,
    )
    text = (
        f"The largest speed-up is {format_ratio(best['speed_up'])}: {best['jobs']} jobs of "
        f"{format_count(best['elements'])} elements, {best['arrays']} arrays."
    )
    return ReportSection(name, title, text, [figure])


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
    groups = [
        BarGroup(
            row["arrays"],
            [ChartBar("additions", row["additions_per_second"], 1)],
            f"{row['of_limit']:.2f} of the limit",
        )
        for row in streams
    ]
    elements = given.result.tables["elements"]
    axis = ChartAxis("additions per second", format_rate, log=False)
    table = ValueTable(
        ["arrays", "time", "additions", "of the limit"],
        [
            [
                row["arrays"],
                format_time(row["milliseconds"]),
                format_rate(row["additions_per_second"]),
                f"{row['of_limit']:.2f}",
            ]
            for row in streams
        ]
        + [
            [f"copies, {row['direction']}", "", format_rate(row["elements_per_second"]), ""]
            for row in copies
        ],
    )
    figure = Figure(
        "stream-rates",
        f"{format_count(elements)} additions, streamed",
        "Additions per second by kind of array. The limit is the rate of the same copies in both "
        "directions at once, without a kernel: "
        f"{format_bandwidth(copies[0]['bytes_in_per_second'])} in and "
        f"{format_bandwidth(copies[0]['bytes_out_per_second'])} out.",
        partial(draw_bars, groups, axis, limit=("limit of the copies", both)),
        table,
    )
    best = max(streams, key=lambda row: row["of_limit"])
    text = f"{best['arrays'].capitalize()} arrays reach {best['of_limit']:.2f} of the limit."
    return ReportSection(name, title, text, [figure])


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
        "finished, its own copies included.",
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
            f"{format_ratio(row['over_pipelines']['median'])} over one pipeline",
        )
        for row in rows
    ]
    table = ValueTable(
        ["tasks", *programs, "gain", "quartiles"],
        [
            [
                row["name"],
                *(format_time(row[key]) for key, _ in programs.values()),
                format_ratio(row["over_pipelines"]["median"]),
                f"{row['over_pipelines']['low']:.2f} to {row['over_pipelines']['high']:.2f}",
            ]
            for row in rows
        ],
    )
    figure = Figure(
        "bucket-batches",
        "Batches of uint32 additions on WebGPU",
        "no caches: everything is created for every task. one pipeline: one pipeline and one "
        "submission, buffers created for every task. buckets: buffers and bind groups are reused "
        "by size. kernel alone: the dispatches on existing buffers. The lengths are logarithmic.",
        partial(draw_bars, groups, ChartAxis("time", format_time)),
        table,
        [LegendEntry(label, style, bar=True) for label, (_, style) in programs.items()],
    )
    gains = [row["over_pipelines"]["median"] for row in rows]
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
        partial(draw_bars, groups, ChartAxis("time", format_time, log=False)),
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
        f"Eight threads that wait for each job together reach {format_ratio(ratio)} the rate of one"
    )
    text += ", because calls that wait together are coalesced." if ratio > 1 else "."
    return ReportSection(name, title, text, [figure])
