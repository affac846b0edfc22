"""The section on other packages, and programs of the user, on the same work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_executor.bench.peer_programs import FIRST_WORK
from gpu_executor.bench.peers import OWN
from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import BarGroup, ChartBar, draw_bars
from gpu_executor.report.contents import (
    Figure,
    LegendEntry,
    Measurements,
    ReportSection,
    ValueTable,
)
from gpu_executor.report.format import format_count, format_rate, format_ratio, format_time

OPERATIONS = {
    "sum": ("Sums of 32-bit integers", "element"),
    "batch of sums": ("A batch of sums", "element"),
    "products": ("BabyBear products", "element"),
    "polynomial product": ("Products of polynomials", "coefficient"),
    "commitments": ("KZG commitments", "blob"),
    "point sum": ("Sums of multiples of points", "point"),
}
"""What each operation is, and what its size counts."""
PROGRAM_OPERATIONS = {
    "sum": "sums of 32-bit integers",
    "product": "products",
    "product_chain": "products in registers",
    "square_chain": "squares in registers",
    "inversion": "inversions",
    "transform": "number-theoretic transforms",
    "msm": "multi-scalar multiplications",
}
"""The operations of programs of the user."""
OWN_STYLE, OTHER_STYLES = 1, (0, 2, 3, 4, 5)


def show_peers(name: str, title: str, given: Measurements, _run: BenchmarkRun) -> ReportSection:
    """A figure for each operation, then the first calls; the text names what is missing."""
    rows = [row for row in given.rows("rows") if row["ms"] is not None]
    operations = dict.fromkeys(row["operation"] for row in rows)
    figures = [
        _compare_packages(operation, [row for row in rows if row["operation"] == operation])
        for operation in operations
    ]
    calls = [each for each in given.rows("first_calls") if each["ms"] is not None]
    figures += [
        _show_first_calls(operation, [each for each in calls if each["operation"] == operation])
        for operation in dict.fromkeys(each["operation"] for each in calls)
    ]
    programs = [row for row in given.rows("program_rows") if row["ms"] is not None]
    figures += [
        _compare_programs(operation, [row for row in programs if row["operation"] == operation])
        for operation in dict.fromkeys(row["operation"] for row in programs)
    ]
    text = " ".join([*_introduce(given), *_list_missing(given)])
    return ReportSection(name, title, text, figures)


def _introduce(given: Measurements) -> Iterator[str]:
    if given.rows("packages"):
        yield "Each package does the same work in its usual way, in the same rounds."
    for each in given.rows("programs"):
        if each["state"] == "measured":
            device = "" if each["device"] is None else f" on {each['device']}"
            what = "a program of the user, timed by turns with this package"
            yield f"{each['package']}{device} is {what}."


def _list_missing(given: Measurements) -> Iterator[str]:
    """Sentences on packages and operations that were not measured."""
    packages = given.rows("packages")
    if absent := [each["package"] for each in packages if each["state"] == "absent"]:
        yield f"Not installed, so not compared: {', '.join(absent)}."
    for each in packages:
        if each["state"] != "absent" and each["reason"] is not None:
            yield _end_sentence(f"{each['package']}: {each['reason']}")
    for each in given.rows("rows"):
        if each["reason"] is not None:
            what = f"{each['operation']} of {_count(each['elements'], each['operation'])}"
            yield _end_sentence(f"{each['package']}, {what}: {each['reason']}")
    for each in given.rows("first_calls"):
        if each["reason"] is not None:
            yield _end_sentence(f"{each['package']}, {each['operation']}: {each['reason']}")
    for each in given.rows("programs"):
        if each["reason"] is not None:
            yield _end_sentence(f"{each['package']}: {each['reason']}")
    yield from _list_missing_programs(given.rows("program_rows"))
    for operation, reason in given.result.tables["left_out"].items():
        yield _end_sentence(f"Not measured: {operation}, {reason}")


def _list_missing_programs(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence on all works that a program does not do for the same reason."""
    names = "package", "operation", "what", "state", "reason"
    missing = [row for row in rows if row["reason"] is not None]
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in missing):
        package, operation, what, state, reason = key
        same = [row for row in missing if tuple(row[name] for name in names) == key]
        sizes = ", ".join(dict.fromkeys(format_count(row["elements"]) for row in same))
        of = dict.fromkeys(row["field"] or row["curve"] for row in same)
        listed = ", ".join([what, *(each for each in of if each is not None)])
        work = f"{PROGRAM_OPERATIONS[operation]} of {sizes} ({listed})"
        yield _end_sentence(f"{package}, {work}: {state}, {reason}")


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def _count(size: int, operation: str) -> str:
    """A size with its unit: "1 blob", "4 K elements"."""
    unit = OPERATIONS[operation][1]
    return f"{format_count(size)} {unit}" + ("" if size == 1 else "s")


def _compare_packages(operation: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The times of all packages at the largest size; the table has all sizes."""
    title, unit = OPERATIONS[operation]
    largest = max(row["elements"] for row in rows)
    shown = [row for row in rows if row["elements"] == largest]
    own = {row["elements"]: row["ms"] for row in rows if row["package"] == OWN}
    jobs = "" if shown[0]["jobs"] == 1 else f"{shown[0]['jobs']} jobs of "
    return Figure(
        "peers-" + operation.replace(" ", "-"),
        f"{title}, {jobs}{_count(largest, operation)}",
        "The medians of rounds in which every package had its turn.",
        _draw_packages(shown),
        ValueTable(
            ["package", f"{unit}s", "time", "rate", "over this package's time"],
            [
                [
                    row["package"],
                    format_count(row["elements"]),
                    format_time(row["ms"]),
                    format_rate(row["per_second"]),
                    format_ratio(row["ms"] / own[row["elements"]]),
                ]
                for row in rows
            ],
        ),
        half=True,
    )


def _name(row: Mapping[str, Any]) -> str:
    """The field or curve, and the variant of an operation."""
    return ", ".join(each for each in (row["field"], row["curve"], row["what"]) if each)


def _compare_programs(operation: str, rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The times of this package and of programs, each at its largest size; the table has all sizes,
    and what this package alone did."""
    others = [name for name in dict.fromkeys(row["package"] for row in rows) if name != OWN]
    styles = {OWN: OWN_STYLE}
    styles |= {name: OTHER_STYLES[at % len(OTHER_STYLES)] for at, name in enumerate(others)}
    groups = []
    # A time without another beside it compares nothing, and may be far longer.
    compared = [row for row in rows if row["package"] != OWN] or rows
    for name in dict.fromkeys(map(_name, compared)):
        own = [row for row in rows if _name(row) == name]
        largest = max(row["elements"] for row in compared if _name(row) == name)
        bars = [
            ChartBar(row["package"], row["ms"], styles[row["package"]])
            for row in own
            if row["elements"] == largest
        ]
        groups.append(BarGroup(f"{name}, {format_count(largest)}", bars))
    own_ms = {(_name(row), row["elements"]): row["ms"] for row in rows if row["package"] == OWN}
    title = PROGRAM_OPERATIONS[operation]
    return Figure(
        "programs-" + operation.replace("_", "-"),
        f"Programs of the user: {title}",
        "What a program did, at its largest size; the table has all sizes. A result that is not "
        "checked was not written by the program.",
        partial(draw_bars, groups, format_time),
        ValueTable(
            ["program", "of", "size", "time", "rate", "over this package's time", "result"],
            [
                [
                    row["package"],
                    _name(row),
                    format_count(row["elements"]),
                    format_time(row["ms"]),
                    format_rate(row["per_second"]),
                    format_ratio(row["ms"] / own_ms[_name(row), row["elements"]]),
                    "checked" if row["checked"] else "not checked",
                ]
                for row in rows
            ],
        ),
        [LegendEntry(name, style, bar=True) for name, style in styles.items()],
    )


def _draw_packages(rows: Sequence[Mapping[str, Any]]) -> partial[str]:
    """A bar for each package, the fastest first; this package's has a color of its own."""
    groups = [
        BarGroup(row["package"], [ChartBar(row["package"], row["ms"], int(row["package"] == OWN))])
        for row in sorted(rows, key=lambda row: row["ms"])
    ]
    return partial(draw_bars, groups, format_time)


def _show_first_calls(operation: str, calls: Sequence[Mapping[str, Any]]) -> Figure:
    """First calls of fresh processes that do the same work."""
    own = next((each["ms"] for each in calls if each["package"] == OWN), None)
    table = [
        [
            each["package"],
            format_time(each["ms"]),
            "" if own is None else format_ratio(each["ms"] / own),
            "" if each["resident_bytes"] is None else f"{each['resident_bytes'] / 1e6:,.0f} MB",
        ]
        for each in calls
    ]
    return Figure(
        f"peers-first-{operation.replace(' ', '-')}",
        f"The first call of a process: {FIRST_WORK[operation]}",
        "From the start of a process until its first result, with the same inputs for every "
        "package. Caches on disk, of drivers and of packages, are used as earlier processes left "
        "them.",
        _draw_packages(calls),
        ValueTable(["package", "first call", "over this package's time", "main memory"], table),
        half=True,
    )
