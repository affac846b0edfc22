"""Multi-scalar multiplication on a Vulkan device, against known discrete logarithms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.ops import scalars as scalars_module
from gpu_executor.ops.host_points import PointArithmetic
from gpu_executor.ops.scalars import count_bits
from tests.support.curves_under_test import (
    FILLS_LIMBS,
    SMALL,
    draw_points,
    get_curve,
)

G1 = gx.curves.BLS12_381_G1
G2 = gx.curves.BLS12_381_G2
full = pytest.mark.parametrize("curve", [G1, G2], ids=["g1", "g2"])
"""The curves of which all kinds of points and scalars are tested."""


def draw_scalars(curve: Curve, count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(curve.order) for _ in range(count)]


def check_msm(
    gpu: gx.PersistentVulkanBackend,
    curve: Curve,
    logarithms: Sequence[int],
    scalars: Sequence[int],
) -> None:
    """The sum of k * (l G) is (the sum of k l) G."""
    points = gpu.to_device(curve.generator * list(logarithms))
    total = sum(k * one for k, one in zip(scalars, logarithms, strict=True))
    assert curve.msm(points, list(scalars)).to_host() == curve.generator * total


@pytest.mark.parametrize("name", ["PALLAS", pytest.param("BLS12_377_G2", marks=pytest.mark.slow)])
def test_named_curves_over_every_field(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    """Vesta has the limbs of Pallas. Other tests sum points of both groups of BLS12-381, those of
    test_glv.py points of secp256k1, those of test_joint.py points of BN254 G2. BN254 G1 and
    BLS12-377 G1 are over the fields of their G2."""
    curve = get_curve(name)
    logarithms = [0, 1, curve.order - 1, *draw_scalars(curve, 3, seed=1)]
    check_msm(gpu, curve, logarithms, [5, curve.order - 1, *draw_scalars(curve, 4, seed=2)])


@pytest.mark.parametrize(
    ("curve", "count"),
    [*((G1, count) for count in (1, 2, 63, 64, 65)), (G2, 1), (G2, 33)],
    ids=lambda value: value.name if isinstance(value, Curve) else str(value),
)
def test_random_points_and_scalars(
    gpu: gx.PersistentVulkanBackend, curve: Curve, count: int
) -> None:
    logarithms = draw_scalars(curve, count, seed=count)
    check_msm(gpu, curve, logarithms, draw_scalars(curve, count, seed=count + 1))


def test_statistics_count_the_dispatches_of_curve_operations(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All additions run on the device: the arithmetic of the host is not called."""
    points = gpu.to_device(draw_points(G1, 65, seed=1))
    scalars = gpu.to_device(G1.scalar_field.random(65, seed=2))
    for name in ("add", "sum_rows", "multiply", "climb", "to_affine"):
        monkeypatch.setattr(PointArithmetic, name, None)
    counted = [gpu.stats().dispatches]
    operations: list[Callable[[], PointArray]] = [
        lambda: G1.msm(points, scalars),
        lambda: points + points,
        points.sum,
    ]
    for compute in operations:
        assert compute().on_device
        counted.append(gpu.stats().dispatches)
    differences = np.diff(counted)
    assert differences[0] >= 5  # digits, sort, accumulate, reduce, join
    assert (differences[1:] > 0).all()
    assert f"{counted[-1]:,} dispatches on device arrays" in str(gpu.stats())


def test_an_executor_counts_the_dispatches_of_its_devices() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        points = executor.to_device(draw_points(SMALL[0], 2, seed=1))
        assert (points + points).on_device
        stats = executor.stats()
        assert stats.dispatches == stats.devices[0].inside.dispatches > 0
        values = {family.name: family.samples for family in stats.families()}
        assert values["gpu_executor_dispatches_total"][0].value == stats.dispatches


def test_many_points(gpu: gx.PersistentVulkanBackend) -> None:
    check_msm(gpu, G1, draw_scalars(G1, 1000, seed=1), draw_scalars(G1, 1000, seed=2))


KINDS = ["all zero", "all one", "all equal", "order - 1", "one digit"]


@pytest.mark.parametrize(
    ("curve", "kind"),
    [*((G1, kind) for kind in KINDS), (G2, "all equal")],
    ids=lambda value: value.name if isinstance(value, Curve) else value,
)
def test_scalars_that_fill_few_buckets(
    gpu: gx.PersistentVulkanBackend, curve: Curve, kind: str
) -> None:
    equal = draw_scalars(curve, 1, seed=9)[0]
    scalar = {
        "all zero": 0,
        "all one": 1,
        "all equal": equal,
        "order - 1": curve.order - 1,
        "one digit": 1 << 200,
    }[kind]
    check_msm(gpu, curve, draw_scalars(curve, 70, seed=3), [scalar] * 70)


@full
def test_equal_points_opposite_points_and_infinity(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    draw, count = random.Random(4), 90 if curve is G1 else 30
    one = draw_scalars(curve, 1, seed=5)[0]
    logarithms = [draw.choice([one, -one, 0, 1, -1]) for _ in range(count)]
    scalars = draw_scalars(curve, count, seed=6)
    check_msm(gpu, curve, logarithms, scalars)
    check_msm(gpu, curve, [one] * count, scalars)
    twice = [each for each in scalars[: count // 2] for _ in range(2)]
    check_msm(gpu, curve, [one, -one] * (count // 2), twice)
    check_msm(gpu, curve, [0] * count, scalars)


@full
def test_batches_share_points_or_have_their_own(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    points = draw_points(curve, 12, seed=7)
    there = gpu.to_device(points)
    scalars = curve.scalar_field.random((3, 4), seed=8)
    of_shared = curve.msm(points[:4], scalars).tolist()
    of_own = curve.msm(points.reshape(3, 4), scalars).tolist()
    for factors in (scalars, gpu.to_device(scalars)):
        assert curve.msm(there[:4], factors).tolist() == of_shared
        own = curve.msm(there.reshape(3, 4), factors)
        assert own.shape == (3,)
        assert own.tolist() == of_own
    expected = curve.msm(points.reshape(3, 1, 4), scalars).tolist()
    assert curve.msm(there.reshape(3, 1, 4), scalars).tolist() == expected
    assert curve.msm(there.reshape(3, 4), scalars[0]).tolist() == [row[0] for row in expected]


def test_views_of_scalars_on_the_device(gpu: gx.PersistentVulkanBackend) -> None:
    points = draw_points(G1, 4, seed=7)
    scalars = G1.scalar_field.random((4, 3), seed=8)
    found = G1.msm(gpu.to_device(points), gpu.to_device(scalars).T)
    assert found.tolist() == G1.msm(points, scalars.T).tolist()


def test_batches_with_points_of_their_own_run_in_parts(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_executor.msm.parts.MAX_ENTRIES_ON_CPU", 200)
    monkeypatch.setattr("gpu_executor.msm.parts.MAX_ENTRIES", 200)
    points = draw_points(G1, 15, seed=7).reshape(5, 3)
    scalars = G1.scalar_field.random((5, 3), seed=8)
    found = G1.msm(gpu.to_device(points), scalars)
    assert found.tolist() == G1.msm(points, scalars).tolist()


def test_no_points_sum_to_infinity(gpu: gx.PersistentVulkanBackend) -> None:
    none = gpu.to_device(G1.infinity((2, 0)))
    found = G1.msm(none, np.zeros((2, 0), np.int64))
    assert found.on_device
    assert found.form == "xyzz"
    assert found.tolist() == [None, None]
    assert G1.msm(none[0], []).tolist() is None
    assert G1.msm(gpu.to_device(G1.infinity((0, 3))), [1, 2, 3]).shape == (0,)


@pytest.mark.parametrize("scalar", [0, 1, 2, 3, 2**64 - 1, 2**64, 2**200])
def test_scalars_on_the_host_take_as_many_bits_as_the_largest(
    gpu: gx.PersistentVulkanBackend, scalar: int
) -> None:
    words = G1.scalar_field.encode([[scalar, 0], [1, 0]]).in_form("canonical").data
    assert count_bits(G1.key, words) == max(scalar.bit_length(), 1)
    points = draw_points(G1, 2, seed=7)
    there = gpu.to_device(points)
    assert G1.msm(there, [scalar, 0]).tolist() == (points[0] * scalar).tolist()
    assert (there * scalar).tolist() == (points * scalar).tolist()


@pytest.mark.parametrize("position", [0, 4, 5, 9, 10])
def test_the_bits_of_scalars_are_counted_in_pieces(
    monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    monkeypatch.setattr(scalars_module, "SCANNED_SCALARS", 5)
    monkeypatch.setattr(scalars_module, "UNITED_ROWS", 2)
    order_bits = G1.order.bit_length()
    for bits, expected, with_halves in (
        (1, 1, 1),
        (127, 127, 127),
        (128, 128, order_bits),  # a scalar with more bits than a half is split
        (253, 253, order_bits),
        (254, order_bits, order_bits),
        (256, 256, 256),  # words of any number
    ):
        words = np.zeros((11, 4), np.uint64)
        words[position, (bits - 1) // 64] = 1 << (bits - 1) % 64
        for view in (words, words[:, None], np.asfortranarray(words), words[::-1]):
            assert count_bits(G1.key, view) == expected
            assert count_bits(G1.key, view, G1.glv) == with_halves


# --- properties of sums, for terms that hypothesis draws ---


Term = tuple[int, int, int]
"""The logarithm of a point, and two scalars."""


def draw_numbers(curve: Curve) -> st.SearchStrategy[int]:
    """Numbers below the order, often small or next to it."""
    few = st.sampled_from([0, 1, 2, 3, curve.order - 1, curve.order - 2])
    return few | st.integers(0, curve.order - 1)


def check_properties(
    gpu: gx.PersistentVulkanBackend, curve: Curve, terms: list[Term], data: st.DataObject
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


def draw_terms(curve: Curve, most: int) -> st.SearchStrategy[list[Term]]:
    number = draw_numbers(curve)
    return st.lists(st.tuples(number, number, number), min_size=1, max_size=most)


@given(data=st.data())
@settings(max_examples=12)
def test_sums_of_a_small_curve(gpu: gx.PersistentVulkanBackend, data: st.DataObject) -> None:
    check_properties(gpu, FILLS_LIMBS, data.draw(draw_terms(FILLS_LIMBS, most=40), "terms"), data)


@given(data=st.data())
@settings(max_examples=3)
def test_sums_of_bls12_381(gpu: gx.PersistentVulkanBackend, data: st.DataObject) -> None:
    check_properties(gpu, G1, data.draw(draw_terms(G1, most=12), "terms"), data)
