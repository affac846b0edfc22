"""The benchmark of GpuExecutor: what it measures, and what the command prints and writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_executor.bench import executor_jobs
from gpu_executor.bench.executor_jobs import ExecutorMeasurement
from gpu_executor.cli.commands import commands
from tests.support.benchmark_files import read_tables

MEASURED = ExecutorMeasurement(
    direct_us=50,
    run_us=60,
    submit_us=115,
    batch_ms=90,
    map_ms=100,
    one_thread=8_000,
    threads=16_000,
)


def test_every_quantity_is_measured() -> None:
    found = executor_jobs.measure_executor(jobs=20, small_jobs=5, rounds=1, budget=0.02)
    assert all(value > 0 for value in dataclasses.astuple(found))


def test_targets_are_differences_and_ratios_within_one_run() -> None:
    software, gpu = (
        executor_jobs.check_targets(MEASURED, on_gpu=on_gpu) for on_gpu in (False, True)
    )
    assert [each.measured for each in software] == [10, 65, 0.9, 2.0]
    assert [each.met for each in software] == [True, False, True, True]
    assert [each.met for each in gpu] == [True, False, True, False]


def test_the_command_prints_a_table_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executor_jobs, "measure_executor", lambda: MEASURED)
    file = tmp_path / "executor.json"
    shown = CliRunner().invoke(commands, ["bench", "executor", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "115 us" in shown.output and "16 K/s" in shown.output
    written = read_tables(file, "executor")
    assert written["calls"]["map_ms"] == 100 and len(written["aims"]) == 4
