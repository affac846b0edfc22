"""Points to affine form in one kernel, as GPUs convert them, against integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.ops import points
from tests.support.curves_under_test import (
    FILLS_LIMBS,
    FILLS_WORDS,
    OVER_MERSENNE31,
    SMALL,
)

CURVES = [SMALL[0], OVER_MERSENNE31, FILLS_LIMBS, FILLS_WORDS, gx.curves.BN254_G1]
"""With an x of 0 and an a that is not 0, with limbs of 28 and 29 bits, and primes that fill words
or limbs."""


@pytest.fixture
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "has_affine_kernel", lambda _, curve: curve.degree == 1)
    monkeypatch.setattr(points, "count_affine_invocations", lambda _: 4)


def scale(curve: Curve, draw: random.Random, logarithms: list[int]) -> PointArray:
    """XYZZ points on the host with any denominators."""
    prime, affine = curve.key.prime, (curve.generator * logarithms).affine()
    rows = []
    for x, y in zip(affine.x.tolist(), affine.y.tolist(), strict=True):
        z = draw.randrange(1, prime.modulus) if x or y else 0
        rows.append([x * z**2, y * z**3, z**2, z**3])
    words = curve.field.encode([[each % prime.modulus for each in row] for row in rows])
    return PointArray(curve, words.in_form(prime.form).data)


@pytest.mark.usefixtures("one_kernel")
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_any_number_of_points(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    """One point for each invocation and several, with infinity in any place."""
    draw = random.Random(1)
    for count in (1, 4, 11):
        logarithms = [draw.randrange(curve.order) * (draw.random() < 0.7) for _ in range(count)]
        given = scale(curve, draw, logarithms)
        assert given.form == "xyzz" and given.shape == (count,)
        found = gpu.to_device(given).affine()
        assert found.form == "affine"
        assert found.to_host().tolist() == (curve.generator * logarithms).tolist()


@pytest.mark.usefixtures("one_kernel")
def test_axes_and_views(gpu: gx.PersistentVulkanBackend) -> None:
    curve, draw = OVER_MERSENNE31, random.Random(2)
    logarithms = [0, *range(1, 24)]
    given = gpu.to_device(scale(curve, draw, logarithms)).reshape((4, 6))
    expected = (curve.generator * logarithms).affine().reshape((4, 6))
    for index in (np.s_[:, :], np.s_[::-1, 1::2], np.s_[2], np.s_[3, 5], np.s_[:0]):
        found = given[index].affine()
        assert found.shape == expected[index].shape
        assert found.to_host().tolist() == expected[index].tolist()
