"""The benchmark of buckets, with batches that take no time: what it measures and what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("wgpu")

from gpu_executor.bench import buckets
from gpu_executor.bench.buckets import Made, Opened, Scenario, Spread
from gpu_executor.cli import bench_buckets as tables
from gpu_executor.cli.main import commands

SMALL = (Scenario("3 of 1-3", (3, 1, 2)), Scenario("100/20,000", (100, 20_000), 1.35))


@pytest.fixture(scope="module")
def on() -> Iterator[Opened]:
    with buckets.opened() as opened:
        yield opened


def test_every_way_is_timed_in_every_turn_and_the_executor_makes_nothing(on: Opened) -> None:
    rows = list(buckets.rows(on, SMALL, budget=0, least=3, most=3))
    assert [(row.name, row.sizes, row.turns) for row in rows] == [
        ("3 of 1-3", (3, 1, 2), 3),
        ("100/20,000", (100, 20_000), 3),
    ]
    for row in rows:
        assert row.made == Made(0, 0, 0)
        assert min(row.no_caches_ms, row.pipelines_ms, row.buckets_ms, row.public_ms) > 0
        assert 0 < row.over_pipelines.low <= row.over_pipelines.median <= row.over_pipelines.high
        assert min(row.parts.making_ms, row.parts.submitting_ms, row.parts.reading_ms) > 0
        assert 1 <= row.submissions <= len(row.sizes)


def test_single_tasks_are_timed_in_both_ways_of_waiting(on: Opened) -> None:
    singles = buckets.singles(on, budget=0, turns=20)
    assert [(each.private, each.aim) for each in singles] == [(True, 0.6), (False, 0.95)]
    for each in singles:
        assert each.made.total == 0
        assert each.ratio == pytest.approx(each.median_us / each.plain_us)
        assert each.p95_us >= each.median_us and each.tail >= 1


def test_plain_programs_add(on: Opened) -> None:
    jobs = [(np.arange(n, dtype=np.uint32), np.full(n, 2**32 - 1, np.uint32)) for n in (1, 500)]
    for results in (on.plain.no_caches(jobs), on.plain.pipelines(jobs)):
        for (a, b), result in zip(jobs, results, strict=True):
            np.testing.assert_array_equal(result, a + b)
    np.testing.assert_array_equal(on.plain.single(jobs[1])(), sum(jobs[1]))


def test_wrong_sums_are_noticed(on: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on.plain, "pipelines", lambda jobs: [a for a, _ in jobs])
    with pytest.raises(AssertionError, match="wrong sums of 3 elements"):
        list(buckets.rows(on, SMALL[:1], budget=0, least=2, most=2))


def test_scattered_sizes_are_the_same_every_time() -> None:
    sizes = buckets.SCENARIOS[-1].sizes
    assert len(sizes) == 100 and len(set(sizes)) > 90
    assert min(sizes) >= 1 << 10 and max(sizes) <= 200 << 10
    assert sizes == buckets._scattered(100, 1 << 10, 200 << 10)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Spread(1.1, 1.2, 1.3), "1.20x as fast"),
        (Spread(0.9, 1.0, 1.1), "about even"),
        (Spread(0.7, 0.8, 0.9), "lose"),
    ],
)
def test_a_gain_is_one_where_its_quartiles_are(gain: Spread, words: str) -> None:
    assert words in tables._verdict(gain)


def test_the_command_prints_tables_with_words_and_writes_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows, singles = buckets.rows, buckets.singles
    monkeypatch.setattr(buckets, "rows", lambda on: rows(on, SMALL, budget=0, least=2, most=2))
    monkeypatch.setattr(buckets, "singles", lambda on: singles(on, budget=0, turns=20))
    file = tmp_path / "figures.json"
    shown = CliRunner().invoke(commands, ["bench", "buckets", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "100/20,000" in shown.output and "single task, private waiting" in shown.output
    assert "made in steady state: 0" in shown.output
    written = json.loads(file.read_text())
    assert set(written["device"]) == {"name", "kind", "backend", "wgpu"}
    assert [row["sizes"] for row in written["rows"]] == [[3, 1, 2], [100, 20_000]]
    assert [each["private"] for each in written["singles"]] == [True, False]
