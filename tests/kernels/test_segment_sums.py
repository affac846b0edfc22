"""The weighted sums of buckets by rows and columns, with f64 limbs: exact for points in any form,
and within the bounds of the kernel.

A device that cannot round float64 toward zero, such as lavapipe, runs the kernel with the halves of
each product computed with integers (`EMULATED` in f64_limbs.glsl).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.kernels import curves as curve_kernels
from gpu_executor.kernels.build import GLSL
from gpu_executor.kernels.curves import F64_SLACK, curve_kernel, curve_limbs, f64_curve_limbs
from gpu_executor.msm.plan import MsmPlan
from gpu_executor.msm.stages import Msm
from gpu_executor.ops.points import make_points
from gpu_executor.vulkan.device_trials import F64_LIMB_FEATURES
from tests.support.curves_under_test import (
    BABY_JUBJUB,
    ORDER_2,
    IntPoint,
    add_ints,
    multiply_ints,
)
from tests.support.device_arrays import get_device_memory
from tests.support.f64_emulation import load_emulated

WINDOW_BITS, WINDOWS = 10, 2
BUCKETS = 1 << (WINDOW_BITS - 1)


def encode(
    curve: Curve, points: Sequence[IntPoint], draw: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """XYZZ points in limbs, as the accumulation leaves them: with any denominators, and not
    reduced."""
    p, limbs = curve.key.prime.modulus, curve_limbs(curve.key)
    factor = pow(2, limbs.bits * limbs.count, p)
    rows = np.zeros((len(points), limbs.count, 4), np.uint32)
    for row, point in zip(rows, points, strict=True):
        if point is None:
            continue
        z = int.from_bytes(draw.bytes(40), "little") % p
        numbers = point[0] * z**2, point[1] * z**3, z**2, z**3
        for at, (number, most) in enumerate(zip(numbers, (7, 3, 1, 1), strict=True)):
            lazy = number * factor % p + p * int(draw.integers(most + 1))
            row[:, at] = limbs.split(lazy)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("curve", [BABY_JUBJUB, gx.curves.PALLAS], ids=lambda c: c.name)
def test_weighted_sums_are_exact(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, curve: Curve
) -> None:
    """Few different points, so that equal and opposite sums meet in most segments; one of order 2,
    and the point at infinity."""
    device, draw = get_device_memory(gpu), np.random.default_rng(3)
    if not device.info.features >= F64_LIMB_FEATURES:
        monkeypatch.setattr(curve_kernels, "load_spirv", load_emulated)
    limbs = f64_curve_limbs(curve.key)
    monkeypatch.setattr(Msm, "_choose_segments_limbs", lambda _: limbs)
    curve_kernel.cache_clear()
    (generator,) = curve.generator.reshape(1).tolist()
    few = [None, *(multiply_ints(curve, k, generator) for k in (1, curve.order - 1, 2, 3))]
    if curve is BABY_JUBJUB:
        few.append(ORDER_2)
    many = [multiply_ints(curve, k, generator) for k in range(7, 40)]
    rows = [
        [few[at] for at in draw.integers(0, len(few), BUCKETS)],
        [many[at] for at in draw.integers(0, len(many), BUCKETS)],
        [None] * BUCKETS,
        [generator] * BUCKETS,
    ]
    plan = MsmPlan(1, len(rows), WINDOW_BITS - 1, WINDOW_BITS)
    assert plan.windows == 1
    buckets = device.put(
        encode(curve, list(itertools.chain(*rows)), draw).reshape(len(rows) * BUCKETS, -1)
    )
    result = make_points(device, curve.key, len(rows))
    Msm(device, curve.key, plan, has_table=True).finish(buckets, result)
    found = PointArray(curve, result.numpy()).tolist()
    curve_kernel.cache_clear()
    for row, point in zip(rows, found, strict=True):
        expected = running = None
        for each in reversed(row):
            running = add_ints(curve, running, each)
            expected = add_ints(curve, expected, running)
        assert point == expected


@pytest.mark.parametrize("shift", [0, 1])
def test_numbers_stay_below_the_bounds(shift: int) -> None:
    """The bounds of add_full and double_full in units of p, each product at the largest operands,
    for points that were copied three times."""
    texts = [(GLSL / "curves" / f"point_{name}_f64.glsl").read_text() for name in ("mixed", "full")]
    pairs = re.findall(r"\b(MULTIPLE_\w+) = (\d+)", "".join(texts))
    found = {name.removeprefix("MULTIPLE_"): int(value) for name, value in pairs}

    def mul(a: Fraction, b: Fraction) -> Fraction:
        return Fraction(math.ceil((1 + a * b / F64_SLACK) * 1000), 1000)

    stored = Fraction(22, 10) + 3 * shift
    x, y, z = Fraction(8), Fraction(4), (stored + 1) / 2 if shift else stored
    p, r = mul(x, z) + found["FIRST"], mul(y, z) + found["FIRST"]
    assert max(mul(x, z), mul(y, z)) <= found["FIRST"]
    v = mul(p, p)
    assert v < 3 and r < 4  # n_is_multiple
    w, q = mul(p, v), mul(mul(x, z), v)
    assert w + 2 * q <= found["SUM"]
    assert 2**shift * mul(r, r) + found["SUM"] <= found["X"]
    assert mul(y, z) * w / F64_SLACK <= 1
    assert mul(r, q + found["X"]) + 1 < y
    assert 2**shift * mul(mul(z, z), max(v, w)) < Fraction(22, 10)
    # A doubling: R = 3 X^2 + a ZZ^2 and P = 2 Y, times 2^shift.
    p, r = 2 * y * 2**shift, 3 * mul(x, x) + mul(mul(z, z), Fraction(1))
    v = mul(p, p)
    w, q = mul(p, v), mul(x, v)
    assert 2 * q <= found["SUM"] and 2**shift * mul(r, r) + found["SUM"] < x <= found["DOUBLE"]
    assert mul(r, q + found["DOUBLE"]) + mul(y, w) < y
    assert 2**shift * mul(z, max(v, w)) <= stored
