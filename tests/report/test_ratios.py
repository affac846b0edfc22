"""Every ratio of the page is the quotient of the figures that stand beside it in the same row."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from gpu_executor.bench import batch, peers, stream, suite
from gpu_executor.bench.peer_programs import NumpyProgram, OwnProgram
from gpu_executor.bench.peers import OWN, PeerSizes
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.bench.suite import BatchMeasurement, PeersMeasurement, StreamedAdditions
from gpu_executor.bench.timing import compute_ratio
from gpu_executor.report.page import make_page
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from tests.support.benchmark_runs import make_run

FACTORS = {
    **{"µs": 1e-6, "ms": 1e-3, "s": 1.0},
    **{
        f"{prefix}{unit}": factor
        for unit in ("/s", "B/s")
        for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
    },
    **{"x": 1.0, "": 1.0},
}
NUMBER = re.compile(r"([\d,]*\.?\d+) ?(µs|ms|s|[kMGT]?B?/s|x)?")
Row = Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """A number as the page shows it, with the most that it may be off by rounding."""

    value: float
    error: float

    @classmethod
    def read(cls, text: str) -> Figure:
        found = NUMBER.match(text)
        assert found is not None, text
        digits, factor = found[1].replace(",", ""), FACTORS[found[2] or ""]
        decimals = len(digits.partition(".")[2])
        # Trailing zeros are not shown: three significant digits, or whole numbers.
        value = float(digits)
        hidden = 2 if 0 < value < 9.995 else 1 if value < 99.95 else 0
        shown = max(decimals, hidden if value >= 0.9995 else 3)
        return cls(value * factor, 0.5 * 10**-shown * factor)


def check_quotient(ratio: str, numerator: str, denominator: str) -> None:
    shown, first, second = map(Figure.read, (ratio, numerator, denominator))
    low = (first.value - first.error) / (second.value + second.error)
    high = (first.value + first.error) / max(second.value - second.error, 1e-12)
    words = f"{ratio} is not {numerator} over {denominator}"
    assert low - shown.error - 1e-9 <= shown.value <= high + shown.error + 1e-9, words


QUOTIENTS: dict[str, tuple[str, str, str]] = {
    "batch-speed-up": ("speed-up", "sequential", "pipelined"),
    "stream-rates": ("of the limit", "additions", "limit"),
    "bucket-batches": ("gain", "one pipeline", "buckets"),
    "transforms-beside-others": ("speed-up", "its time", "our time"),
    "roofline": ("share", "measured", "roof"),
    "msm-bound": ("share", "additions", "bound"),
    "groth16-products": ("share", "products alone", "measured"),
    "hash-rates": ("share", "on the device", "bound"),
    "hash-transfers": ("share", "NumPy to NumPy", "bus"),
}
"""Tables whose rows have a ratio and both of its figures: the columns of the three."""
OVER_OWN = "over this package's time"


def list_tables(page: str) -> Iterator[tuple[str, list[Row]]]:
    """The figures of a page with the rows of their tables."""
    for name, text in re.findall(r'<figure id="([^"]*)"(.*?)</figure>', page, re.DOTALL):
        columns = [html.unescape(each) for each in re.findall(r'<th scope="col">(.*?)</th>', text)]
        rows = re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", text, re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
        yield name, [dict(zip(columns, map(html.unescape, each), strict=True)) for each in cells]


def check_page(page: str) -> set[str]:
    """Check all ratios of a page; returns the kinds of figures that have some."""
    tables, found = dict(list_tables(page)), set()
    for name, rows in tables.items():
        kind = "roofline" if name.startswith("roofline") else name
        checked = {"within rounds"}  # a range over rounds, which says so
        if kind in QUOTIENTS:
            checked.add(QUOTIENTS[kind][0])
            check_columns(rows, *QUOTIENTS[kind])
        elif rows and OVER_OWN in rows[0]:
            kind = next(
                each for each in ("peers-first", "peers", "programs") if name.startswith(each)
            )
            checked.add(OVER_OWN)
            check_packages(rows)
        elif name == "field-bandwidth":
            for row in rows:
                for operation in ("additions", "squares", "products"):
                    _, moved, share = re.split(": |, ", row[operation])
                    check_quotient(share, moved, row["copy"])
        elif name == "path-crossover":
            checked.add("device-local over host-visible")
            check_paths(rows, tables["calls-by-size"])
        else:
            kind = ""
        found |= {kind} - {""}
        for row in rows:
            for column, cell in row.items():
                assert column in checked or not re.fullmatch(r"[\d.,]+x", cell), (name, column)
    return found


def check_columns(rows: list[Row], ratio: str, numerator: str, denominator: str) -> None:
    for row in rows:
        if row[ratio]:  # rows of copies alone have none
            check_quotient(row[ratio], row[numerator], row[denominator])


def check_packages(rows: list[Row]) -> None:
    """Times over those of this package for as many elements, or for the same first call."""
    name, first, second, *_ = rows[0]
    time = "first call" if "first call" in rows[0] else "time"
    same = [] if time == "first call" else [first, second] if name == "program" else [first]
    for row in rows:
        own = next(
            each[time]
            for each in rows
            if each[name] == OWN and all(each[column] == row[column] for column in same)
        )
        check_quotient(row[OVER_OWN], row[time], own)


def check_paths(rows: list[Row], calls: list[Row]) -> None:
    by_size = {row["elements"]: row for row in calls}
    for row in rows:
        times = by_size[row["elements"]]
        paths = times["persistent, host-visible"], times["persistent, device-local"]
        check_quotient(row["device-local over host-visible"], *paths)


def test_ratios_of_fixed_figures_agree_with_the_figures_beside_them() -> None:
    kinds = {"field-bandwidth", "path-crossover", "peers", "peers-first", "programs"}
    assert check_page(make_page(make_run())) == QUOTIENTS.keys() | kinds


@pytest.mark.slow
def test_ratios_of_a_real_run_agree_with_the_figures_beside_them() -> None:
    """Few rounds of little work, whose times vary: medians of ratios would differ."""
    with PersistentVulkanBackend() as gpu:
        device = gpu.device
        batches = BatchMeasurement(
            device, list(batch.measure_batches(gpu, [(64, 2), (1 << 10, 3)], 0.0, 4)), [], []
        )
        streams = StreamedAdditions(
            device, stream.measure_streams(gpu, 1 << 10, lambda rounds: rounds, 4)
        )
    sizes = PeerSizes((64, 1 << 10), (3, 65), 33, 20, 0, 2, 0.0, max_rounds=4, processes=0)
    with peers.OpenPeers([OwnProgram, NumpyProgram]) as opened:
        rows = [
            row
            for work in peers.list_works(sizes, {})
            for row in peers.measure_work(work, opened.programs, sizes)
        ]
        compared = PeersMeasurement(device, opened.states, rows, {}, [])
    run = BenchmarkRun(describe_environment(suite.select_device()))
    for name, each in (("batch", batches), ("stream", streams), ("peers", compared)):
        run.benchmarks[name] = BenchmarkResult.of(each)
    assert check_page(make_page(run)) == {"batch-speed-up", "stream-rates", "peers"}


def test_a_ratio_that_disagrees_is_found() -> None:
    for ratio, numerator, denominator in (
        ("1.71x", "7.81 ms", "6.88 ms"),
        ("0.02", "2.02 M/s", "61.2 M/s"),
    ):
        with pytest.raises(AssertionError, match="is not"):
            check_quotient(ratio, numerator, denominator)
    check_quotient("1.14x", "7.81 ms", "6.88 ms")
    check_quotient("0.033", "2.02 M/s", "61.2 M/s")


def test_a_ratio_is_that_of_the_medians_with_the_ratios_of_rounds_as_samples() -> None:
    ratio = compute_ratio([[1.0, 2.0], [6.0, 2.0], [3.0, 1.0]], 0, 1)
    assert float(ratio) == 3.0 / 2.0
    assert ratio.samples == (0.5, 3.0, 3.0)
