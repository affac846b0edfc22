"""The benchmark of host times: it checks results, and its targets are for one device only."""

from __future__ import annotations

import dataclasses

import pytest

import gpu_executor as gx
from gpu_executor.bench import host_time
from gpu_executor.bench.host_time import HostTime


def test_every_operation_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_time, "TRANSFORMED", 1 << 8)
    device, rows = host_time.measure_host_times()
    named = {row.operation: row.us for row in rows}
    assert set(host_time.AIMS) < set(named)
    assert all(us > 0 for operation, us in named.items() if "more than" not in operation)
    elsewhere = dataclasses.replace(device, name="another GPU")
    assert host_time.check_targets(rows, elsewhere) == []


def test_targets_are_upper_limits(gpu: gx.PersistentVulkanBackend) -> None:
    device = dataclasses.replace(gpu.device, name="NVIDIA H200")
    rows = [HostTime("Field.mul, new result", 34.0), HostTime("run on device arrays", 41.0)]
    assert [each.met for each in host_time.check_targets(rows, device)] == [True, False]
