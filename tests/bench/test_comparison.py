"""Comparison of two runs: a figure changed if its quartiles in both runs do not overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpu_executor.bench.comparison import compare_runs
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.bench.sampled import Sampled
from gpu_executor.cli.main import commands
from gpu_executor.vulkan.instance import find_devices


def make_run(**figures: Any) -> BenchmarkRun:
    """A run of one benchmark whose only row has these figures, each the median of samples."""
    device = find_devices()[0]
    row = {name: Sampled.median(samples) for name, samples in figures.items()}
    run = BenchmarkRun(describe_environment(device))
    run.benchmarks["persistent"] = BenchmarkResult.of(device, {"rows": [{"elements": 64, **row}]})
    return run


@pytest.mark.parametrize(
    ("figure", "before", "after", "verdict", "speed"),
    [
        ("call_ms", [1.0, 1.1, 1.2], [2.0, 2.2, 2.4], "slower", 0.5),
        ("call_ms", [2.0, 2.2, 2.4], [1.0, 1.1, 1.2], "faster", 2.0),
        ("call_ms", [1.0, 2.0, 3.0], [2.0, 3.0, 4.0], "same", 2 / 3),
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


def test_files_without_common_figures_are_named(tmp_path: Path) -> None:
    files = tmp_path / "a.json", tmp_path / "b.json"
    for file, name in zip(files, ("a_ms", "b_ms"), strict=True):
        file.write_text(json.dumps(make_run(**{name: [1, 2, 3]}).as_dict()))
    shown = CliRunner().invoke(commands, ["bench", "compare", *map(str, files)])
    assert "no figure in common" in shown.output
