"""The page of a report: what it says, what it holds, and what is refused."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_executor.bench.persistent import ORIGINAL_MS
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun
from gpu_executor.cli.commands import commands
from gpu_executor.report.charts import ChartAxis, ChartLine, DataPoint, draw_lines
from gpu_executor.report.format import (
    format_count,
    format_power,
    format_rate,
    format_ratio,
    format_time,
    round_digits,
)
from gpu_executor.report.page import make_page
from tests.support.benchmark_runs import FIGURES, make_run

VOID = {"meta", "link", "br", "img", "input", "hr"}


@pytest.fixture(scope="module")
def run() -> BenchmarkRun:
    return make_run()


@pytest.fixture(scope="module")
def page(run: BenchmarkRun) -> str:
    return make_page(run)


class TagCheck(HTMLParser):
    """Notes tags that are not closed in order, and the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_well_formed_and_has_every_figure(page: str) -> None:
    check = TagCheck()
    check.feed(page)
    assert (check.wrong, check.open) == ([], [])
    assert len(check.ids) == len(set(check.ids))
    assert [name for name in FIGURES if name not in check.ids] == []


def test_the_page_refers_to_nothing_outside(page: str) -> None:
    without_namespace = page.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in without_namespace and "https://" not in without_namespace
    assert not re.search(r"<(script|img|iframe)[^>]* src=", page)
    assert re.findall(r'<link[^>]*href="([^"]*)"', page) == ["data:,"]


def test_the_page_has_the_curve_of_the_source_documents(page: str) -> None:
    assert "Rust original (Intel i7-9750H, Windows)" in page
    for one_shot, persistent in ORIGINAL_MS.values():
        for value in (one_shot, persistent):
            assert f": {format_time(value)}</title>" in page


def test_head_figures_and_texts_say_what_was_measured(page: str) -> None:
    for words in (
        "gpu-executor on Fictitious GPU",
        "29.9 µs",  # the call of 64 elements: 28 us and 64 / 10^6 of 30 ms
        "The paths cross between 64 and 1 K elements.",
        "2.5x",  # the best batch: 16 jobs, plain arrays
        "Streamed additions between mapped arrays reach 376 M/s, 0.989 of the limit, 380 M/s.",
        "65 G/s",
        "Not installed, so not compared: galois.",
        "BLS12_381_G1, 2^22",
    ):
        assert words in page, words


def test_the_text_of_the_pipeline_counts_the_queues_of_both_batches() -> None:
    words = "All of them used one queue of the device"
    run = make_run()
    timelines = run.benchmarks["batch"].tables["timelines"]
    queues = {"upload queue", "compute queue", "download queue"}
    for each in timelines:
        assert words not in make_page(run), "at least one batch used three queues"
        for span in each["spans"]:
            span["track"] = "queue" if span["track"] in queues else span["track"]
    assert words in make_page(run)


@pytest.mark.parametrize(("threads", "reason"), [(2_000.0, True), (500.0, False)])
def test_only_a_gain_of_threads_is_explained(threads: float, reason: bool) -> None:
    run = make_run()
    run.benchmarks["executor"].tables["calls"] |= {"one_thread": 1_000.0, "threads": threads}
    page = make_page(run)
    assert f"together reach {format_ratio(threads / 1_000)} the rate of one" in page
    assert ("because calls that wait together are coalesced" in page) == reason


def test_kzg_of_one_batch_shows_the_columns_that_were_measured() -> None:
    run = make_run()
    rows = run.benchmarks["kzg"].tables["rows"]
    rows[:] = [row | {"ckzg_all_cores_ms": None} for row in rows if row["blobs"] == 1]
    figure = re.search(r'<figure[^>]*id="kzg-functions".*?<table', make_page(run), re.DOTALL)
    assert figure is not None
    assert "ckzg, one thread" in figure[0] and "ckzg, all cores" not in figure[0]


def test_the_section_on_proofs_names_other_provers_and_the_process(page: str) -> None:
    for words in (
        "Groth16 proof of 2^20 constraints",
        "Beside snarkjs (version 0.7.6, Node 20.1.0).",
        "rapidsnark was not measured: not found.",
        "snarkjs, bits, 2^20: node took more than 600 s.",
        "takes 4 s with empty caches and 900 ms the next time.",
    ):
        assert words in page, words
    rows = re.search(r'id="groth16-products".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert rows is not None
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", rows[1])
    taken = 0.06 * (4.0 + (1 << 20) / 25e3)
    assert cells[:4] == ["quotient", format_time(taken), format_time(0.7 * taken), "0.7"]


def test_proofs_of_one_size_without_counted_products_have_their_figures() -> None:
    run = make_run()
    tables = run.benchmarks["groth16"].tables
    for name in ("rows", "stages", "peers"):
        tables[name][:] = [row for row in tables[name] if row["log_constraints"] == 12]
    for row in tables["stages"]:
        row["products_ms"] = {}
    tables["command"] = None
    page = make_page(run)
    assert 'id="groth16-stages"' in page and 'id="groth16-products"' not in page
    assert "empty caches" not in page


def test_peers_that_are_absent_or_failed_are_named(page: str) -> None:
    for words in (
        "Not installed, so not compared: CuPy.",
        "Kompute: RuntimeError: no device.",
        "wgpu-py, batch of sums of 4 K elements: DeviceLost: lost.",
        "Not measured: commitments, not installed: eth_account.",
        "A batch of sums, 16 jobs of 4 K elements",
        "Sums of multiples of points, 1 point<",
    ):
        assert words in page, words
    rows = re.search(r'id="peers-sum".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert rows is not None
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", rows[1])
    assert cells[-5:] == ["wgpu-py", "16 K", format_time(1.5), format_rate(16384 / 1.5e-3), "3x"]


def test_programs_of_the_user_have_name_and_version(page: str) -> None:
    for words in (
        "others 1.2 on a GPU is a program of the user, timed by turns with this package.",
        "other.py: ended with exit code 1.",
        "others 1.2, multi-scalar multiplications of 4 M (scalars on the device, BN254_G1, "
        "BLS12_381_G1): unsupported, too many points.",
        "Programs of the user: multi-scalar multiplications",
    ):
        assert words in page, words
    rows = re.search(r'id="programs-msm".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert rows is not None
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", rows[1])
    first = cells.index("others 1.2", cells.index("1 M"))
    assert cells[first : first + 7] == [
        "others 1.2",
        "BN254_G1, scalars on the device",
        "1 M",
        format_time(12.0),
        format_rate((1 << 20) / 12e-3),
        "2x",
        "not checked",
    ]


def test_the_chart_of_programs_has_the_largest_sizes_that_a_program_did(page: str) -> None:
    figure = re.search(r'id="programs-msm"(.*?)<details(.*?)</details>', page, re.DOTALL)
    assert figure is not None
    chart, table = figure.groups()
    assert "BN254_G1, scalars on the device, 1 M" in chart
    assert "BLS12_381_G1" not in chart
    assert "BLS12_381_G1" in table


def test_shares_of_the_roofline_are_computed_from_the_same_run(page: str) -> None:
    """In the fixed figures, elements of 32 bytes are multiplied at 2.5 TB/s; a copy reaches 4.1."""
    rows = re.search(r'id="roofline-bls12_381_fr".*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert rows is not None
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", rows[1])
    measured, roof = 2.5e12 / 96, 4.1e12 / 96
    assert cells[:6] == [
        "products",
        "0.01 per byte",
        format_rate(measured),
        format_rate(roof),
        round_digits(measured / roof),
        "memory",
    ]
    # The largest transform: 2^24 elements in 1.8e-8 ms * 2^24 * 24, at most 65 G products/s.
    rate = (1 << 23) * 24 / (1.8e-8 * (1 << 24) * 24) * 1e3
    assert cells[-6:] == [
        "transform of 2^24",
        "0.188 per byte",
        format_rate(rate),
        "65 G/s",
        round_digits(rate / 65e9),
        "arithmetic",
    ]


def test_what_was_not_measured_is_named(run: BenchmarkRun) -> None:
    partial = BenchmarkRun(run.environment, quick=True)
    partial.benchmarks["stream"] = run.benchmarks["stream"]
    partial.benchmarks["kzg"] = BenchmarkResult.without("skipped", "not installed: <eth_account>")
    partial.benchmarks["msm"] = BenchmarkResult.without("failed", "AssertionError: wrong sums")
    page = make_page(partial)
    assert "`bench kzg` was skipped: not installed: &lt;eth_account&gt;" in page
    assert "`bench msm` failed: AssertionError: wrong sums" in page
    assert "`bench persistent` was not part of this run" in page
    assert "A quick run" in page
    assert 'id="stream-rates"' in page and 'id="timeline"' not in page
    check = TagCheck()
    check.feed(page)
    assert (check.wrong, check.open) == ([], [])


def test_text_of_a_file_is_escaped(run: BenchmarkRun) -> None:
    hostile = "</script><script>alert(1)</script>"
    changed = BenchmarkRun(dict(run.environment), benchmarks=dict(run.benchmarks))
    changed.environment["device"] = changed.environment["device"] | {"name": hostile}
    batch = run.benchmarks["batch"].as_dict()
    batch = json.loads(json.dumps(batch))
    batch["tables"]["timelines"][0]["spans"][0]["track"] = hostile
    changed.benchmarks["batch"] = BenchmarkResult.from_dict(batch)
    assert hostile not in make_page(changed)


def test_the_command_writes_the_page(tmp_path: Path, run: BenchmarkRun) -> None:
    results, output = tmp_path / "results.json", tmp_path / "report.html"
    results.write_text(json.dumps(run.as_dict()))
    shown = CliRunner().invoke(commands, ["report", str(results), "-o", str(output)])
    assert shown.exit_code == 0, shown.output
    assert str(output) in shown.output.replace("\n", "")
    assert "Fictitious GPU" in output.read_text(encoding="utf-8")


def test_other_files_and_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    refused = CliRunner().invoke(commands, ["report", str(other), "-o", str(tmp_path / "r.html")])
    assert "has no results of benchmarks" in refused.output
    other.write_text(json.dumps(make_run().as_dict()))
    target = str(tmp_path / "missing" / "r.html")
    refused = CliRunner().invoke(commands, ["report", str(other), "-o", target])
    assert "cannot be written" in refused.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_time(0.0285), "28.5 µs"),
        (format_time(1.0), "1 ms"),
        (format_time(1234.0), "1.23 s"),
        (format_rate(45.6e9), "45.6 G/s"),
        (format_rate(12.0), "12 /s"),
        (format_count(4096), "4 K"),
        (format_count(100), "100"),
        (format_power(1 << 20), "2^20"),
        (round_digits(0.0123), "0.012"),
        (round_digits(1234.5), "1,234"),
    ],
)
def test_numbers_have_three_digits(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [0.95, 1.04], [1e-3, 1e6]])
def test_axes_have_ticks_for_every_range(values: list[float]) -> None:
    line = ChartLine("a", [DataPoint(index + 1, value) for index, value in enumerate(values)], 0)
    x_axis = ChartAxis("x", round_digits, ticks=range(1, len(values) + 1))
    drawn = draw_lines([line], x_axis, ChartAxis("y", round_digits), 328, "label")
    assert drawn.count('class="grid"') >= 2
    assert "nan" not in drawn and "inf" not in drawn
