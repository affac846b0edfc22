"""SwiftShader: multi-scalar multiplications on named curves, and a commitment."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_executor as gx
from tests.support.curves_under_test import check_msm, get_curve
from tests.support.driver_checks import check_commitment

pytestmark = pytest.mark.slow

CURVES = ("BLS12_381_G1", "SECP256K1", "BN254_G2", "BLS12_377_G2")
"""Curves with other kernels: of 13 limbs and of 9, whose prime fills its words, and over extensions
with u^2 = -1 and -5. The kernels of other named curves differ in the digits of a prime alone; they
run on lavapipe."""


@pytest.mark.parametrize("name", CURVES)
def test_msm_of_named_curves(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    check_msm(swiftshader, get_curve(name), 20)


def test_a_commitment(swiftshader: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    check_commitment(swiftshader, tmp_path)
