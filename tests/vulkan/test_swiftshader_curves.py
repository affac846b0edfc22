"""SwiftShader: multi-scalar multiplications on every named curve, and a commitment."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.kzg import pairing
from tests.support.curves_under_test import NAMED_CURVES, check_msm, get_curve
from tests.support.kzg_setups import (
    POINTS_ALONE,
    draw_blob,
    draw_small_weights,
    evaluate_at_secret,
    multiply_generator,
    write_known_setup,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMED_CURVES)
def test_msm_of_named_curves(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    check_msm(swiftshader, get_curve(name), 20)


def test_a_commitment(swiftshader: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    path = tmp_path / "known_setup.txt"
    path.write_text(write_known_setup())
    blob = draw_blob(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "draw_weights", draw_small_weights)
        setup = kzg.load_trusted_setup(str(path), 0, device=swiftshader, memory=POINTS_ALONE)
    with setup:
        found = kzg.blob_to_kzg_commitment(blob, setup)
    assert found == multiply_generator(evaluate_at_secret(blob))
