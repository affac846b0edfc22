"""Sections on fields, transforms and sums of points, beside the bounds of the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import (
    BarGroup,
    ChartAxis,
    ChartBar,
    ChartLine,
    Dash,
    DataPoint,
    draw_bars,
    draw_lines,
)
from gpu_executor.report.contents import (
    OWN_SCALES,
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
    find_benchmark,
)
from gpu_executor.report.format import (
    format_bandwidth,
    format_power,
    format_rate,
    format_ratio,
    format_time,
    round_digits,
)
from gpu_executor.report.shared_figures import (
    make_line_figure,
    make_stack_figure,
)

PRODUCTS_PER_ADDITION = 10
"""Products and squares of coordinates in a mixed addition."""
ROOFLINES = {"bls12_381_fr": "BLS12-381 Fr (255 bits)", "bls12_381_fq": "BLS12-381 Fq (381 bits)"}


# --- fields, transforms, points ---


def show_fields(name: str, title: str, given: Measurements, run: BenchmarkRun) -> ReportSection:
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
                    f"{format_rate(row[each]['per_second'])}: "
                    f"{format_bandwidth(row[each]['bytes_per_second'])}, "
                    f"{round_digits(row[each]['bytes_per_second'] / row['copy_bytes_per_second'])} "
                    "of copy"
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
        partial(draw_bars, groups, format_bandwidth),
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
        "The roofline is what the device reached alone: the products per second that chains of "
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
            round_digits(y / min(x * bandwidth, peak)),
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
    given = find_benchmark(run, "ntt")
    for row in given.rows("rows") if given else ():
        if row["field"] == field and row["rows"] == 1:
            count, log_n = 1 << row["log_n"], row["log_n"]
            products = count / 2 * log_n
            rate = products / row["to_natural_ms"] * 1e3
            yield f"transform of 2^{log_n}", products / (2 * count * element), rate, 3


def _list_accumulations(
    run: BenchmarkRun, field: str, element: float
) -> Iterator[tuple[str, float, float, int]]:
    given = find_benchmark(run, "msm")
    for times in given.rows("curves") if given else ():
        if (field, times["curve"]) != ("bls12_381_fq", "BLS12_381_G1"):
            continue
        row = max(times["rows"], key=lambda each: each["log_points"])
        rate = row["additions_per_second"] * PRODUCTS_PER_ADDITION
        # An addition reads the two coordinates of a point and its index.
        intensity = PRODUCTS_PER_ADDITION / (2 * element + 4)
        yield f"MSM of 2^{row['log_points']}, {times['curve']}", intensity, rate, 4


def show_transforms(name: str, title: str, given: Measurements, run: BenchmarkRun) -> ReportSection:
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
    lines += _list_rooflines(run, names, rows)
    sizes = sorted({1 << row["log_n"] for row in rows})
    figure = make_line_figure(
        "transforms-by-size",
        "Time of a transform by size",
        "From natural to natural order. On the device: arrays stay in device memory. Dotted "
        "lines without markers: n/2 log2 n products at the rate of chains, or a copy of the "
        "elements, whichever takes longer, where the products of the field were measured. A "
        "transform that stays in caches or saves products can take less.",
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
                f"{format_ratio(each['theirs_ms'] / each['ours_ms'])} as fast",
            )
            for each in duels
        ]
        figures.append(
            Figure(
                "transforms-beside-others",
                "The same transforms by packages on the CPU",
                f"From array to array, with equal results. {OWN_SCALES}",
                partial(draw_bars, groups, format_time, own_scales=True),
                ValueTable(
                    ["package", "work", "its time", "our time", "speed-up"],
                    [
                        [
                            each["package"],
                            each["what"],
                            format_time(each["theirs_ms"]),
                            format_time(each["ours_ms"]),
                            format_ratio(each["theirs_ms"] / each["ours_ms"]),
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


def _list_rooflines(
    run: BenchmarkRun, names: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> Iterator[ChartLine]:
    """The times of transforms at the rates of the roofline."""
    fields = find_benchmark(run, "fields")
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


def show_msms(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
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
    by_size = make_line_figure(
        "msm-by-size",
        "Time of a sum by number of points",
        "From scalars in NumPy memory to an affine point on the host; the points are on the "
        "device. Dashed: with precomputed tables of multiples.",
        lines,
        ChartAxis("points", format_power, ticks=sizes),
        ChartAxis("time", format_time),
    )
    bounds = _compare_bounds(curves)
    stages = make_stack_figure(
        "msm-stages",
        "Stages of the largest sum",
        "The stages on the device, waited for one by one. The copy of the scalars to the device is "
        "not among them.",
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
    largest = [(each, max(each["rows"], key=lambda row: row["log_points"])) for each in curves]
    bounded = [(times, row) for times, row in largest if row.get("additions_bound")]
    if not bounded:
        return []
    groups = [
        BarGroup(
            f"{times['curve']}, 2^{row['log_points']} points",
            [
                ChartBar("measured", row["additions_per_second"], 2),
                ChartBar("bound", row["additions_bound"], 6),
            ],
            f"{round_digits(row['additions_per_second'] / row['additions_bound'])} of the bound",
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
                format_rate(row["additions_bound"]),
                round_digits(row["additions_per_second"] / row["additions_bound"]),
            ]
            for times, row in bounded
        ],
    )
    return [
        Figure(
            "msm-bound",
            "Additions of points against the roofline",
            "Additions per second while points are added to buckets. The bound is the rate of "
            "products in registers, divided by the 10 products and squares of a mixed addition "
            "(30 over an extension of degree 2), or by the 6 of an affine one in a round.",
            partial(draw_bars, groups, format_rate),
            table,
            [LegendEntry("measured", 2, bar=True), LegendEntry("bound", 6, bar=True)],
        )
    ]
