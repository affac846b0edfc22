"""MSMs that are computed together, and multiples of a fixed base, against the host."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.curves import Curve
from gpu_executor.curves.parameters import get_named
from gpu_executor.msm.fixed_base import FixedBase
from gpu_executor.msm.host import run_on_host
from gpu_executor.msm.joint import JointMsm, PointSet, ScalarList, make_point_set
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.primes import words
from gpu_executor.primes.glv import find_cube_root_of_unity

G1, G2 = get_named("BN254_G1"), get_named("BN254_G2")


def draw_points(curve: Curve, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Points of the group, of which some are equal, opposite or at infinity."""
    draw, arithmetic = random.Random(seed), get_arithmetic(curve.key)
    (base,) = arithmetic.load(curve.generator.affine().words()[None])
    factors = [draw.choice([0, 1, curve.order - 1, draw.randrange(99)]) for _ in range(count)]
    return arithmetic.store(arithmetic.multiply([base] * count, factors), (count,))


def draw_scalars(count: int, seed: int) -> np.ndarray[Any, Any]:
    draw, r = random.Random(seed), G1.order
    values = [draw.choice([0, 1, r - 1, draw.randrange(r)]) for _ in range(count)]
    return words.from_ints(G1.scalar_field.prime, values)


def find_factors() -> tuple[int, int]:
    """The factors of images in G1 and G2 that belong to the eigenvalue of G1."""
    modulus = G1.key.prime.modulus
    beta = find_cube_root_of_unity(modulus)
    assert beta is not None and G1.glv is not None and G2.glv is not None
    return beta, beta if G2.glv.eigenvalue == G1.glv.eigenvalue else beta * beta % modulus


@pytest.mark.parametrize("halves", [True, False])
def test_lists_of_different_lengths(gpu: gx.PersistentVulkanBackend, halves: bool) -> None:
    device, counts = gpu.array_device, (40, 0, 17)
    factors: tuple[int | None, int | None] = find_factors() if halves else (None, None)
    points: dict[str, np.ndarray[Any, Any]] = {
        "a": draw_points(G1, counts[0], 1),
        "b": draw_points(G1, counts[0], 2),
        "empty": draw_points(G1, 0, 3),
        "c": draw_points(G1, counts[2], 4),
        "d": draw_points(G2, counts[2], 5),
    }

    def make(name: str) -> PointSet:
        curve, factor = (G2, factors[1]) if name == "d" else (G1, factors[0])
        return make_point_set(curve.key, device.put(points[name]), factor)

    lists = [
        ScalarList(counts[0], (make("a"), make("b"))),
        ScalarList(counts[1], (make("empty"),)),
        ScalarList(counts[2], (make("c"), make("d"))),
    ]
    scalars = [draw_scalars(count, seed) for seed, count in enumerate(counts)]
    glv = G1.glv if halves else None
    msm = JointMsm(device, lists, G1.order.bit_length(), glv)
    found = msm.run([device.put(each) for each in scalars])
    wanted = [
        run_on_host(G1.key, points[name], scalars[number], ())
        for name, number in (("a", 0), ("b", 0), ("empty", 1), ("c", 2))
    ]
    assert np.array_equal(found[G1.key].numpy(), np.stack(wanted))
    in_g2 = run_on_host(G2.key, points["d"], scalars[2], ())
    assert np.array_equal(found[G2.key].numpy(), in_g2[None])


@pytest.mark.parametrize("curve", [G1, G2], ids=str)
def test_multiples_of_a_fixed_base(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    arithmetic, r = get_arithmetic(curve.key), curve.order
    (base,) = arithmetic.load(curve.generator.affine().words()[None])
    draw = random.Random(7)
    factors = [0, 1, 2, 255, 256, r - 1, *(draw.randrange(r) for _ in range(6))]
    scalars = words.from_ints(curve.scalar_field.prime, factors)
    multiples = FixedBase(gpu.array_device, curve.key, base).multiply(gpu.array_device.put(scalars))
    assert isinstance(multiples, DeviceArray)
    wanted = arithmetic.multiply([base] * len(factors), factors)
    assert arithmetic.load(multiples.numpy()) == wanted
