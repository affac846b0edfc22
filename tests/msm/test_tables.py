"""Tables of multiples of fixed points: the same sums as without, in memory and in files."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

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
    points = put_points(gpu, curve)
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


def write_file(path: Path, header: dict[str, Any], words: bytes) -> None:
    """Write a table whose SHA-256 is right, whatever the header says."""
    entries = sorted((name, value) for name, value in header.items() if name != "content")
    content = hashlib.sha256(json.dumps(entries).encode() + words).hexdigest()
    path.write_bytes(json.dumps(header | {"content": content}).encode().ljust(4096) + words)


def put_points(gpu: Gpu, curve: gx.Curve) -> gx.curves.PointArray:
    """The points of the table, on the device."""
    points = curve.generator * [3**each for each in range(COUNT - 1)]
    found: gx.curves.PointArray = gpu.to_device(curve.concatenate([points, curve.infinity((1,))]))
    return found


def test_headers_that_fit_no_table_are_refused_even_with_a_right_hash(
    gpu: Gpu, curve: gx.Curve, table: PointTable, tmp_path: Path
) -> None:
    path, points = tmp_path / "table", put_points(gpu, curve)
    table.save(path)
    content = path.read_bytes()
    header, words = json.loads(content[:4096]), content[4096:]
    write_file(path, header, words)
    assert path.read_bytes() == content
    wrong: dict[str, list[Any]] = {
        "tables": [0, -1, 3, 5, 8, 10**3000, True, 4.0, "4", None, [4], {}],
        "window_bits": [-1, 0, 1, 12, 22, 33, 10**9, 4.0, "4", None, []],
        "count": [0, 8, 10, -9, 9.0, "9", None],
        "points": [None, 7, [header["points"]], "00"],
        "format": ["gpu-executor point table 1", 2, None],
        "more": [1],
    }
    for name, values in wrong.items():
        for value in values:
            write_file(path, header | {name: value}, words)
            with pytest.raises(GpuError, match=r"damaged|not a point table|of other points"):
                curve.load_table(path, points)
    for name in header:
        write_file(path, {key: value for key, value in header.items() if key != name}, words)
        if name != "content":
            with pytest.raises(GpuError, match="not a point table"):
                curve.load_table(path, points)
    for other in (words[:-4], words + bytes(4), words[:-1], b"", words * 2):
        write_file(path, header, other)
        with pytest.raises(GpuError, match="damaged: its header does not fit 9 points"):
            curve.load_table(path, points)


@pytest.mark.parametrize("limit", [300, 1_000, 20_000])
def test_a_header_of_brackets_is_refused(
    gpu: Gpu, curve: gx.Curve, tmp_path: Path, limit: int
) -> None:
    path, points = tmp_path / "table", put_points(gpu, curve)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        for text in (b"[" * 4096, b"[" * 2048 + b"]" * 2048, b'{"a":' * 800, b"[[" * 3000):
            path.write_bytes(text)
            with pytest.raises(GpuError, match="not a point table"):
                curve.load_table(path, points)
    finally:
        sys.setrecursionlimit(before)


def test_random_damage_of_a_file_is_refused_in_words(
    gpu: Gpu, curve: gx.Curve, table: PointTable, tmp_path: Path
) -> None:
    path, points = tmp_path / "table", put_points(gpu, curve)
    table.save(path)
    content = path.read_bytes()
    used = len(content[:4096].rstrip())
    draw = np.random.default_rng(1)
    refused = 0
    for number in range(200):
        damaged = bytearray(content)
        for _ in range(draw.integers(1, 4)):
            at = int(draw.integers(0, len(damaged) if number % 4 == 0 else used))
            kind = draw.integers(0, 5)
            if kind == 0:
                damaged[at] ^= 1 << int(draw.integers(0, 8))
            elif kind == 1:
                damaged[at : at + 1] = draw.bytes(int(draw.integers(0, 4)))
            elif kind == 2:
                del damaged[at : at + int(draw.integers(1, 200))]
            elif kind == 3:
                damaged[at:at] = damaged[at // 2 : at // 2 + int(draw.integers(1, 60))]
            else:
                text = draw.choice(list(b'[]{}",:0-9eE.tfn\\ \xff'), 3)
                damaged[at : at + 1] = bytes(text.tolist())
        path.write_bytes(damaged)
        try:
            loaded = curve.load_table(path, points)
        except GpuError as error:
            assert str(path) in str(error)
            refused += 1
        else:  # spaces between entries, or damage that undid itself
            assert loaded.data.numpy().tobytes() == table.data.numpy().tobytes()
            assert loaded.plan == table.plan
    assert refused > 180


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
