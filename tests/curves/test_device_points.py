"""Points on a Vulkan device: every operation, against the host."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from tests.support.curves_under_test import draw_points, get_curve

FULL = ["BLS12_381_G1", "BLS12_381_G2"]
"""The curves of which every operation is tested: each compiles pipelines of its own."""

full = pytest.mark.parametrize("name", FULL)


def make_pairs(curve: Curve) -> tuple[PointArray, PointArray]:
    """Two arrays of points: different points, equal ones, opposite ones, infinity on each side."""
    points = draw_points(curve, 6, seed=1)
    infinity = curve.infinity(1)
    first = curve.concatenate([points, infinity, points[:1], infinity])
    others = [points[1:3], points[2:4], -points[4:6], points[:1], infinity, infinity]
    return first, curve.concatenate(others)


@full
def test_sums_and_differences(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one, two = gpu.to_device(first), gpu.to_device(second)
    total = one + two
    assert total.on_device
    assert total.form == "xyzz"
    assert total.tolist() == (first + second).tolist()
    assert (one - two).tolist() == (first - second).tolist()
    assert (total + two).tolist() == (first + second + second).tolist()
    assert (two - total).tolist() == (-first).tolist()
    assert (total - total).is_infinity().all()
    assert (total + total).tolist() == (first + second).double().tolist()
    assert one.double().tolist() == first.double().tolist()
    assert total.double().tolist() == (first + second).double().tolist()


@full
def test_conversion_to_affine_form(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    total = gpu.to_device(first) + gpu.to_device(second)
    affine = total.affine()
    assert affine.on_device
    assert affine.form == "affine"
    assert (affine.numpy() == (first + second).numpy()).all()
    assert affine.affine() is affine
    assert total.x.tolist() == (first + second).x.tolist()
    assert total.to_bytes().tobytes() == (first + second).to_bytes().tobytes()


@full
def test_msm_of_affine_and_xyzz_points(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one, two = gpu.to_device(first), gpu.to_device(second)
    scalars = curve.scalar_field.random(9, seed=2)
    found = curve.msm(one, scalars)
    assert found.on_device
    assert found.shape == ()
    assert found.form == "xyzz"
    assert found.tolist() == curve.msm(first, scalars).tolist()
    assert curve.msm(one, gpu.to_device(scalars)).tolist() == found.tolist()
    assert curve.msm(one + two, scalars).tolist() == curve.msm(first + second, scalars).tolist()
    assert np.array_equal(curve.msm(one[:0], []).is_infinity(), np.True_)
