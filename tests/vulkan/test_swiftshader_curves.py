"""SwiftShader: multi-scalar multiplications on every named curve, and a commitment."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_executor as gx
from tests.support.curves_under_test import NAMED_CURVES, check_msm, get_curve
from tests.support.driver_checks import check_commitment

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMED_CURVES)
def test_msm_of_named_curves(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    check_msm(swiftshader, get_curve(name), 20)


def test_a_commitment(swiftshader: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    check_commitment(swiftshader, tmp_path)
