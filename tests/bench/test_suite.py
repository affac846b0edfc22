"""`gpu-executor bench all`: one file for all benchmarks, written as they end."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from gpu_executor.bench import batch, executor_jobs, peers, persistent, suite
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.bench.peers import OWN
from gpu_executor.bench.results import BenchmarkResult, read_run
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.suite import BENCHMARKS, Benchmark, Watch
from gpu_executor.bench.timing import TimingBudget
from gpu_executor.cli import bench_all, progress
from gpu_executor.cli.commands import commands
from gpu_executor.telemetry.profile import STAGES
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from tests.support.examples import FOLDER

ALL = [
    "persistent",
    "batch",
    "stream",
    "buckets",
    "fields",
    "ntt",
    "msm",
    "kzg",
    "groth16",
    "hashes",
    "executor",
    "peers",
]


def watch_nothing(items: Any, _total: int, _what: str) -> Iterator[Any]:
    yield from items


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["bench", "all", *arguments])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two benchmarks that note their calls; the second fails once."""
    made: list[str] = []

    def measure_first(watch: Watch, *, quick: bool) -> MeasuredRows:
        made.append(f"first, quick={quick}")
        rows = list(watch(({"call_ms": Sampled.median([1, 2, 3])} for _ in range(2)), 2, "rows"))
        return MeasuredRows(find_devices()[0], rows)

    def measure_second(_watch: Watch, *, quick: bool) -> MeasuredRows:
        made.append(f"second, quick={quick}")
        if made.count(made[-1]) == 1:
            raise AssertionError("wrong sums")
        return MeasuredRows(find_devices()[0], [])

    monkeypatch.setattr(
        bench_all,
        "BENCHMARKS",
        {
            "persistent": Benchmark("persistent", "", measure_first),
            "batch": Benchmark("batch", "", measure_second),
            "kzg": Benchmark("kzg", "", measure_second, "kzg", ("no_such_module",)),
        },
    )
    return made


def test_the_suite_has_every_benchmark() -> None:
    assert list(BENCHMARKS) == ALL


def test_results_failures_and_missing_extras_are_in_one_file(
    calls: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "all.json"
    shown = run("--quick", "--json", str(file))
    assert shown.exit_code == 1  # one failed
    assert calls == ["first, quick=True", "second, quick=True"]
    found = read_run(file)
    assert found.quick
    states = {name: (each.state, each.reason) for name, each in found.benchmarks.items()}
    assert states == {
        "persistent": ("measured", None),
        "batch": ("failed", "AssertionError: wrong sums"),
        "kzg": (
            "skipped",
            "not installed: no_such_module; pip install 'gpu-executor[kzg]'",
        ),
    }
    assert [each.samples for each in found.benchmarks["persistent"].series] == [(1, 2, 3)] * 2
    words = " ".join(shown.output.split())
    assert "kzg: skipped: not installed: no_such_module" in words
    assert "batch: failed in 0 s: AssertionError: wrong sums" in words
    assert "3 of 3 benchmarks." in words and "all take 2 to 4 minutes" in words


def test_json_on_standard_output_is_all_of_it(calls: list[str]) -> None:
    shown = run("--quick", "--json", "-")
    assert json.loads(shown.stdout)["benchmarks"].keys() == {"persistent", "batch", "kzg"}
    assert "persistent: measured in 0 s" in shown.stderr and "Benchmarks" in shown.stderr
    assert "report" not in shown.stderr, "there is no file to draw"
    assert not Path("-").exists()
    assert "--resume needs --json FILE" in run("--resume", "--json", "-").output


def test_without_a_terminal_lines_say_how_far_a_run_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = r"^\d+ s: all benchmarks, now batch 0 of 1, batch: sizes [1-7] of 7$"
    printed = threading.Event()
    echo = click.echo

    def note(line: str, **options: Any) -> None:
        echo(line, **options)
        if re.search(pattern, line):
            printed.set()

    def measure(watch: Watch, *, quick: bool) -> MeasuredRows:
        for _ in watch(range(7), 7, "sizes"):
            printed.wait(20)
        return MeasuredRows(find_devices()[0], [])

    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("gpu_executor.cli.progress.click.echo", note)
    benchmarks = {"batch": Benchmark("batch", "", measure)}
    monkeypatch.setattr(bench_all, "BENCHMARKS", benchmarks)
    shown = run("--quick")
    assert shown.exit_code == 0, shown.output
    assert re.search(pattern, shown.stderr, re.MULTILINE)
    assert "all benchmarks, now" not in shown.stdout


def test_a_run_is_resumed_with_what_is_missing(calls: list[str], tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    assert run("--json", str(file)).exit_code == 1
    kept = read_run(file).benchmarks["persistent"]
    shown = run("--resume", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert calls == ["first, quick=False", "second, quick=False", "second, quick=False"]
    assert f"persistent: measured at {kept.date}, kept" in shown.output
    found = read_run(file).benchmarks
    assert found["persistent"] == kept
    assert found["batch"].state == "measured"


def test_an_interrupted_run_has_saved_what_had_ended(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Benchmark.run

    def run_first(self: Benchmark, watch: Watch, *, quick: bool) -> BenchmarkResult:
        if self.name != "persistent":
            raise KeyboardInterrupt
        return measure(self, watch, quick=quick)

    monkeypatch.setattr(Benchmark, "run", run_first)
    file = tmp_path / "all.json"
    shown = run("--json", str(file))
    assert shown.exit_code == 130
    assert calls == ["first, quick=False"]
    assert "--resume" in shown.output
    assert list(read_run(file).benchmarks) == ["persistent"]


def test_runs_under_other_conditions_are_not_resumed(calls: list[str], tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    run("--quick", "--json", str(file))
    refused = run("--resume", "--json", str(file))
    assert refused.exit_code == 2
    assert "cannot be resumed: it differs in --quick" in " ".join(refused.output.split())
    content = json.loads(file.read_text())
    content["commit"] = "another"
    file.write_text(json.dumps(content))
    refused = run("--quick", "--resume", "--json", str(file))
    assert "it differs in commit" in " ".join(refused.output.split())
    assert "--resume needs --json" in run("--resume").output
    assert len(calls) == 2


def test_only_the_named_benchmarks_run(calls: list[str], tmp_path: Path) -> None:
    assert run("--only", "persistent").exit_code == 0
    assert calls == ["first, quick=False"]


def test_programs_of_the_user_are_measured_with_the_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where the file of a resumed run has the packages alone, and one that fails is named."""
    monkeypatch.setattr(peers, "list_works", lambda *_: iter(()))
    monkeypatch.setattr(peers, "list_first_calls", lambda *_: [])
    file = tmp_path / "all.json"
    program = f"{sys.executable} {FOLDER / 'peer_program.py'}"
    arguments = "--quick", "--only", "peers", "--json", str(file)
    assert run(*arguments).exit_code == 0
    assert read_run(file).benchmarks["peers"].tables["program_rows"] == []
    assert run(*arguments, "--resume", "--program", program).exit_code == 0
    tables = read_run(file).benchmarks["peers"].tables
    assert {row["package"] for row in tables["program_rows"]} == {OWN, f"NumPy {np.__version__}"}
    assert "failed" not in {row["state"] for row in tables["program_rows"]}
    assert "peers: measured at" in run(*arguments, "--resume", "--program", program).output
    failed = run(*arguments, "--program", f"{sys.executable} -c pass")
    assert failed.exit_code == 1 and "ended" in failed.output
    refused = run("--only", "batch", "--program", program)
    assert refused.exit_code == 2 and "add --only peers" in refused.output


@pytest.mark.slow
def test_every_benchmark_has_figures_in_a_quick_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The stream, batch and executor benchmarks for real; the others are tested by themselves."""
    monkeypatch.setattr(suite, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(suite, "QUICK_BATCH_SIZES", (256,))
    monkeypatch.setattr(suite, "QUICK_STREAM", (1_000, 3))
    monkeypatch.setattr(batch, "WARM_UP", TimingBudget(warm_up=0))
    monkeypatch.setattr(batch, "SIZES", (256,))
    monkeypatch.setattr(batch, "HOT_PATH_ROUNDS", 10)
    monkeypatch.setattr(batch, "CPU_TIMELINE_ELEMENTS", 256)
    monkeypatch.setattr(executor_jobs, "MAP_ELEMENTS", 64)
    file = tmp_path / "all.json"
    names = "stream", "batch", "executor"
    shown = run(
        "--quick", "--json", str(file), *(word for name in names for word in ("--only", name))
    )
    assert shown.exit_code == 0, shown.output
    found = read_run(file).benchmarks
    assert set(found) == set(names)
    for result in found.values():
        assert result.state == "measured" and result.seconds is not None
        assert max(len(each.samples) for each in result.series) >= 3


def test_wrong_sums_end_a_benchmark_before_anything_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a wrong result was timed")

    for module in (persistent, batch):
        name = "time_function" if module is persistent else "time_interleaved"
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(batch, "WARM_UP", TimingBudget(warm_up=0))
    monkeypatch.setattr(batch, "SIZES", (256,))
    monkeypatch.setattr(VulkanSpirvBackend, "run_field_add", lambda _self, a, _b, **_: a)
    with pytest.raises(AssertionError, match="one-shot: wrong sums"):
        persistent.measure_size(64)
    monkeypatch.setattr(
        PersistentVulkanBackend,
        "run_batch",
        lambda _self, _kernel, jobs, **_: [a for a, _ in jobs],
    )
    with (
        PersistentVulkanBackend() as gpu,
        pytest.raises(AssertionError, match="plain arrays: wrong sums"),
    ):
        next(batch.measure_batches(gpu, [(64, 2)], 0))


def test_timelines_show_that_only_pipelined_batches_overlap() -> None:
    device = suite.select_device()
    # On a busy machine each job may be computed before the host fills the next one, so that a
    # single recording need not show an overlap.
    for _ in range(20):
        sequential, pipelined = batch.record_timelines(device)
        if find_overlaps(pipelined):
            break
    assert (sequential.mode, pipelined.mode) == ("sequential", "pipelined")
    for timeline in (sequential, pipelined):
        assert {span.stage for span in timeline.spans} <= set(STAGES)
        assert {"fill", "compute", "drain"} <= {span.stage for span in timeline.spans}
        assert {span.chunk for span in timeline.spans} == set(range(timeline.jobs))
        assert min(span.begin_us for span in timeline.spans) == 0
        assert all(span.end_us >= span.begin_us for span in timeline.spans)
    assert not find_overlaps(sequential)
    assert find_overlaps(pipelined)


def find_overlaps(timeline: batch.BatchTimeline) -> list[tuple[int, int]]:
    """The pairs of jobs of which one was being filled while the other one was on the device."""
    fills = [span for span in timeline.spans if span.stage == "fill"]
    on_device = [span for span in timeline.spans if span.stage in STAGES[1:4]]
    return [
        (a.chunk, b.chunk)
        for a in fills
        for b in on_device
        if a.chunk != b.chunk and a.begin_us < b.end_us and b.begin_us < a.end_us
    ]
