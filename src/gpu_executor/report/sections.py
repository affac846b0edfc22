"""The sections of a report, one for each question that the benchmarks answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    Dash,
    DataPoint,
    HeatMap,
    draw_bars,
    draw_heat_maps,
    draw_lines,
    draw_stacks,
)
from gpu_executor.report.contents import (
    Figure,
    HeadFigure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import (
    format_bandwidth,
    format_count,
    format_power,
    format_rate,
    format_ratio,
    format_time,
    round_digits,
)

PRODUCTS_PER_ADDITION = 10
"""Products and squares of coordinates in a mixed addition."""
ROOFLINES = {"bls12_381_fr": "BLS12-381 Fr (255 bits)", "bls12_381_fq": "BLS12-381 Fq (381 bits)"}
SOURCE = "Rust original (Intel i7-9750H, Windows)"
TIME = ChartAxis("", format_time)


def list_sections(run: BenchmarkRun) -> list[ReportSection]:
    """All sections; those without measurements say why."""
    return [
        _describe(run, "persistent", "calls", "One-shot and persistent calls", _show_calls),
        _describe(run, "batch", "batches", "Batches", _show_batches),
        _describe(run, "batch", "pipeline", "The pipeline itself", _show_pipeline),
        _describe(run, "stream", "streams", "Streams against the bus", _show_streams),
        _describe(run, "persistent", "stages", "Where a call spends its time", _show_stages),
        _describe(run, "buckets", "buckets", "Size buckets on WebGPU", _show_buckets),
        _describe(run, "fields", "fields", "Fields and the roofline", _show_fields),
        _describe(run, "ntt", "transforms", "Number-theoretic transforms", _show_transforms),
        _describe(run, "msm", "msm", "Multi-scalar multiplication", _show_msms),
        _describe(run, "kzg", "kzg", "KZG beside ckzg", _show_kzg),
        _describe(run, "executor", "executor", "GpuExecutor", _show_executor),
    ]


def _describe(run: BenchmarkRun, benchmark: str, name: str, title: str, show: Any) -> ReportSection:
    result = run.benchmarks.get(benchmark)
    if result is None:
        missing = f"The file has no results of `bench {benchmark}`."
        return ReportSection(name, title, "", missing=missing)
    if result.state != "measured":
        state = "was skipped" if result.state == "skipped" else result.state
        reason = f"`bench {benchmark}` {state}: {result.reason}"
        return ReportSection(name, title, "", missing=reason)
    section: ReportSection = show(name, title, Measurements.of(result), run)
    return section


def _find(run: BenchmarkRun, benchmark: str) -> Measurements | None:
    result = run.benchmarks.get(benchmark)
    return Measurements.of(result) if result is not None and result.state == "measured" else None


def _make_line_figure(
    name: str,
    title: str,
    caption: str,
    lines: Sequence[ChartLine],
    x_axis: ChartAxis,
    y_axis: ChartAxis,
    *,
    half: bool = False,
) -> Figure:
    """A figure of lines. Its table has a row for each value of x and a column for each line."""
    values = sorted({point.x for line in lines if line.markers for point in line.points})
    shown = [line for line in lines if line.markers]
    by_line = [{point.x: point for point in line.points} for line in shown]
    rows = [
        [
            x_axis.format(x),
            *(_write_point(points.get(x), y_axis) for points in by_line),
        ]
        for x in values
    ]
    legend = [LegendEntry.of(line) for line in lines]
    table = ValueTable([x_axis.label, *(line.name for line in shown)], rows)

    def draw(width: int, label: str) -> str:
        return draw_lines(lines, x_axis, y_axis, width, label)

    return Figure(name, title, caption, draw, table, legend, half)


def _write_point(point: DataPoint | None, axis: ChartAxis) -> str:
    if point is None:
        return ""
    if point.low is None or point.high is None:
        return axis.format(point.y)
    return f"{axis.format(point.y)} ({axis.format(point.low)} to {axis.format(point.high)})"


# --- calls ---


def _show_calls(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
    times = _make_line_figure(
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
    return _make_line_figure(
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


def _show_batches(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
        "the kernel of another pays. The planner chooses the mode by itself. The Rust original "
        "ran on another machine.",
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


def _show_pipeline(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
    if first["elements"] and len({span["track"] for span in first["spans"]}) <= 2:
        text += (
            " This device has a single queue, so its copies and kernels take turns, and only the "
            "host's copies overlap them."
        )
    return ReportSection(name, title, text, timelines=timelines)


# --- streams and stages ---


def _show_streams(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
    (elements,) = (row for row in [given.result.tables["elements"]])
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
        partial(_draw_bars, groups, axis, limit=("limit of the copies", both)),
        table,
    )
    best = max(streams, key=lambda row: row["of_limit"])
    text = f"{best['arrays'].capitalize()} arrays reach {best['of_limit']:.2f} of the limit."
    return ReportSection(name, title, text, [figure])


def _draw_bars(
    groups: Sequence[BarGroup],
    axis: ChartAxis,
    width: int,
    label: str,
    limit: tuple[str, float] | None = None,
) -> str:
    return draw_bars(groups, axis, width, label, limit)


def _show_stages(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
    figure = _make_stack_figure(
        "call-stages",
        "Stages of a call",
        "Shares of the stages. A one-shot call spends its time on setup and pipelines, which a "
        "persistent call does not repeat. compute: from the submission until the device has "
        "finished, its own copies included.",
        stacks,
    )
    return ReportSection(name, title, "", [figure])


def _make_stack_figure(
    name: str, title: str, caption: str, stacks: Sequence[tuple[str, Mapping[str, float]]]
) -> Figure:
    """Stacked bars of stages in milliseconds; a row for each name."""
    stages = list(dict.fromkeys(stage for _, parts in stacks for stage in parts))
    styles = {stage: index % 7 for index, stage in enumerate(stages)}
    rows = [
        (label, dict(parts), f"total {format_time(sum(parts.values()))}") for label, parts in stacks
    ]
    table = ValueTable(
        ["call", *stages],
        [
            [label, *(format_time(parts[stage]) if parts.get(stage) else "" for stage in stages)]
            for label, parts in stacks
        ],
    )

    def draw(width: int, label: str) -> str:
        return draw_stacks(rows, styles, width, label, format_time)

    legend = [LegendEntry(stage, styles[stage], bar=True) for stage in stages]
    return Figure(name, title, caption, draw, table, legend)


# --- buckets ---


def _show_buckets(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
        partial(_draw_bars, groups, ChartAxis("time", format_time)),
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


# --- fields, transforms, points ---


def _show_fields(name: str, title: str, given: Measurements, run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    operations = {"additions": 0, "squares": 1, "products": 2}
    groups = [
        BarGroup(
            f"{row['field']} ({row['bits']} bits)",
            [
                ChartBar(operation, row[operation]["bytes_per_second"], style)
                for operation, style in operations.items()
            ]
            + [ChartBar("copy", row["copy_bytes_per_second"], 6)],
        )
        for row in rows
    ]
    table = ValueTable(
        ["field", "bits", *operations, "products in chains", "squares in chains", "copy"],
        [
            [
                row["field"],
                str(row["bits"]),
                *(
                    f"{format_rate(row[each]['per_second'])} ({row[each]['of_copy']:.2f} of copy)"
                    for each in operations
                ),
                format_rate(row["products_in_chains"]) if row["products_in_chains"] else "",
                format_rate(row["squares_in_chains"]),
                format_bandwidth(row["copy_bytes_per_second"]),
            ]
            for row in rows
        ],
    )
    bandwidth = Figure(
        "field-bandwidth",
        "Memory bandwidth of field operations",
        "Bytes read and written in device memory. An operation that reaches the copy's rate is "
        "limited by memory; a slower one is limited by arithmetic.",
        partial(_draw_bars, groups, ChartAxis("bandwidth", format_bandwidth, log=False)),
        table,
        [
            *(LegendEntry(operation, style, bar=True) for operation, style in operations.items()),
            LegendEntry("copy by a kernel", 6, bar=True),
        ],
    )
    roofs = [
        _draw_roofline(row, ROOFLINES[row["field"]], run)
        for row in rows
        if row["field"] in ROOFLINES
    ]
    text = (
        "The roofline is the most that the device allows: the products per second that chains of "
        "products reach in registers, or the bandwidth of a copy times the products per byte, "
        "whichever is less. Both were measured in the same run."
    )
    return ReportSection(name, title, text, [bandwidth, *roofs])


def _draw_roofline(row: Mapping[str, Any], title: str, run: BenchmarkRun) -> Figure:
    """Work of one field below its roof: streamed operations, transforms, sums of points."""
    bandwidth = row["copy_bytes_per_second"]
    peak = row["products_in_chains"] or row["squares_in_chains"]
    element = row["products"]["bytes_per_second"] / row["products"]["per_second"] / 3
    work = [
        ("products", 1 / (3 * element), row["products"]["per_second"], 2),
        ("squares", 1 / (2 * element), row["squares"]["per_second"], 1),
        *_list_transforms(run, row["field"], element),
        *_list_accumulations(run, row["field"], element),
    ]
    low, high = min(each[1] for each in work) / 2, max(each[1] for each in work) * 2
    ridge = peak / bandwidth
    low, high = min(low, ridge / 2), max(high, ridge * 2)
    roof = [DataPoint(x, min(x * bandwidth, peak)) for x in (low, ridge, high)]
    lines = [ChartLine("roof", roof, 6, markers=False)]
    for style, group in ((2, "products"), (1, "squares"), (3, "transforms"), (4, "MSM")):
        points = [DataPoint(x, y) for _, x, y, own in work if own == style]
        if points:
            lines.append(ChartLine(group, points, style, joined=False))
    rows = [
        [
            label,
            f"{round_digits(x)} per byte",
            format_rate(y),
            format_rate(min(x * bandwidth, peak)),
            f"{y / min(x * bandwidth, peak):.2f}",
            "memory" if x < ridge else "arithmetic",
        ]
        for label, x, y, _ in work
    ]

    def draw(width: int, label: str) -> str:
        x_axis = ChartAxis("products per byte of device memory", round_digits)
        return draw_lines(lines, x_axis, ChartAxis("products", format_rate), width, label)

    return Figure(
        f"roofline-{row['field']}",
        f"Roofline of {title}",
        "Products per second against products per byte that must be read or written at least. "
        "Transforms: n/2 log2 n products for 2n elements of traffic. MSM: 10 products and squares "
        "for each point that is added to a bucket.",
        draw,
        ValueTable(["work", "intensity", "measured", "roof", "share", "limit"], rows),
        [LegendEntry.of(line) for line in lines],
        half=True,
    )


def _list_transforms(
    run: BenchmarkRun, field: str, element: float
) -> Iterator[tuple[str, float, float, int]]:
    given = _find(run, "ntt")
    for row in given.rows("rows") if given else ():
        if row["field"] == field and row["rows"] == 1:
            count, log_n = 1 << row["log_n"], row["log_n"]
            products = count / 2 * log_n
            rate = products / row["to_natural_ms"] * 1e3
            yield f"transform of 2^{log_n}", products / (2 * count * element), rate, 3


def _list_accumulations(
    run: BenchmarkRun, field: str, element: float
) -> Iterator[tuple[str, float, float, int]]:
    given = _find(run, "msm")
    for times in given.rows("curves") if given else ():
        if (field, times["curve"]) != ("bls12_381_fq", "BLS12_381_G1"):
            continue
        row = max(times["rows"], key=lambda each: each["log_points"])
        rate = row["additions_per_second"] * PRODUCTS_PER_ADDITION
        # An addition reads the two coordinates of a point and its index.
        intensity = PRODUCTS_PER_ADDITION / (2 * element + 4)
        yield f"MSM of 2^{row['log_points']}, {times['curve']}", intensity, rate, 4


def _show_transforms(
    name: str, title: str, given: Measurements, run: BenchmarkRun
) -> ReportSection:
    rows = [row for row in given.rows("rows") if row["rows"] == 1]
    names = list(dict.fromkeys(row["field"] for row in rows))
    kinds: tuple[tuple[str, str, Dash], ...] = (
        ("on the device", "to_natural_ms", "solid"),
        ("NumPy to NumPy", "numpy_ms", "dashed"),
    )
    lines = []
    for style, field in enumerate(names):
        own = [row for row in rows if row["field"] == field]
        for label, column, dash in kinds:
            points = [
                given.point(
                    1 << row["log_n"],
                    row[column],
                    "rows",
                    column,
                    field=field,
                    log_n=row["log_n"],
                    rows=1,
                )
                for row in own
            ]
            lines.append(ChartLine(f"{field}, {label}", points, style, dash))
    lines += _list_floors(run, names, rows)
    sizes = sorted({1 << row["log_n"] for row in rows})
    figure = _make_line_figure(
        "transforms-by-size",
        "Time of a transform by size",
        "From natural to natural order. On the device: arrays stay in device memory. Dotted "
        "lines without markers: the roofline's least time, where the products of the field were "
        "measured.",
        lines,
        ChartAxis("elements", format_power, ticks=sizes),
        ChartAxis("time", format_time),
    )
    figures = [figure]
    duels = given.rows("duels")
    if duels:
        groups = [
            BarGroup(
                f"{each['what']}, beside {each['package']}",
                [
                    ChartBar("this package", each["ours_ms"], 1),
                    ChartBar(each["package"], each["theirs_ms"], 0),
                ],
                f"{format_ratio(each['faster'])} as fast",
            )
            for each in duels
        ]
        figures.append(
            Figure(
                "transforms-beside-others",
                "The same transforms by packages on the CPU",
                "From array to array, with equal results. The lengths are logarithmic.",
                partial(_draw_bars, groups, ChartAxis("time", format_time)),
                ValueTable(
                    ["package", "work", "its time", "our time", "speed-up"],
                    [
                        [
                            each["package"],
                            each["what"],
                            format_time(each["theirs_ms"]),
                            format_time(each["ours_ms"]),
                            format_ratio(each["faster"]),
                        ]
                        for each in duels
                    ],
                ),
                [
                    LegendEntry("this package", 1, bar=True),
                    LegendEntry("the other package", 0, bar=True),
                ],
            )
        )
    largest = max(rows, key=lambda row: (row["field"] == names[0], row["log_n"]))
    text = (
        f"A transform of 2^{largest['log_n']} elements of {largest['field']} takes "
        f"{format_time(largest['to_natural_ms'])} on the device."
    )
    absent = given.result.tables.get("absent") or []
    if absent:
        text += f" Not installed, so not compared: {', '.join(absent)}."
    return ReportSection(name, title, text, figures)


def _list_floors(
    run: BenchmarkRun, names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> Iterator[ChartLine]:
    """The least times of transforms that the roofline allows."""
    fields = _find(run, "fields")
    by_name = {row["field"]: row for row in fields.rows("rows")} if fields else {}
    for style, field in enumerate(names):
        found = by_name.get(field)
        if found is None:
            continue
        peak = found["products_in_chains"] or found["squares_in_chains"]
        element = found["products"]["bytes_per_second"] / found["products"]["per_second"] / 3
        points = []
        for row in rows:
            if row["field"] == field:
                count = 1 << row["log_n"]
                arithmetic = count / 2 * row["log_n"] / peak
                memory = 2 * count * element / found["copy_bytes_per_second"]
                points.append(DataPoint(count, max(arithmetic, memory) * 1e3))
        yield ChartLine(f"{field}, roofline", points, style, "dotted", markers=False)


def _show_msms(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    curves = given.rows("curves")
    lines = []
    for style, times in enumerate(curves):
        points = [
            given.point(
                1 << row["log_points"],
                row["ms"],
                "curves.rows",
                "ms",
                curve=times["curve"],
                log_points=row["log_points"],
            )
            for row in times["rows"]
        ]
        lines.append(ChartLine(times["curve"], points, style))
        tables = [
            DataPoint(1 << row["log_points"], row["ms"])
            for row in times["tables"]
            if row["batch"] == 1
        ]
        if tables:
            lines.append(ChartLine(f"{times['curve']}, with tables", tables, style, "dashed"))
    sizes = sorted({1 << row["log_points"] for times in curves for row in times["rows"]})
    by_size = _make_line_figure(
        "msm-by-size",
        "Time of a sum by number of points",
        "From scalars in NumPy memory to an affine point on the host; the points are on the "
        "device. Dashed: with precomputed tables of multiples.",
        lines,
        ChartAxis("points", format_power, ticks=sizes),
        ChartAxis("time", format_time),
    )
    bounds = _compare_bounds(curves)
    stages = _make_stack_figure(
        "msm-stages",
        "Stages of the largest sum",
        "The stages are waited for one by one, so their sum is more than a call.",
        [
            (f"{times['curve']}, 2^{row['log_points']} points", row["stages_ms"])
            for times in curves
            for row in (max(times["rows"], key=lambda each: each["log_points"]),)
        ],
    )
    text = "Every sum was checked by the known discrete logarithms of its points."
    return ReportSection(name, title, text, [by_size, *bounds, stages])


def _compare_bounds(curves: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Additions per second beside the bound of the arithmetic, by curve."""
    bounded = [
        (times, max(times["rows"], key=lambda row: row["log_points"]))
        for times in curves
        if times["additions_bound"]
    ]
    if not bounded:
        return []
    groups = [
        BarGroup(
            f"{times['curve']}, 2^{row['log_points']} points",
            [
                ChartBar("measured", row["additions_per_second"], 2),
                ChartBar("bound", times["additions_bound"], 6),
            ],
            f"{row['additions_per_second'] / times['additions_bound']:.2f} of the bound",
        )
        for times, row in bounded
    ]
    table = ValueTable(
        ["curve", "points", "additions", "bound", "share"],
        [
            [
                times["curve"],
                f"2^{row['log_points']}",
                format_rate(row["additions_per_second"]),
                format_rate(times["additions_bound"]),
                f"{row['additions_per_second'] / times['additions_bound']:.2f}",
            ]
            for times, row in bounded
        ],
    )
    return [
        Figure(
            "msm-bound",
            "Additions of points against the roofline",
            "Mixed additions per second while points are added to buckets. The bound is the rate "
            "of products in registers, divided by the 10 products and squares of an addition (30 "
            "over an extension of degree 2).",
            partial(_draw_bars, groups, ChartAxis("additions per second", format_rate, log=False)),
            table,
            [LegendEntry("measured", 2, bar=True), LegendEntry("bound", 6, bar=True)],
        )
    ]


# --- KZG and the executor ---


def _show_kzg(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    rows = given.rows("rows")
    batches = sorted({row["blobs"] for row in rows})
    functions = list(dict.fromkeys(row["function"] for row in rows))
    text = "From bytes to bytes."
    if not any(row["ckzg_ms"] for row in rows):
        text += " ckzg was not measured beside it."
    if len(batches) == 1:
        return ReportSection(name, title, text, [_compare_functions(rows, batches[0])])
    figures = [_compare_batches(given, function, rows, batches) for function in functions]
    figures += [_show_kzg_stages(given)] if given.rows("stages") else []
    return ReportSection(name, title, text, figures)


KZG_COLUMNS = {
    "this package": ("ms", 1),
    "ckzg, one thread": ("ckzg_ms", 0),
    "ckzg, all cores": ("ckzg_all_cores_ms", 2),
}


def _compare_functions(rows: Sequence[Mapping[str, Any]], blobs: int) -> Figure:
    groups = [
        BarGroup(
            row["function"],
            [
                ChartBar(label, row[key], style)
                for label, (key, style) in KZG_COLUMNS.items()
                if row[key] is not None
            ],
        )
        for row in rows
    ]
    return Figure(
        "kzg-functions",
        f"KZG functions for {blobs} blob{'s' if blobs > 1 else ''}",
        "ckzg: one blob on one thread, and the batch with a process for each core. The lengths "
        "are logarithmic.",
        partial(_draw_bars, groups, ChartAxis("time", format_time)),
        _make_kzg_table(rows),
        [LegendEntry(label, style, bar=True) for label, (_, style) in KZG_COLUMNS.items()],
    )


def _make_kzg_table(rows: Sequence[Mapping[str, Any]]) -> ValueTable:
    return ValueTable(
        ["function", "blobs", *KZG_COLUMNS, "first call"],
        [
            [
                row["function"],
                str(row["blobs"]),
                *(
                    "" if row[key] is None else format_time(row[key])
                    for key, _ in KZG_COLUMNS.values()
                ),
                format_time(row["first_ms"]),
            ]
            for row in rows
        ],
    )


def _compare_batches(
    given: Measurements,
    function: str,
    rows: Sequence[Mapping[str, Any]],
    batches: Sequence[int],
) -> Figure:
    """Milliseconds per blob by batch size, beside ckzg."""
    own = [row for row in rows if row["function"] == function]
    lines = []
    for label, (key, style) in KZG_COLUMNS.items():
        points = []
        for row in own:
            if row[key] is None:
                continue
            blobs = row["blobs"]
            of_blobs = 1 if key == "ckzg_ms" else blobs
            point = given.point(
                blobs, row[key] / of_blobs, "rows", key, function=function, blobs=blobs
            )
            if point.low is not None and point.high is not None:
                point = DataPoint(blobs, point.y, point.low / of_blobs, point.high / of_blobs)
            points.append(point)
        if points:
            lines.append(ChartLine(label, points, style))
    return _make_line_figure(
        "kzg-" + function.replace(" ", "-"),
        f"{function.capitalize()}, time per blob",
        "By the number of blobs in a batch.",
        lines,
        ChartAxis("blobs", lambda value: f"{value:g}", ticks=batches),
        ChartAxis("time per blob", format_time),
        half=True,
    )


def _show_kzg_stages(given: Measurements) -> Figure:
    return _make_stack_figure(
        "kzg-stages",
        "Stages of cells and proofs",
        "The stages are waited for one by one, so their sum is more than a call.",
        [(f"{row['blobs']} blobs", row["stages_ms"]) for row in given.rows("stages")],
    )


def _show_executor(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
        partial(_draw_bars, groups, ChartAxis("time", format_time, log=False)),
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
    text = (
        f"Eight threads together reach {format_ratio(row['threads'] / row['one_thread'])} the rate "
        "of one, because calls that wait together are coalesced."
    )
    return ReportSection(name, title, text, [figure])


# --- head figures ---


def list_head_figures(run: BenchmarkRun) -> Iterator[HeadFigure]:
    """The numbers at the head of the page, of the benchmarks that were measured."""
    if (given := _find(run, "persistent")) is not None:
        row = given.rows("rows")[0]
        best = min(row["host_visible"]["average_ms"], row["device_local"]["average_ms"])
        yield HeadFigure(
            format_time(best),
            f"a call of {format_count(row['elements'])} elements",
            f"one-shot {format_time(row['one_shot_ms'])}",
        )
    if (given := _find(run, "batch")) is not None:
        row = max(given.rows("rows"), key=lambda each: each["speed_up"])
        yield HeadFigure(
            format_ratio(row["speed_up"]),
            "pipelined over sequential batch",
            f"{row['jobs']} jobs of {format_count(row['elements'])}",
        )
    if (given := _find(run, "stream")) is not None:
        row = max(given.rows("streams"), key=lambda each: each["additions_per_second"])
        yield HeadFigure(
            format_rate(row["additions_per_second"]),
            f"streamed additions, {row['arrays']} arrays",
            f"{row['of_limit']:.2f} of what the copies allow",
        )
    if (given := _find(run, "fields")) is not None:
        row = max(given.rows("rows"), key=lambda each: each["products_in_chains"] or 0)
        if row["products_in_chains"]:
            yield HeadFigure(
                format_rate(row["products_in_chains"]),
                f"products in {row['field']}, in registers",
                f"{row['bits']} bits",
            )
    if (given := _find(run, "ntt")) is not None:
        rows = [row for row in given.rows("rows") if row["rows"] == 1]
        row = max(rows, key=lambda each: (each["field"] == rows[0]["field"], each["log_n"]))
        yield HeadFigure(
            format_time(row["to_natural_ms"]),
            f"transform of 2^{row['log_n']} in {row['field']}",
            "device-resident",
        )
    if (given := _find(run, "msm")) is not None:
        times = given.rows("curves")[0]
        row = max(times["rows"], key=lambda each: each["log_points"])
        yield HeadFigure(
            format_time(row["ms"]),
            f"sum of 2^{row['log_points']} multiples on {times['curve']}",
            "scalars from NumPy",
        )
    if (given := _find(run, "kzg")) is not None:
        row = max(
            given.rows("rows"),
            key=lambda each: (each["function"] == "cells and proofs", each["blobs"]),
        )
        peer = "" if row["ckzg_ms"] is None else f"ckzg {format_time(row['ckzg_ms'])} on one thread"
        yield HeadFigure(
            format_time(row["ms"] / row["blobs"]), f"{row['function']}, per blob", peer
        )
