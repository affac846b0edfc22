"""Works run dry submit what programs submit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.curves.point_array import PointArray
from gpu_executor.kernel import Kernel
from gpu_executor.ops.points import AFFINE
from gpu_executor.steps.dispatch_sizes import choose_sizes
from gpu_executor.warm_up.works import WorkDevice, list_dispatches, make_elements, make_words
from tests.support.plans import describe_device

INFO = describe_device()
CURVE = gx.curves.BN254_G1
FIELD = gx.fields.BABYBEAR


def list_pipelines(dispatches: Iterable[Dispatch]) -> set[tuple[Kernel, int, int]]:
    return {(each.kernel, *choose_sizes(each, INFO)[1:]) for each in dispatches}


@pytest.fixture(scope="module")
def of_msms() -> set[tuple[Kernel, int, int]]:
    return list_pipelines(list_dispatches(WorkDevice(INFO), "msm", CURVE))


@given(count=st.integers(0, 96).map(lambda step: int(2 ** (step / 4))), known=st.booleans())
@settings(max_examples=30, deadline=None)
def test_msms_of_any_size_need_no_other_pipelines(
    of_msms: set[tuple[Kernel, int, int]], count: int, known: bool
) -> None:
    device = WorkDevice(INFO)
    points = PointArray(CURVE, make_words(device, CURVE, AFFINE, count), known_in_subgroup=known)
    CURVE.msm(points, make_elements(device, CURVE.scalar_field, count)).affine()
    assert device.dispatches
    assert list_pipelines(device.dispatches) <= of_msms


def test_transforms_of_any_length_need_no_other_pipelines() -> None:
    pipelines = list_pipelines(list_dispatches(WorkDevice(INFO), "transform", FIELD))
    for log_n in (1, 3, 11, 16, 20, 24):
        device = WorkDevice(INFO)
        FIELD.intt(FIELD.ntt(make_elements(device, FIELD, 1 << log_n)))
        assert list_pipelines(device.dispatches) <= pipelines


def test_a_work_that_was_warmed_up_compiles_nothing(gpu: gx.PersistentVulkanBackend) -> None:
    keccak, rng = gx.hashes.KECCAK256, np.random.default_rng(5)
    assert gpu.warm_up("hash", keccak) > 0
    made = gpu.stats().pipelines.misses
    for shape in ((1, 64), (5000, 64), (3, 333)):
        rows = rng.integers(0, 256, shape, np.uint8)
        assert (keccak.hash(gpu.to_device(rows)).numpy() == keccak.hash(rows)).all()
    assert gpu.stats().pipelines.misses == made
