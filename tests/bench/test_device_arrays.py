"""The benchmark of NumPy's arithmetic on device arrays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpu_executor.bench import device_arrays
from gpu_executor.cli.commands import commands


def test_every_operation_is_timed_beside_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = {each.name: each for each in device_arrays.WORKS}
    chosen = tuple(works[name] for name in ("a.copy()", "a + b", "a.sum()"))
    monkeypatch.setattr(device_arrays, "WORKS", chosen)
    file = tmp_path / "arrays.json"
    shown = CliRunner().invoke(
        commands, ["bench", "arrays", "--log-count", "10", "--json", str(file)]
    )
    assert shown.exit_code == 0, shown.output
    rows = json.loads(file.read_text())["benchmarks"]["arrays"]["tables"]["rows"]
    assert [row["operation"] for row in rows] == ["a.copy()", "a + b", "a.sum()"]
    for row, bytes_each in zip(rows, (8, 12, 4), strict=True):
        assert row["bytes_per_second"] == pytest.approx(bytes_each * 1024 / row["ms"] * 1e3)
        assert row["share_of_copy"] == row["bytes_per_second"] / rows[0]["bytes_per_second"]
