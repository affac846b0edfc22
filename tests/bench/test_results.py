"""Files of results: their series, what is read back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpu_executor.bench.measurement import MeasuredRows
from gpu_executor.bench.results import (
    BenchmarkResult,
    BenchmarkRun,
    Series,
    describe_environment,
    list_series,
    read_run,
    to_plain,
)
from gpu_executor.bench.sampled import Sampled
from gpu_executor.errors import SettingsError
from gpu_executor.vulkan.instance import find_devices
from tests.support.pages import REPOSITORY, parse_blocks, run_blocks


@dataclass(frozen=True)
class Inner:
    average_ms: float
    note: str


@dataclass(frozen=True)
class Example:
    elements: int
    host_visible: Inner
    stages_ms: dict[str, float]
    speed_up: float
    plan: str
    parts: list[Inner]


ROW = Example(
    64,
    Inner(Sampled.median([1.0, 2.0, 3.0]), "text"),
    {"upload": 0.5},
    Sampled.median([2.0, 4.0]),
    "two chunks",
    [Inner(7.0, "first"), Inner(8.0, "second")],
)


def make_series(**changes: Any) -> Series:
    given = Series("rows", "ms", (("elements", 64),), "ms", 2.0, (1.0, 2.0, 3.0))
    return dataclasses.replace(given, **changes)


def test_tables_have_a_series_for_every_figure() -> None:
    found = {
        (each.table, each.figure, each.key): each for each in list_series(to_plain({"rows": [ROW]}))
    }
    key = (("elements", 64),)
    assert list(found) == [
        ("rows", "host_visible.average_ms", key),
        ("rows", "stages_ms.upload", key),
        ("rows", "speed_up", key),
        ("rows.parts", "average_ms", key),
        ("rows.parts", "average_ms", (*key, ("number", 2))),
    ]
    average = found["rows", "host_visible.average_ms", key]
    assert (average.unit, average.value, average.samples) == ("ms", 2, (1, 2, 3))
    assert found["rows", "speed_up", key].unit == "x"
    assert found["rows", "stages_ms.upload", key].samples == (0.5,)


@pytest.mark.parametrize(
    ("row", "unit"),
    [
        ({"bytes_per_second": 1.0}, "B/s"),
        ({"additions_per_second": 1.0}, "/s"),
        ({"chunk_us": 1.0}, "us"),
        ({"products_in_chains": 1.0}, "/s"),
        ({"measured": 1.0, "unit": "ms"}, "ms"),
    ],
)
def test_the_name_of_a_column_says_its_unit(row: dict[str, Any], unit: str) -> None:
    assert [each.unit for each in list_series({"rows": [row]})] == [unit]


def test_targets_and_timelines_have_no_series() -> None:
    tables = {"aims": [{"measured": 1.0, "unit": "ms"}], "timelines": [{"begin_us": 1.0}]}
    assert list(list_series(tables)) == []


def test_the_code_of_the_page_reads_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = find_devices()[0]
    run = BenchmarkRun(describe_environment(device))
    run.benchmarks["persistent"] = BenchmarkResult.of(MeasuredRows(device, [ROW]))
    (tmp_path / "results.json").write_text(json.dumps(run.as_dict()))
    monkeypatch.chdir(tmp_path)
    page = REPOSITORY / "docs" / "benchmarks.md"
    run_blocks(page, parse_blocks(page.read_text()), {})
    assert "rows: host_visible.average_ms (elements 64) 2.0 ms 3" in capsys.readouterr().out


def test_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    device = find_devices()[0]
    run = BenchmarkRun(describe_environment(device), quick=True)
    run.benchmarks["persistent"] = BenchmarkResult.of(MeasuredRows(device, [ROW]), 1.5)
    run.benchmarks["kzg"] = BenchmarkResult.without("skipped", "not installed: eth_account")
    file = tmp_path / "results.json"
    file.write_text(json.dumps(run.as_dict()))
    found = read_run(file)
    assert found.as_dict() == json.loads(file.read_text())
    assert found.benchmarks["persistent"].series == run.benchmarks["persistent"].series
    assert found.benchmarks["kzg"].reason == "not installed: eth_account"
    assert found.device["uuid"] == device.uuid and found.quick
    machine = found.environment["machine"]
    assert machine["cores"] >= 1 and machine["memory_bytes"] > 1 << 20
    assert machine["packages"]["numpy"]
    assert found.environment["settings"]["validation"] in (True, False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "has no results of benchmarks"),
        ('{"format": "gpu-executor bench", "format_version": 99}', "version 99 of the format"),
        ('{"format": "gpu-executor bench", "format_version": 1}', "is damaged"),
        (
            '{"format": "gpu-executor bench", "format_version": 1, "benchmarks": {"a": []}}',
            "is damaged",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(SettingsError, match=words):
        read_run(file)


def test_quartiles_are_those_of_the_samples() -> None:
    assert make_series(samples=(1.0, 2.0, 3.0, 4.0, 5.0)).quartiles == (2, 4)
    assert make_series(samples=(2.0,)).quartiles == (2, 2)


def test_nine_of_ten_samples_are_within_the_spread() -> None:
    assert make_series(samples=tuple(map(float, range(101)))).spread == (5, 95)
    assert make_series(samples=(2.0,)).spread == (2, 2)
