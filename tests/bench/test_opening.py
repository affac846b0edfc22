"""The benchmark of opening: it measures processes in turns, beside an instance and a
device alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import gpu_executor as gx
from gpu_executor.bench import opening
from gpu_executor.errors import GpuError


@pytest.mark.slow
def test_processes_are_measured_in_turns() -> None:
    rows = opening.measure_opening(gx.devices()[0], rounds=1)
    assert [row.what for row in rows] == [
        "instance and device alone",
        "GpuExecutor()",
        'GpuExecutor("vulkan")',
    ]
    alone, *opened = rows
    assert alone.together_ms >= alone.instance_ms + alone.device_ms > 0
    for row in opened:
        assert row.together_ms >= row.import_ms + row.open_ms + row.call_ms - 1e-6
        assert row.open_ms > row.instance_ms + row.devices_ms + row.device_ms > 0
        assert row.numpy_ms > 0
    assert [row.printed for row in rows] == [""] * 3


def test_medians_of_all_rounds_but_the_first_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def run(
        program: str, arguments: Sequence[str], _environment: object
    ) -> tuple[dict[str, float], str]:
        (argument,) = arguments
        turns.append(argument)
        number = (len(turns) - 1) // 3
        if program is opening.CREATE_ALONE:
            return {"together": 0.050 if number else 9.0}, ""
        seconds = {"auto": 0.190, "vulkan": 0.210}[argument] if number else 9.0
        return {"together": seconds + number % 2 / 1e3, "numpy": 0.1}, "a warning"

    monkeypatch.setattr(opening, "_run_process", run)
    device = gx.devices()[0]
    rows = opening.measure_opening(device, rounds=3)
    assert turns == [device.name, "auto", "vulkan"] * 4
    assert [row.together_ms for row in rows] == pytest.approx([50.0, 191.0, 211.0])
    assert [row.printed for row in rows] == ["", "a warning", "a warning"]
    targets = opening.check_targets(rows)
    assert [each.measured for each in targets] == pytest.approx([0.141, 0.241, 0.161, 0.261])
    assert [each.met for each in targets] == [True, False, False, False]


@pytest.mark.slow
def test_the_first_msms_are_checked_and_have_targets() -> None:
    rows = opening.measure_first_msms(["BN254_G1"], [5], rounds=1)
    assert [row.what for row in rows] == [
        "MSM, BN254_G1, 2^5, no pipelines on disk",
        "MSM, BN254_G1, 2^5, pipelines on disk",
    ]
    targets = opening.check_msm_targets(rows)
    assert [each.measured for each in targets] == [row.call_ms / 1e3 for row in rows]
    assert [each.met for each in targets] == [rows[0].call_ms <= 2000, rows[1].call_ms <= 300]


def test_a_process_that_fails_is_an_error_with_its_message() -> None:
    with pytest.raises(GpuError, match=r"a measuring process failed:[^$]*ZeroDivisionError"):
        opening._run_process("1 / 0", (), {})
