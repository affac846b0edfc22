"""Comparison of two runs: a figure changed if its samples in both runs do not overlap, and if its
whole benchmark did not change alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpu_executor.bench.comparison import compare_runs
from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.bench.sampled import Sampled
from gpu_executor.cli.commands import commands
from gpu_executor.vulkan.instance import find_devices


def make_run(**figures: Any) -> BenchmarkRun:
    """A run of one benchmark whose only row has these figures, each the median of samples."""
    device = find_devices()[0]
    row = {name: Sampled.median(samples) for name, samples in figures.items()}
    run = BenchmarkRun(describe_environment(device))
    run.benchmarks["persistent"] = BenchmarkResult.of(
        MeasuredRows(device, [{"elements": 64, **row}])
    )
    return run


@pytest.mark.parametrize(
    ("figure", "before", "after", "verdict", "speed"),
    [
        ("call_ms", [1.0, 1.1, 1.2], [2.0, 2.2, 2.4], "slower", 0.5),
        ("call_ms", [2.0, 2.2, 2.4], [1.0, 1.1, 1.2], "faster", 2.0),
        ("call_ms", [1.0, 2.0, 3.0], [2.0, 3.0, 4.0], "same", 2 / 3),
        ("call_ms", [1.0, 1.0, 1.0], [1.04, 1.04, 1.04], "same", 1 / 1.04),
        ("call_ms", [1.0] * 19 + [9.0], [2.0] * 20, "slower", 0.5),
        ("calls_per_second", [100, 101, 102], [200, 202, 204], "faster", 2.0),
        ("calls_per_second", [200, 202, 204], [100, 101, 102], "slower", 0.5),
        ("call_ms", [1.0, 1.0], [9.0, 9.0, 9.0], "not judged", 1 / 9),
    ],
)
def test_a_change_is_judged_by_its_spread(
    figure: str, before: list[float], after: list[float], verdict: str, speed: float
) -> None:
    (change,) = compare_runs(make_run(**{figure: before}), make_run(**{figure: after})).changes
    assert change.verdict == verdict
    assert change.speed == pytest.approx(speed)


def test_a_change_of_a_whole_benchmark_is_named_once() -> None:
    names = [f"{letter}_{unit}" for letter in "abc" for unit in ("ms", "per_second")]

    def make(slow: float, d_ms: float, e_ms: float) -> BenchmarkRun:
        """Times are longer by a factor, and rates lower."""
        figures = {
            name: [(slow if name.endswith("ms") else 1 / slow) * each for each in (1.0, 1.01, 1.02)]
            for name in names
        }
        return make_run(**figures, d_ms=[d_ms] * 3, e_ms=[e_ms] * 3)

    found = compare_runs(make(1, 1, 1), make(2, 9, 1))
    assert found.drifts == {"persistent": pytest.approx(0.5)}
    assert [each.before.figure for each in found.select("slower")] == ["d_ms"]
    assert not found.select("faster")  # e_ms is faster than the drift, but has not changed
    again = compare_runs(make(1, 1, 1), make(1, 9, 1))
    assert [each.before.figure for each in again.select("slower", "faster")] == ["d_ms"]


def test_few_figures_have_no_drift() -> None:
    before = make_run(a_ms=[1.0] * 3, b_ms=[1.0] * 3, c_ms=[1.0] * 3, d_ms=[1.0] * 3)
    after = make_run(a_ms=[2.0] * 3, b_ms=[2.0] * 3, c_ms=[2.0] * 3, d_ms=[2.0] * 3)
    found = compare_runs(before, after)
    assert len(found.select("slower")) == 4 and not found.drifts


def test_ratios_and_missing_figures_are_not_compared() -> None:
    first = make_run(speed_up=[1, 2, 3], a_ms=[1, 2, 3], b_ms=[1, 2, 3])
    found = compare_runs(first, make_run(speed_up=[7, 8, 9], b_ms=[1, 2, 3], c_ms=[1, 2, 3]))
    assert [change.before.figure for change in found.changes] == ["b_ms"]
    assert (found.only_before, found.only_after) == (1, 1)
    assert found.differences == []


def test_the_command_names_changes_and_different_environments(tmp_path: Path) -> None:
    first = make_run(a_ms=[1.0, 1.1, 1.2], b_ms=[1.0, 1.1, 1.2], c_ms=[1.0, 1.1, 1.2])
    second = make_run(a_ms=[3.0, 3.3, 3.6], b_ms=[0.5, 0.55, 0.6], c_ms=[1.0, 1.1, 1.2])
    second.environment["commit"] = "another"
    files = tmp_path / "a.json", tmp_path / "b.json"
    for file, run in zip(files, (first, second), strict=True):
        file.write_text(json.dumps(run.as_dict()))
    shown = CliRunner().invoke(commands, ["bench", "compare", *map(str, files)])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "different commit" in words and "then another" in words
    assert "Slower: 1" in words and "0.33x" in words
    assert "Faster: 1" in words and "2.00x" in words
    assert "Of 3 figures in both files, 1 are the same" in words
    assert "as a whole:" not in words


def test_the_command_names_benchmarks_that_changed_as_a_whole(tmp_path: Path) -> None:
    files = tmp_path / "a.json", tmp_path / "b.json"
    for file, value in zip(files, (1.0, 2.0), strict=True):
        figures = {f"{letter}_ms": [value] * 3 for letter in "abcde"}
        file.write_text(json.dumps(make_run(**figures).as_dict()))
    shown = CliRunner().invoke(commands, ["bench", "compare", *map(str, files)])
    assert "persistent as a whole: 0.50x" in shown.output and "Slower" not in shown.output


def test_files_without_common_figures_are_named(tmp_path: Path) -> None:
    files = tmp_path / "a.json", tmp_path / "b.json"
    for file, name in zip(files, ("a_ms", "b_ms"), strict=True):
        file.write_text(json.dumps(make_run(**{name: [1, 2, 3]}).as_dict()))
    shown = CliRunner().invoke(commands, ["bench", "compare", *map(str, files)])
    assert "no figure in common" in shown.output
