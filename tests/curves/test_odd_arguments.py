"""Calls on points that few make, against integers, or refused in words."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError
from tests.support.curves_under_test import FILLS_LIMBS, FILLS_WORDS, OVER_MERSENNE31, SMALL

Gpu = gx.PersistentVulkanBackend
in_both_places = pytest.mark.parametrize("place", ["host", "device"])


@pytest.mark.parametrize("curve", [FILLS_WORDS, FILLS_LIMBS], ids=lambda curve: curve.name)
@pytest.mark.parametrize("window", [5, 8, 11])
def test_tables_far_apart_of_scalars_of_one_column(gpu: Gpu, curve: Curve, window: int) -> None:
    """The factor between two tables has more than 32 bits."""
    points = curve.generator * [2, 3, 5]
    point_bytes = 2 * curve.key.prime.element_bytes
    scalars = [curve.order - 1, curve.order // 3, 7]
    expected = curve.generator * (2 * scalars[0] + 3 * scalars[1] + 5 * scalars[2])
    for tables in (1, 2, 3):
        memory = tables * 3 * point_bytes
        table = curve.precompute(gpu.to_device(points), window=window, memory=memory)
        assert curve.msm(table, scalars).to_host() == expected


@in_both_places
def test_coordinates_are_copies(gpu: Gpu, place: str) -> None:
    curve = SMALL[4]
    points = curve.generator * [1, 2, 3]
    there = gpu.to_device(points) if place == "device" else points
    before = points.tolist()
    for coordinate in (there.x, there.y):
        coordinate[...] = 3
    assert there.tolist() == before and there.is_on_curve().all()


@pytest.mark.parametrize("curve", [OVER_MERSENNE31, FILLS_WORDS], ids=lambda curve: curve.name)
def test_a_row_of_integers_as_long_as_the_bytes_of_a_scalar(curve: Curve) -> None:
    count = curve.scalar_field.prime.element_bytes
    points = curve.generator * list(range(1, count + 1))
    row = np.arange(count, dtype=np.uint8)
    assert (points * row == points * list(range(count))).all()
    assert (points * row.reshape(1, -1) == points.reshape(1, -1) * list(range(count))).all()
    words = np.arange(count).astype(curve.scalar_field.prime.column_dtype)
    assert (points * words == points * list(range(count))).all()


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_windows_and_budgets_of_any_integer_type(gpu: Gpu, kind: Any) -> None:
    curve = OVER_MERSENNE31
    points = curve.generator * [1, 2, 3]
    table = curve.precompute(gpu.to_device(points), window=kind(8), memory=kind(100))
    assert curve.msm(table, [5, 6, 7]).to_host() == curve.generator * 38
    with pytest.raises(ArgumentTypeError, match=r"table\.save\(path\) writes it"):
        pickle.dumps(table)


def test_integers_in_a_matrix(gpu: Gpu) -> None:
    curve = gx.curves.SECP256K1
    points = curve.generator * [1, 2]
    matrix: Any = np.array([[3, 5], [1, 1]], np.uint64).view(np.matrix)
    for there in (points, gpu.to_device(points)):
        assert curve.msm(there, matrix).tolist() == (curve.generator * [13, 3]).tolist()


def test_axes_are_integers() -> None:
    points = OVER_MERSENNE31.generator * [1, 2]
    axis: Any
    for axis in (None, "0", (0,), 1.0, True):
        for join in (OVER_MERSENNE31.concatenate, OVER_MERSENNE31.stack):
            with pytest.raises(ArgumentTypeError, match="axis must be an integer"):
                join([points, points], axis=axis)


BOOLEANS: list[Any] = [
    True, np.True_, [True, 2], [2, True], (2, False), [2, np.True_], [[2, 3], [4, True]],
    [[True, 2], [3, 4]], ([2, 3], (4, True)), np.array([2, True], object),
    np.array([[2, 3], [np.False_, 4]], object), np.array([True, False]), np.ones((2, 2), np.bool_),
    [np.array([2, 3]), np.array([True, True])], np.array(True),
]  # fmt: skip


@in_both_places
@pytest.mark.parametrize("curve", [gx.curves.BN254_G1, OVER_MERSENNE31], ids=lambda c: c.name)
def test_booleans_are_no_scalars_wherever_they_are(gpu: Gpu, place: str, curve: Curve) -> None:
    points = curve.generator * [1, 2]
    there = gpu.to_device(points) if place == "device" else points
    calls: list[Callable[[Any], Any]] = [
        lambda given: there * given,
        lambda given: given * there,
        lambda given: curve.msm(there, given),
    ]
    if curve is OVER_MERSENNE31:  # its tables are made quickly
        table = curve.precompute(gpu.to_device(points), memory=1 << 12)
        calls.append(lambda given: curve.msm(table, given))
    for scalars in BOOLEANS:
        for call in calls:
            with pytest.raises(ArgumentTypeError, match="bool"):
                call(scalars)
    with pytest.raises(ArgumentTypeError, match="element 1 is of type bool"):
        curve.mul(there, iter([2, True]))
    with pytest.raises(ArgumentTypeError, match="bool"):
        curve.from_affine([1, True], [1, 2])
    assert (there * [2, 1]).to_host().tolist() == (curve.generator * [2, 2]).tolist()


@pytest.mark.parametrize("curve", [gx.curves.BN254_G1, OVER_MERSENNE31], ids=lambda c: c.name)
def test_arrays_of_scalars_times_points(gpu: Gpu, curve: Curve) -> None:
    field = curve.scalar_field
    numbers, factors = [3, 0, curve.order - 1], [5, 7, 11]
    points, scalars = curve.generator * factors, field.encode(numbers)
    expected = [curve.generator * (k * n) for k, n in zip(numbers, factors, strict=True)]
    for place in (None, gx.CpuBackend(), gpu):
        p: Any = points if place is None else place.to_device(points)
        k: Any = scalars if place is None else place.to_device(scalars)
        for found in (k * p, p * k, k.in_form(field.form) * p):
            assert type(found) is type(p) and found.on_device == (place is not None)
            assert found.to_host().tolist() == [each.tolist() for each in expected]
        assert (k[0] * p).to_host().tolist() == (points * 3).tolist()
        table = (k.reshape(3, 1) * p).to_host()
        assert table.tolist() == [(points * number).tolist() for number in numbers]
        for wrong in (
            operator.add, operator.sub, operator.truediv, operator.matmul, operator.imul, pow,
        ):  # fmt: skip
            with pytest.raises(ArgumentTypeError):
                wrong(k, p)
        with pytest.raises(ArgumentTypeError, match="an array of babybear was given"):
            gx.fields.BABYBEAR.encode([1, 2, 3]) * p
        assert k.tolist() == numbers
    with pytest.raises(ArgumentTypeError, match="different places"):
        gpu.to_device(scalars) * points
    with pytest.raises(ArgumentTypeError, match="a PointArray cannot be written to an array of"):
        scalars *= points
