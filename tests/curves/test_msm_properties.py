"""Properties of multi-scalar multiplications on a Vulkan device, for points and scalars that
hypothesis draws: equal and opposite points, infinity, zero and equal scalars are frequent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.curves import Curve
from tests.support.curves_under_test import FILLS_LIMBS

Terms = list[tuple[int, int, int]]
"""The logarithm of a point, and two scalars."""


def draw_numbers(curve: Curve) -> st.SearchStrategy[int]:
    """Numbers below the order, often small or next to it."""
    few = st.sampled_from([0, 1, 2, 3, curve.order - 1, curve.order - 2])
    return few | st.integers(0, curve.order - 1)


def check_properties(
    gpu: gx.PersistentVulkanBackend, curve: Curve, terms: Terms, data: st.DataObject
) -> None:
    """Linearity, any order of the terms, and any division in two, each against the sum of all."""
    logarithms, first, second = (list(each) for each in zip(*terms, strict=True))
    points = gpu.to_device(curve.generator * logarithms)
    whole = curve.msm(points, first)
    expected = sum(a * b for a, b in zip(logarithms, first, strict=True))
    assert whole.to_host() == curve.generator * expected

    both = [(a + b) % curve.order for a, b in zip(first, second, strict=True)]
    assert whole + curve.msm(points, second) == curve.msm(points, both)

    order = data.draw(st.permutations(range(len(terms))), "order")
    assert curve.msm(points[order], [first[each] for each in order]) == whole

    at = data.draw(st.integers(0, len(terms)), "at")
    assert curve.msm(points[:at], first[:at]) + curve.msm(points[at:], first[at:]) == whole


def draw_terms(curve: Curve, most: int) -> st.SearchStrategy[Terms]:
    number = draw_numbers(curve)
    return st.lists(st.tuples(number, number, number), min_size=1, max_size=most)


@given(data=st.data())
@settings(max_examples=25)
def test_sums_of_a_small_curve(gpu: gx.PersistentVulkanBackend, data: st.DataObject) -> None:
    check_properties(gpu, FILLS_LIMBS, data.draw(draw_terms(FILLS_LIMBS, most=40), "terms"), data)


@given(data=st.data())
@settings(max_examples=5)
def test_sums_of_bls12_381(gpu: gx.PersistentVulkanBackend, data: st.DataObject) -> None:
    curve = gx.curves.BLS12_381_G1
    check_properties(gpu, curve, data.draw(draw_terms(curve, most=12), "terms"), data)
