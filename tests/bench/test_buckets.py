"""The benchmark of buckets, with batches that take no time: what it measures and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("wgpu")

from gpu_executor.bench import batch, buckets
from gpu_executor.bench.bucket_figures import Made, Spread
from gpu_executor.bench.buckets import Opened, Scenario
from gpu_executor.bench.plain_webgpu import Job
from gpu_executor.call import Array
from gpu_executor.cli import bench_buckets as tables
from gpu_executor.cli.main import commands

SMALL = (Scenario("3 of 4-12", (12, 4, 8)), Scenario("100/20,000", (100, 20_000), 1.35))


@pytest.fixture(scope="module")
def on() -> Iterator[Opened]:
    with buckets.opened() as opened:
        yield opened


def test_every_way_is_timed_in_every_turn_and_the_executor_makes_nothing(on: Opened) -> None:
    rows = list(buckets.rows(on, SMALL, budget=0, least=3, most=3))
    assert [(row.name, row.sizes, row.turns) for row in rows] == [
        ("3 of 4-12", (12, 4, 8), 3),
        ("100/20,000", (100, 20_000), 3),
    ]
    for row in rows:
        assert row.made == Made(0, 0, 0)
        assert min(row.no_caches_ms, row.pipelines_ms, row.buckets_ms, row.public_ms) > 0
        assert 0 < row.over_pipelines.low <= row.over_pipelines.median <= row.over_pipelines.high
        assert min(row.parts.making_ms, row.parts.submitting_ms, row.parts.reading_ms) > 0
        assert 1 <= row.submissions <= len(row.sizes)


def test_single_tasks_are_timed_in_both_ways_of_waiting(on: Opened) -> None:
    singles = buckets.singles(on, budget=0, turns=3)
    assert [(each.private, each.aim) for each in singles] == [(True, 0.6), (False, 0.95)]
    for each in singles:
        assert each.made.total == 0
        assert each.ratio == pytest.approx(each.median_us / each.plain_us)
        assert each.p95_us >= each.median_us and each.tail >= 1


def test_the_run_up_is_called_in_every_turn_and_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def clock() -> float:
        return float(sum(range(len(calls) + 1)))  # the n-th call takes n seconds

    monkeypatch.setattr(batch, "time", SimpleNamespace(perf_counter=clock))
    functions = [lambda: calls.append("a"), lambda: calls.append("b")]
    turns = batch.in_turns(functions, budget=0, least=2, most=2, run_up=2, counted=3)
    # After one call of each: a at 3 to 7, b at 8 to 12; then b at 13 to 17, a at 18 to 22.
    assert list(turns) == [[5, 10], [6, 11], [7, 12], [20, 15], [21, 16], [22, 17]]
    assert "".join(calls) == "ab" + "aaaaabbbbb" + "bbbbbaaaaa"


def test_batches_have_a_run_up_call_in_every_turn(
    on: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def pipelines(jobs: list[Job]) -> list[Array]:
        calls.append(len(calls) + 1)
        on.plain.parts.append((calls[-1], calls[-1], calls[-1]))
        return [a + b for a, b in jobs]

    monkeypatch.setattr(on.plain, "pipelines", pipelines)
    (row,) = buckets.rows(on, SMALL[:1], budget=0, least=2, most=2)
    assert row.turns == 2
    assert len(calls) == 1 + 2 * 2 + 1  # the first before all turns, the last is checked
    assert row.parts.making_ms == 1e3 * (3 + 5) / 2


def test_single_tasks_run_in_a_row_of_which_the_first_do_not_count(
    on: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    single, medians = on.plain.single, batch.medians
    calls: list[Job] = []
    counted: list[list[float]] = []

    def watched(job: Job) -> Callable[[], Array]:
        add = single(job)

        def called() -> Array:
            calls.append(job)
            return add()

        return called

    def seen(turns: list[list[float]]) -> list[float]:
        counted.extend(turns)
        return medians(turns)

    monkeypatch.setattr(on.plain, "single", watched)
    monkeypatch.setattr(buckets, "medians", seen)
    buckets.singles(on, budget=0, turns=3)
    in_a_row = buckets.SINGLE_RUN_UP + buckets.SINGLE_COUNTED
    assert len(calls) == buckets.CALLS_BEFORE + 1 + 3 * in_a_row
    assert len(counted) == 3 * buckets.SINGLE_COUNTED


def test_plain_programs_add(on: Opened) -> None:
    jobs = [(np.arange(n, dtype=np.uint32), np.full(n, 2**32 - 1, np.uint32)) for n in (4, 500)]
    for results in (on.plain.no_caches(jobs), on.plain.pipelines(jobs)):
        for (a, b), result in zip(jobs, results, strict=True):
            np.testing.assert_array_equal(result, a + b)
    np.testing.assert_array_equal(on.plain.single(jobs[1])(), sum(jobs[1]))


def test_wrong_sums_are_noticed(on: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on.plain, "pipelines", lambda jobs: [a for a, _ in jobs])
    with pytest.raises(AssertionError, match="wrong sums of 12 elements"):
        list(buckets.rows(on, SMALL[:1], budget=0, least=2, most=2))


def test_scattered_sizes_are_the_same_every_time() -> None:
    sizes = buckets.SCENARIOS[-1].sizes
    assert len(sizes) == 100 and len(set(sizes)) > 90
    assert min(sizes) >= 1 << 10 and max(sizes) <= 200 << 10
    assert sizes == buckets._scattered(100, 1 << 10, 200 << 10)


def test_buffers_that_fit_hold_whole_vectors() -> None:
    assert not any(size % 4 for scenario in buckets.SCENARIOS for size in scenario.sizes)


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
    monkeypatch.setattr(buckets, "singles", lambda on: singles(on, budget=0, turns=3))
    file = tmp_path / "figures.json"
    shown = CliRunner().invoke(commands, ["bench", "buckets", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "100/20,000" in shown.output and "single task, private waiting" in shown.output
    assert "made in steady state: 0" in shown.output
    written = json.loads(file.read_text())
    assert set(written["device"]) == {"name", "kind", "backend", "wgpu"}
    assert [row["sizes"] for row in written["rows"]] == [[12, 4, 8], [100, 20_000]]
    assert [each["private"] for each in written["singles"]] == [True, False]
