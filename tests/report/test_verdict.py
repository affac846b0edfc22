"""The verdict of a report: sentences computed from what a run has measured."""

from __future__ import annotations

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.page import make_page
from gpu_executor.report.verdict import list_verdict
from tests.support.benchmark_runs import make_run


def read_verdict(run: BenchmarkRun) -> dict[str, str]:
    """Sentences, with the packages that they list, by what is before their colon."""
    sentences = ["; ".join([each.text, *each.packages]) for each in list_verdict(run)]
    return dict(each.split(":", 1) for each in sentences if ":" in each)


def test_the_verdict_says_what_is_faster_and_slower_here() -> None:
    verdict = read_verdict(make_run())
    assert verdict["Discrete GPU"] == " Fictitious GPU."
    slower = verdict["Slower here than this package"]
    assert "wgpu-py for sums of 32-bit integers (3x)" in slower  # 1.5 ms and 0.5 ms
    assert "ckzg for transforms (64 blobs extended) (106x)" in slower  # 530 ms and 5 ms
    assert "others 1.2 for multi-scalar multiplications (2x)" in slower
    assert "Faster here than this package" not in verdict


def test_the_verdict_names_few_sizes_and_counts_many() -> None:
    run = make_run()
    rows = run.benchmarks["peers"].tables["program_rows"]
    measured = [row for row in rows if row["ms"] is not None]
    for size in range(4, 10):
        rows += [row | {"elements": 1 << size} for row in measured[:2]]
    others = [row for row in rows if row["package"] == "others 1.2" and row["ms"] is not None]
    others[0]["ms"] = 1.0
    faster = read_verdict(run)["Faster here than this package"]
    named = "64 K in BN254_G1 (scalars on the device) (2x)"
    assert faster == f"; others 1.2 for multi-scalar multiplications of {named}"
    for row in others[:5]:
        row["ms"] = 1.0
    faster = read_verdict(run)["Faster here than this package"]
    assert faster.startswith("; others 1.2 for 5 of 8 multi-scalar multiplications (2x")


def test_a_software_driver_that_loses_says_so_by_size() -> None:
    run = make_run()
    run.environment["device"] |= {"kind": "cpu", "name": "llvmpipe"}
    rows = run.benchmarks["peers"].tables["rows"]
    for row in rows:
        if row["package"] == "wgpu-py" and row["operation"] == "sum":
            row["ms"] = 0.25 if row["elements"] == 1 << 10 else 0.51
    for row in run.benchmarks["kzg"].tables["rows"]:
        row["ckzg_ms"] = 0.5 * row["ms"] / row["blobs"]
    verdict = read_verdict(run)
    assert verdict["Software driver"].startswith(" llvmpipe. The CPU of this machine runs")
    faster = verdict["Faster here than this package"]
    assert "wgpu-py for sums of 32-bit integers of 1 K elements (2x)" in faster
    assert "ckzg on one thread for KZG commitments (2x)" in faster
    even = verdict["About as fast as this package"]
    assert even == "; wgpu-py for sums of 32-bit integers of 16 K elements (1.02x)"


def test_the_verdict_has_first_calls() -> None:
    run = make_run()
    slower = read_verdict(run)["Slower here than this package"]
    work = "a sum of 1,024 32-bit integers in a new process"
    assert f"{work} (2.5x)" in slower  # 2,000 ms and 800 ms
    for row in run.benchmarks["peers"].tables["first_calls"]:
        if row["package"] == "wgpu-py":
            row["ms"] = 400.0
    faster = read_verdict(run)["Faster here than this package"]
    assert faster == f"; wgpu-py for {work} (2x)"


def test_the_verdict_is_the_first_section_and_names_what_is_missing() -> None:
    page = make_page(make_run())
    assert page.index('id="verdict"') < page.index("Head figures") < page.index('id="calls"')
    run = BenchmarkRun(make_run().environment)
    assert "No other package was measured in this run." in [each.text for each in list_verdict(run)]
