"""SwiftShader: multi-scalar multiplications on named curves."""

from __future__ import annotations

import pytest

import gpu_executor as gx
from tests.support.curves_under_test import check_msm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["BLS12_381_G1", "BN254_G2"])
def test_msm_of_named_curves(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    """Of 13 limbs, and over an extension field with u^2 = -1 and 9 limbs. Smaller curves are in
    test_swiftshader.py: of one limb, with a prime that fills its words, and over an extension field
    with another u^2. The kernels of other named curves have other numbers of limbs and the digits
    of other primes; they run on lavapipe."""
    check_msm(swiftshader, getattr(gx.curves, name), 20)
