"""The benchmark of size buckets, with short batches: what it measures and what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("wgpu")

from gpu_executor.bench import buckets, timing
from gpu_executor.bench.buckets import BucketSetup, CreatedObjects, Scenario, Spread
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.webgpu_baseline import AddOperands
from gpu_executor.calls.call import Array
from gpu_executor.cli import bench_buckets
from gpu_executor.cli.commands import commands
from tests.support.benchmark_files import read_tables

SMALL = (Scenario("3 of 4-12", (12, 4, 8)), Scenario("100/20,000", (100, 20_000), 1.35))


@pytest.fixture(scope="module")
def setup() -> Iterator[BucketSetup]:
    with buckets.open_setup() as opened:
        yield opened


def test_every_program_is_timed_and_the_executor_creates_nothing(setup: BucketSetup) -> None:
    rows = list(buckets.measure_batches(setup, SMALL, budget=0, min_rounds=3, max_rounds=3))
    assert [(row.name, row.sizes, row.turns) for row in rows] == [
        ("3 of 4-12", (12, 4, 8), 3),
        ("100/20,000", (100, 20_000), 3),
    ]
    for row in rows:
        assert row.made == CreatedObjects(0, 0, 0)
        assert min(row.no_caches_ms, row.pipelines_ms, row.buckets_ms, row.public_ms) > 0
        gain = row.over_pipelines
        assert 0 < gain.low <= gain.high
        assert gain.ratio == pytest.approx(row.pipelines_ms / row.buckets_ms)
        assert min(row.parts.making_ms, row.parts.submitting_ms, row.parts.reading_ms) > 0
        assert 1 <= row.submissions <= len(row.sizes)


def test_single_tasks_are_timed_on_both_queues(setup: BucketSetup) -> None:
    singles = buckets.measure_single_tasks(setup, budget=0, max_rounds=3)
    assert [(each.private, each.aim) for each in singles] == [(True, 0.6), (False, 0.95)]
    for each in singles:
        assert each.made.total == 0
        assert each.ratio == pytest.approx(each.median_us / each.plain_us)
        assert each.p95_us >= each.median_us and each.tail >= 1


def test_warm_up_calls_are_made_in_every_round_and_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def clock() -> float:
        return float(sum(range(len(calls) + 1)))  # the n-th call takes n seconds

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=clock))
    functions = [lambda: calls.append("a"), lambda: calls.append("b")]
    rounds = timing.time_interleaved(
        functions, budget=0, min_rounds=2, max_rounds=2, warm_up_calls=2, timed_calls=3
    )
    # After one call of each: a at 3 to 7, b at 8 to 12; then b at 13 to 17, a at 18 to 22.
    assert list(rounds) == [[5, 10], [6, 11], [7, 12], [20, 15], [21, 16], [22, 17]]
    assert "".join(calls) == "ab" + "aaaaabbbbb" + "bbbbbaaaaa"


def test_batches_have_a_warm_up_call_in_every_round(
    setup: BucketSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def run_with_pipeline(tasks: list[AddOperands]) -> list[Array]:
        calls.append(len(calls) + 1)
        setup.baseline.phases.append((calls[-1], calls[-1], calls[-1]))
        return [a + b for a, b in tasks]

    monkeypatch.setattr(setup.baseline, "run_with_pipeline", run_with_pipeline)
    (row,) = buckets.measure_batches(setup, SMALL[:1], budget=0, min_rounds=2, max_rounds=2)
    assert row.turns == 2
    assert len(calls) == 1 + 2 * 2 + 1  # one before the first round, one to be checked
    assert row.parts.making_ms == 1e3 * (3 + 5) / 2


def test_the_first_calls_in_a_row_of_single_tasks_are_not_timed(
    setup: BucketSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, compute_medians = setup.baseline.prepare_single, timing.compute_medians
    calls: list[AddOperands] = []
    timed: list[list[float]] = []

    def prepare_counted(task: AddOperands) -> Callable[[], Array]:
        add = prepare(task)

        def add_counted() -> Array:
            calls.append(task)
            return add()

        return add_counted

    def keep_rounds(rounds: list[list[float]]) -> list[Sampled]:
        timed.extend(rounds)
        return compute_medians(rounds)

    monkeypatch.setattr(setup.baseline, "prepare_single", prepare_counted)
    monkeypatch.setattr(buckets, "compute_medians", keep_rounds)
    buckets.measure_single_tasks(setup, budget=0, max_rounds=3)
    in_a_row = buckets.SINGLE_WARM_UP + buckets.SINGLE_TIMED
    assert len(calls) == buckets.CALLS_BEFORE + 1 + 3 * in_a_row
    assert len(timed) == 3 * buckets.SINGLE_TIMED


def test_the_baseline_adds(setup: BucketSetup) -> None:
    baseline = setup.baseline
    tasks = [(np.arange(n, dtype=np.uint32), np.full(n, 2**32 - 1, np.uint32)) for n in (4, 500)]
    for results in (baseline.run_without_caches(tasks), baseline.run_with_pipeline(tasks)):
        for (a, b), result in zip(tasks, results, strict=True):
            np.testing.assert_array_equal(result, a + b)
    np.testing.assert_array_equal(baseline.prepare_single(tasks[1])(), sum(tasks[1]))


def test_wrong_sums_are_detected(setup: BucketSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.baseline, "run_with_pipeline", lambda tasks: [a for a, _ in tasks])
    with pytest.raises(AssertionError, match="wrong sums of 12 elements"):
        list(buckets.measure_batches(setup, SMALL[:1], budget=0, min_rounds=2, max_rounds=2))


def test_drawn_sizes_are_the_same_every_time() -> None:
    sizes = buckets.SCENARIOS[-1].sizes
    assert len(sizes) == 100 and len(set(sizes)) > 90
    assert min(sizes) >= 1 << 10 and max(sizes) <= 200 << 10
    assert sizes == buckets._draw_sizes(100, 1 << 10, 200 << 10)


def test_sizes_are_whole_vectors() -> None:
    assert not any(size % 4 for scenario in buckets.SCENARIOS for size in scenario.sizes)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Spread(1.1, 1.2, 1.3), "1.20x as fast"),
        (Spread(0.9, 1.0, 1.1), "about even"),
        (Spread(0.7, 0.8, 0.9), "lose"),
    ],
)
def test_a_gain_is_judged_by_its_quartiles(gain: Spread, words: str) -> None:
    assert words in bench_buckets._judge_gain(gain)


def test_the_command_prints_tables_and_an_analysis_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    batches, singles = buckets.measure_batches, buckets.measure_single_tasks
    monkeypatch.setattr(
        buckets,
        "measure_batches",
        lambda setup, *_, **__: batches(setup, SMALL, budget=0, min_rounds=2, max_rounds=2),
    )
    monkeypatch.setattr(
        buckets, "measure_single_tasks", lambda setup, **_: singles(setup, budget=0, max_rounds=3)
    )
    file = tmp_path / "buckets.json"
    shown = CliRunner().invoke(commands, ["bench", "buckets", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "100/20,000" in shown.output and "single task, native queue" in shown.output
    assert "Created in steady state: 0" in shown.output
    described = json.loads(file.read_text())["device"]
    assert set(described) == {"name", "kind", "backend", "wgpu"}
    written = read_tables(file, "buckets")
    assert [row["sizes"] for row in written["rows"]] == [[12, 4, 8], [100, 20_000]]
    assert [each["private"] for each in written["singles"]] == [True, False]
