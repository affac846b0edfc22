"""Tables of multiples of fixed points: the same sums as without, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import PointTable
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from tests.support.curves_under_test import OVER_MERSENNE31

COUNT = 9
Gpu = gx.PersistentVulkanBackend


@pytest.fixture
def curve() -> gx.Curve:
    return OVER_MERSENNE31


@pytest.fixture
def table(gpu: Gpu, curve: gx.Curve) -> PointTable:
    points = curve.generator * [3**each for each in range(COUNT - 1)]
    points = curve.concatenate([points, curve.infinity((1,))])
    return curve.precompute(gpu.to_device(points), window=4, memory=300)


def draw_scalars(curve: gx.Curve, *shape: int) -> list[list[int]]:
    draw = np.random.default_rng(shape[0])
    return [
        [int.from_bytes(draw.bytes(40), "big") % curve.order for _ in range(shape[1])]
        for _ in range(shape[0])
    ]


def compute_sums(curve: gx.Curve, rows: list[list[int]]) -> gx.curves.PointArray:
    return curve.generator * [
        sum(k * 3**each for each, k in enumerate(row[:-1])) % curve.order for row in rows
    ]


def test_sums_with_a_table_are_the_sums_of_its_points(curve: gx.Curve, table: PointTable) -> None:
    """300 bytes hold 4 tables, which serve two of the 8 windows each."""
    assert (table.plan.windows, table.plan.tables, table.plan.table_windows) == (8, 4, 2)
    assert table.nbytes <= 300
    rows = draw_scalars(curve, 4, COUNT)
    rows[1] = [0] * COUNT
    rows[2] = [curve.order - 1] * COUNT
    found = curve.msm(table, rows)
    assert found.shape == (4,) and found.on_device
    assert (found.to_host() == compute_sums(curve, rows)).all()
    assert curve.msm(table, rows[0]).shape == ()


def test_a_table_comes_back_from_its_file(
    gpu: Gpu, curve: gx.Curve, table: PointTable, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    table.save(path)
    points = curve.generator * [3**each for each in range(COUNT - 1)]
    points = gpu.to_device(curve.concatenate([points, curve.infinity((1,))]))
    loaded = curve.load_table(path, points)
    assert repr(loaded) == repr(table)
    rows = draw_scalars(curve, 2, COUNT)
    assert (curve.msm(loaded, rows).to_host() == compute_sums(curve, rows)).all()
    with pytest.raises(GpuError, match="a table of other points"):
        curve.load_table(path, gpu.to_device(curve.generator * list(range(1, COUNT + 1))))
    content = path.read_bytes()
    digit = f'"window_bits": {table.plan.window_bits}'.encode()
    for damaged in (
        content[:-1] + b"\xff",
        content[:-8],
        content.replace(digit, digit[:-1] + b"7"),
    ):
        assert damaged != content
        path.write_bytes(damaged)
        with pytest.raises(GpuError, match="damaged"):
            curve.load_table(path, points)
    path.write_bytes(b"{}")
    with pytest.raises(GpuError, match="not a point table"):
        curve.load_table(path, points)


def test_what_has_no_table_is_refused(gpu: Gpu, curve: gx.Curve, table: PointTable) -> None:
    points = curve.generator * [1, 2]
    with pytest.raises(ArgumentTypeError, match="on a device"):
        curve.precompute(points)
    with pytest.raises(ArgumentTypeError, match="memory=10: one table"):
        curve.precompute(gpu.to_device(points), memory=10)
    with pytest.raises(ArgumentTypeError, match="window=1"):
        curve.precompute(gpu.to_device(points), window=1)
    with pytest.raises(ArgumentTypeError, match=r"window is 3\.5; it must be a whole number"):
        curve.precompute(gpu.to_device(points), window=3.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="the table has 9 points"):
        curve.msm(table, [1, 2])
    with pytest.raises(ArgumentTypeError, match="points of another curve"):
        gx.curves.BN254_G1.msm(table, [1] * COUNT)
