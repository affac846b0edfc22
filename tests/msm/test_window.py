"""The window of every kind of MSM: that with the fewest additions, counted by hand here."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.msm.host import HostMsmPlan
from gpu_executor.msm.plan import count_table_bytes, plan_msm, plan_sets, plan_tables

G1, BITS = gx.curves.BLS12_381_G1.key, 255
SIZES = (33, 1000, 1 << 14, 1 << 18, 1 << 22)


@pytest.fixture(scope="module")
def cpu() -> DeviceInfo:
    with gx.CpuBackend() as backend:
        return backend.device


def count_windows(bits: int, window: int) -> int:
    """Signed digits: a carry out of the topmost bit needs room."""
    return bits // window + 1


@pytest.mark.parametrize("bits", [1, 5, 31, BITS])
@pytest.mark.parametrize("points", SIZES)
def test_on_the_host_all_additions_take_equally_long(points: int, bits: int) -> None:
    costs = {each: count_windows(bits, each) * (points + (1 << each)) for each in range(2, 17)}
    assert HostMsmPlan(points, 1, bits).window_bits == min(costs, key=costs.__getitem__)


@pytest.mark.parametrize("points", SIZES)
def test_on_a_device_additions_of_buckets_take_longer_than_mixed_ones(points: int) -> None:
    costs = {}
    for window in range(2, 23):
        windows = count_windows(BITS, window)
        is_grouped = windows * points < 1 << 18
        costs[window] = windows * (points + (1 << window) * (1 if is_grouped else 3.4))
    assert plan_msm(points, 1, BITS).window_bits == min(costs, key=costs.__getitem__)


def test_tables_that_a_call_makes_count_their_doublings() -> None:
    costs = {}
    for window in range(2, 23):
        windows = count_windows(BITS, window)
        rows = -(-windows // 2)
        costs[window] = windows * 1024 + rows * (1 << window) + 2 * rows * window * 2900
    assert plan_msm(1024, 1, BITS, tables=2).window_bits == min(costs, key=costs.__getitem__) == 8


@pytest.mark.parametrize("most", [1, 5, 100])
@pytest.mark.parametrize("kind", ["cpu", "discrete"])
@pytest.mark.parametrize("sets", [None, 4])
def test_with_tables_windows_share_buckets(
    cpu: DeviceInfo, most: int, kind: Literal["cpu", "discrete"], sets: int | None
) -> None:
    """As many tables as the memory has room for; all windows of one table have buckets."""
    points, info = 64, dataclasses.replace(cpu, kind=kind)
    addition, widest = (1.0 if sets and kind == "cpu" else 3.4), (12 if sets else 22)
    costs = {}
    for window in range(2, widest + 1):
        windows = count_windows(BITS, window)
        rows = -(-windows // min(most, windows))
        costs[window, -(-windows // rows)] = windows * points + rows * (1 << window) * addition
    memory = most * count_table_bytes(G1, points * (sets or 1))
    if sets is None:
        plan = plan_tables(G1, points, info, None, memory)
    else:
        plan = plan_sets(G1, points, sets, info, memory)
    assert (plan.window_bits, plan.tables) == min(costs, key=costs.__getitem__)


def test_a_caller_chooses_the_window_of_a_table(cpu: DeviceInfo) -> None:
    plan = plan_tables(G1, 64, cpu, 9, 5 * count_table_bytes(G1, 64))
    assert (plan.window_bits, plan.windows, plan.tables, plan.table_windows) == (9, 29, 5, 6)
    with pytest.raises(ArgumentTypeError, match="window=23: a window has 2 to 22 bits"):
        plan_tables(G1, 64, cpu, 23, None)
