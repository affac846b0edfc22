"""The benchmark of Vulkan and WebGPU: it checks results, and its targets are ratios."""

from __future__ import annotations

import pytest

from gpu_executor.bench import interfaces
from gpu_executor.bench.interfaces import InterfaceTimes
from tests.support.curves_under_test import SMALL


@pytest.mark.slow
def test_every_operation_is_timed_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "LENGTH", 1 << 4)
    monkeypatch.setattr(interfaces, "POINTS", 8)
    monkeypatch.setattr(interfaces, "ROUNDS", 1)
    monkeypatch.setattr(interfaces, "BN254_G1", SMALL[2])  # its pipelines compile quickly
    _, rows = interfaces.measure_interfaces()
    assert len({row.operation for row in rows}) == len(rows) >= 5
    assert all(row.vulkan_ms > 0 and row.webgpu_ms > 0 for row in rows)


def test_targets_are_upper_limits_of_ratios() -> None:
    rows = [InterfaceTimes("a", 2.0, 3.0, 1.5), InterfaceTimes("b", 1.0, 1.6, 1.5)]
    rows.append(InterfaceTimes("c", 1.0, 9.0, None))
    assert [each.met for each in interfaces.check_targets(rows)] == [True, False]
