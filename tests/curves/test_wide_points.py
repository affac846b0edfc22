"""Arrays of points larger than a binding: every operation, against the host."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from tests.support.curves_under_test import (
    SMALL,
    SMALL_QUADRATIC,
    draw_points,
    encode_points,
    list_points,
)
from tests.support.device_arrays import get_device_memory, limit_bindings

Gpu = gx.PersistentVulkanBackend
CURVE = SMALL[4]
COUNT = 333

both_curves = pytest.mark.parametrize("curve", [CURVE, SMALL_QUADRATIC], ids=["prime", "extension"])


@pytest.fixture(autouse=True)
def limited(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binding has 65 points of a small curve in XYZZ form, or 32."""
    limit_bindings(monkeypatch, gpu, 65 * 16, alignment=16)


def draw(curve: Curve, seed: int, count: int = COUNT) -> PointArray:
    """Points of a small curve, the point at infinity among them."""
    own = draw_points(curve, 30, seed=1)
    if curve is CURVE:
        own = encode_points(CURVE, list_points(CURVE))
    pool = curve.concatenate([own, curve.infinity(1)])
    picked = random.Random(seed)
    return pool[[picked.randrange(pool.size) for _ in range(count)]]


def check(found: PointArray, expected: PointArray) -> None:
    assert found.on_device
    assert found.tolist() == expected.tolist()


@both_curves
def test_the_group_law(gpu: Gpu, curve: Curve) -> None:
    p, q = draw(curve, 1), draw(curve, 2)
    x, y = gpu.to_device(p), gpu.to_device(q)
    check(x + y, p + q)
    check(x - y, p - q)
    check(x.double(), p.double())
    check((x + y) + (x - y), p.double())
    check(x[::-1] + y, p[::-1] + q)
    check(x + y[5], p + q[5])
    rows = (9, COUNT // 9)
    check(x.reshape(rows) + y[: rows[1]], p.reshape(rows) + q[: rows[1]])
    check(x.reshape(rows).T - y.reshape(rows).T, p.reshape(rows).T - q.reshape(rows).T)


@both_curves
def test_multiples(gpu: Gpu, curve: Curve) -> None:
    """One scalar, one point, and a scalar for each point, on the host and on the device."""
    p, draws = draw(curve, 1), random.Random(1)
    scalars = [draws.randrange(curve.order) for _ in range(COUNT)]
    x, there = gpu.to_device(p), gpu.to_device(curve.scalar_field.encode(scalars))
    check(x * 5, p * 5)
    check(x[7] * scalars, p[7] * scalars)
    check(x * scalars, p * scalars)
    check(x * there, p * scalars)
    check(x[7] * there, p[7] * scalars)


def test_one_point_that_repeats_is_not_expanded(gpu: Gpu) -> None:
    """The kernel repeats it: it converts one point for each part."""
    device = get_device_memory(gpu)
    point = gpu.to_device(draw(CURVE, 1, 1))
    scalars = gpu.to_device(CURVE.scalar_field.encode([3] * COUNT).in_form("canonical"))
    made: list[int] = []
    empty = device.empty

    def note_size(shape: tuple[int, ...], dtype: np.dtype[np.uint32]) -> gx.DeviceArray:
        array = empty(shape, dtype)
        made.append(array.nbytes)
        return array

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "empty", note_size)
        found = point * scalars
    result = COUNT * 16
    assert found.size == COUNT and made.count(result) == 1 and made.count(8) == 6
    assert sum(made) <= 2 * result + 6 * 8 + scalars.data.nbytes


@both_curves
def test_conversions_and_comparisons(gpu: Gpu, curve: Curve) -> None:
    p, q = draw(curve, 1), draw(curve, 2)
    x, y = gpu.to_device(p), gpu.to_device(q)
    sums, expected = x + y, p + q
    check(-x, -p)
    check(-sums, -expected)
    check(sums.affine(), expected)
    assert sums.affine().form == "affine" and x.affine() is x
    assert (x == y).tolist() == (p == q).tolist()
    assert (sums == y + x).all()
    assert (sums == x).tolist() == (expected == p).tolist()
    assert x.is_infinity().tolist() == p.is_infinity().tolist()
    assert (x - y).is_infinity().tolist() == (p - q).is_infinity().tolist()
    assert x.is_on_curve().all() and sums.is_on_curve().all()
    assert x.in_subgroup().tolist() == p.in_subgroup().tolist()


@both_curves
def test_sums(gpu: Gpu, curve: Curve) -> None:
    """Of rows longer than a binding, and of more rows than a binding has."""
    p = draw(curve, 1)
    x = gpu.to_device(p)
    check(x.sum(), p.sum())
    check((x + x).sum(), (p + p).sum())
    for shape in ((3, 111), (111, 3), (37, 9)):
        for axis in (0, 1):
            found = x.reshape(shape).sum(axis=axis)
            check(found, p.reshape(shape).sum(axis=axis))


def test_graphs_record_parts(gpu: Gpu) -> None:
    x = gpu.to_device(draw(CURVE, 1))
    with gpu.graph(x) as graph:
        y = ((x + x[::-1]) * 3 - x).affine()
        total = x.sum()
    for seed in range(2, 4):
        p = draw(CURVE, seed)
        graph(gpu.to_device(p))
        check(y, (p + p[::-1]) * 3 - p)
        check(total, p.sum())
