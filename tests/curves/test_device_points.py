"""Points on a Vulkan device: every operation, against the host."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    GpuError,
    KernelError,
    PointError,
)
from gpu_executor.primes import words
from tests.support.curves_under_test import (
    FILLS_LIMBS,
    FILLS_WORDS,
    OVER_MERSENNE31,
    SMALL,
    draw_points,
    encode_points,
    find_outside_points,
    get_curve,
    list_points,
)
from tests.support.device_arrays import limit_bindings

CURVE = SMALL[4]
full = pytest.mark.parametrize("name", ["BLS12_381_G1", "BLS12_381_G2"])
"""The curves of which every operation is tested: each curve compiles pipelines of its own."""


def make_pairs(curve: Curve) -> tuple[PointArray, PointArray]:
    """Two arrays of points: different points, equal ones, opposite ones, infinity on each side."""
    points = draw_points(curve, 6, seed=1)
    infinity = curve.infinity(1)
    first = curve.concatenate([points, infinity, points[:1], infinity])
    others = [points[1:3], points[2:4], -points[4:6], points[:1], infinity, infinity]
    return first, curve.concatenate(others)


def make_small_points(gpu: gx.PersistentVulkanBackend) -> tuple[PointArray, PointArray]:
    """Twelve points of a small curve, infinity and points of even order among them: on the host
    and on the device."""
    points = encode_points(CURVE, list_points(CURVE)[:12])
    return points, gpu.to_device(points)


# --- every operation on a curve over a prime field and on one over an extension ---


@full
def test_sums_and_differences(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one, two = gpu.to_device(first), gpu.to_device(second)
    total = one + two
    assert total.on_device
    assert total.form == "xyzz"
    assert words.first_not_below(curve.key.prime, total.words()) is None
    assert total.tolist() == (first + second).tolist()
    assert (one - two).tolist() == (first - second).tolist()
    assert (total + two).tolist() == (first + second + second).tolist()
    assert (two - total).tolist() == (-first).tolist()
    assert (total - total).is_infinity().all()
    assert (total + total).tolist() == (first + second).double().tolist()


@full
def test_doubles_and_negatives(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one, total = gpu.to_device(first), gpu.to_device(first) + gpu.to_device(second)
    assert one.double().tolist() == first.double().tolist()
    assert total.double().tolist() == (first + second).double().tolist()
    assert (-one).tolist() == (-first).tolist()
    assert (-total).tolist() == (-(first + second)).tolist()
    assert ((-one).form, (-total).form) == ("affine", "xyzz")


@full
def test_multiples(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, _ = make_pairs(curve)
    one = gpu.to_device(first)
    scalars = [0, 1, 2, curve.order - 1, 3 << 200, 12345, 5, curve.order // 2, 2**64]
    expected = (first * scalars).tolist()
    assert (one * scalars).tolist() == expected
    assert (scalars * one).tolist() == expected
    assert (one * gpu.to_device(curve.scalar_field.encode(scalars))).tolist() == expected
    assert (one.double() * scalars).tolist() == (first.double() * scalars).tolist()
    assert (one * 7).tolist() == (first * 7).tolist()
    assert (one[0] * scalars).tolist() == (first[0] * scalars).tolist()
    assert (one[0] * -1).tolist() == (-first[0]).tolist()


@full
def test_sums_over_axes(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one = gpu.to_device(first)
    rows, host_rows = one.reshape(3, 3), first.reshape(3, 3)
    assert one.sum().tolist() == first.sum().tolist()
    assert rows.sum(axis=0).tolist() == host_rows.sum(axis=0).tolist()
    assert rows.sum(axis=1, keepdims=True).tolist() == host_rows.sum(axis=1, keepdims=True).tolist()
    total = one + gpu.to_device(second)
    assert total.sum().tolist() == (first + second).sum().tolist()


@full
def test_conversion_to_affine_form(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    total = gpu.to_device(first) + gpu.to_device(second)
    affine = total.affine()
    assert affine.on_device
    assert affine.form == "affine"
    assert (affine.words() == (first + second).words()).all()
    assert affine.affine() is affine
    assert total.x.tolist() == (first + second).x.tolist()
    assert total.to_bytes().tobytes() == (first + second).to_bytes().tobytes()


@full
def test_comparisons_and_infinity(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    curve = get_curve(name)
    first, second = make_pairs(curve)
    one, two = gpu.to_device(first), gpu.to_device(second)
    zero = one - one
    expected = (first == second).tolist()
    assert (one == two).tolist() == expected
    assert (one + zero == two).tolist() == expected
    assert (one == two + zero).tolist() == expected
    assert (one + zero == two + zero).tolist() == expected
    assert (one + zero != two).tolist() == [not each for each in expected]
    assert (one == zero).tolist() == first.is_infinity().tolist()
    assert one.is_infinity().tolist() == first.is_infinity().tolist()
    assert (one + two).is_infinity().tolist() == (first + second).is_infinity().tolist()


@full
def test_membership_of_the_curve_and_of_its_group(
    gpu: gx.PersistentVulkanBackend, name: str
) -> None:
    curve = get_curve(name)
    inside, outside = draw_points(curve, 3, seed=4), find_outside_points(curve, 2)
    points = gpu.to_device(curve.concatenate([inside, outside, curve.infinity(1)]))
    for each in (points, points + curve.infinity(6).copy_to_device(points.device)):
        assert each.is_on_curve().all()
        assert each.in_subgroup().tolist() == [True, True, True, False, False, True]
    moved = points.words().copy()
    moved[:5, 0] = moved[4::-1, 0]  # x of other points
    wrong = gpu.to_device(PointArray(curve, moved))
    assert wrong.is_on_curve().tolist() == [False, False, True, False, False, True]


def test_words_that_are_no_xyzz_point_are_not_on_the_curve(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    """They satisfy the equation, and ZZ^3 is not ZZZ^2."""
    points = (gpu.to_device(draw_points(CURVE, 3, seed=1)) * 5).words().copy()
    points[1, 3] = (points[1, 3] + 1) % CURVE.field.modulus
    found = gpu.to_device(PointArray(CURVE, points)).is_on_curve()
    assert found.tolist() == [True, False, True]


# --- primes of every kind ---


@pytest.mark.parametrize(
    "curve", [FILLS_LIMBS, FILLS_WORDS, OVER_MERSENNE31], ids=["limbs", "words", "canonical"]
)
def test_primes_that_fill_their_words_or_limbs_or_are_canonical(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    draw = random.Random(1)
    points = draw_points(curve, 12, seed=3)
    there = gpu.to_device(points)
    scalars = [curve.order - 1, *(draw.randrange(curve.order) for _ in range(11))]
    assert (there + there[::-1]).tolist() == (points + points[::-1]).tolist()
    assert ((there - there[1]) * scalars).tolist() == ((points - points[1]) * scalars).tolist()
    assert (there * scalars).sum().tolist() == curve.msm(points, scalars).tolist()
    assert curve.msm(there, scalars).tolist() == curve.msm(points, scalars).tolist()
    assert there.in_subgroup().all()


# --- shapes and views ---


def list_views(points: PointArray) -> dict[str, PointArray]:
    return {
        "reversed": points[::-1],
        "unaligned": points[1:],
        "strided": points[1::3],
        "transposed": points.reshape(3, 4).T,
        "one": points[3],
        "new axes": points[None, :, None],
        "taken": points[[3, 3, 0]],
        "masked": points[np.arange(12) % 2 == 0],
        "repeated": points[2].broadcast_to((3, 2)),
        "none": points[:0],
        "no rows": points[:0].reshape(0, 2),
        "empty rows": points[:0].reshape(2, 0),
    }


@pytest.mark.parametrize("view", list_views(CURVE.infinity(12)))
def test_operations_on_views(gpu: gx.PersistentVulkanBackend, view: str) -> None:
    points, there = make_small_points(gpu)
    host = list_views(points)[view]
    for each in (list_views(there)[view], list_views(there + there[0])[view]):
        assert each.shape == host.shape
        assert (each + each).tolist() == (host + host).tolist()
        assert (each - there[2]).tolist() == (host - points[2]).tolist()
        assert (-each).tolist() == (-host).tolist()
        assert (each * 5).tolist() == (host * 5).tolist()
        assert each.double().affine().tolist() == host.double().tolist()
        assert each.sum().tolist() == host.sum().tolist()
        assert (each == there[2]).tolist() == (host == points[2]).tolist()
        assert each.is_infinity().tolist() == host.is_infinity().tolist()
        assert each.in_subgroup().tolist() == host.in_subgroup().tolist()
        for axis in range(each.ndim):
            assert each.sum(axis=axis).tolist() == host.sum(axis=axis).tolist()
        if each.ndim:
            scalars = list(range(1, each.shape[-1] + 1))
            assert CURVE.msm(each, scalars).tolist() == CURVE.msm(host, scalars).tolist()


def test_points_and_scalars_are_broadcast(gpu: gx.PersistentVulkanBackend) -> None:
    points, there = make_small_points(gpu)
    column, host_column = there.reshape(12, 1), points.reshape(12, 1)
    assert (column + there.double()).tolist() == (host_column + points.double()).tolist()
    scalars = [[1], [2], [3]]
    expected = (points.reshape(3, 4) * scalars).tolist()
    assert (there.reshape(3, 4) * scalars).tolist() == expected
    on_device = gpu.to_device(CURVE.scalar_field.encode([1, 2, 3]))
    assert (there.reshape(3, 4) * on_device.reshape(3, 1)).tolist() == expected
    assert (there[5] * on_device[::-1]).tolist() == (points[5] * [3, 2, 1]).tolist()
    assert (there * on_device[1]).tolist() == (points * 2).tolist()


def test_sums_of_more_points_than_a_segment(gpu: gx.PersistentVulkanBackend) -> None:
    points, there = make_small_points(gpu)
    for count in (8, 9, 64, 65, 1000):
        chosen = np.arange(count) % 12
        assert there[chosen].sum().tolist() == points[chosen].sum().tolist()
    rows = (np.arange(3 * 70) * 7 % 12).reshape(3, 70)
    assert there[rows].sum(axis=1).tolist() == points[rows].sum(axis=1).tolist()


# --- places, graphs and what is refused ---


def test_operands_in_other_places_and_of_other_curves_are_refused(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    points, there = make_small_points(gpu)
    scalars = CURVE.scalar_field.random(12, seed=1)
    elsewhere = gx.CpuBackend()
    for operand in (points, elsewhere.to_device(points)):
        with pytest.raises(ArgumentTypeError, match="different places"):
            _ = there + operand
    with pytest.raises(ArgumentTypeError, match="different places"):
        CURVE.msm(points, gpu.to_device(scalars))
    with pytest.raises(ArgumentTypeError, match="different places"):
        _ = there * elsewhere.to_device(scalars)
    other = gpu.to_device(encode_points(SMALL[0], list_points(SMALL[0])[:12]))
    with pytest.raises(ArgumentTypeError, match="points of small 17 2 2"):
        _ = there - other
    with pytest.raises(ArgumentTypeError, match="not a DeviceArray"):
        _ = there * gpu.to_device(np.arange(12, dtype=np.uint32))


def test_shapes_that_do_not_fit_are_refused(gpu: gx.PersistentVulkanBackend) -> None:
    _, there = make_small_points(gpu)
    with pytest.raises(ArgumentShapeError, match=r"\(12,\) and \(5,\)"):
        _ = there + there[:5]
    with pytest.raises(ArgumentShapeError, match=r"\(12,\) and \(3,\)"):
        _ = there * [1, 2, 3]
    with pytest.raises(ArgumentShapeError, match="as many scalars as points"):
        CURVE.msm(there, [1, 2])


def test_coordinates_on_a_device_become_points(gpu: gx.PersistentVulkanBackend) -> None:
    points, there = make_small_points(gpu)
    made = CURVE.from_affine(there.x, there.y, check=False)
    assert made.on_device
    assert made.tolist() == points.tolist()
    with pytest.raises(PointError, match="point 5: it is on the curve and not in the group"):
        CURVE.from_affine(there.x, there.y)
    with pytest.raises(PointError, match="point 1: x and y are not on the curve"):
        CURVE.from_affine(there.x[2:4], there.y[1:3])


def test_points_in_both_forms_are_joined(gpu: gx.PersistentVulkanBackend) -> None:
    points, there = make_small_points(gpu)
    joined = CURVE.concatenate([there, there + there])
    assert joined.on_device
    assert joined.tolist() == points.tolist() + points.double().tolist()


def test_a_graph_repeats_every_operation(gpu: gx.PersistentVulkanBackend) -> None:
    _, there = make_small_points(gpu)
    scalars = list(range(12))
    operations: list[Any] = [
        lambda points: points + points[::-1],
        lambda points: -points - points[0],
        lambda points: points.double().affine(),
        lambda points: points * scalars,
        lambda points: points.sum(),
        lambda points: CURVE.msm(points, scalars),
        lambda points: CURVE.msm(points.double(), [scalars, scalars[::-1]]),
    ]
    with gpu.graph(there) as graph:
        results = [operation(there) for operation in operations]
        with pytest.raises(GpuError, match="a graph is being recorded"):
            there.is_infinity()
    for start in (0, 20, 40):
        given = encode_points(CURVE, list_points(CURVE)[start : start + 12])
        graph(gpu.to_device(given))
        for operation, result in zip(operations, results, strict=True):
            assert result.tolist() == operation(given).tolist()


CUBIC = Curve(
    gx.ExtensionField(gx.Field(7), 2, degree=3),
    0,
    (0, 1, 3),
    order=307,
    generator=((0, 0, 1), (1, 2, 3)),
    name="cubic",
)
LARGE_NONRESIDUE = Curve(
    gx.ExtensionField(gx.Field(59), 18),
    0,
    (1, 1),
    order=3541,
    generator=((0, 2), (26, 13)),
    name="large nonresidue",
)


@pytest.mark.parametrize("curve", [CUBIC, LARGE_NONRESIDUE], ids=lambda curve: curve.name)
def test_curves_without_kernels_are_refused_in_words(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    """Conversions and comparisons need no kernels of curves."""
    host = curve.generator.reshape(1)
    points = gpu.to_device(host)
    operations: list[Callable[[], PointArray]] = [
        lambda: points + points,
        lambda: points * 2,
        points.sum,
        lambda: curve.msm(points, [1]),
    ]
    for operation in operations:
        with pytest.raises(KernelError, match=r"u\^. = \d+ have no kernels.*to_host"):
            operation()
    assert (-points).tolist() == (-host).tolist()
    assert (points == gpu.to_device(host)).all()
    assert points.is_on_curve().all()
    assert points.affine() is points


def test_a_point_of_an_array_larger_than_a_binding_is_refused_by_its_index(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding has 19 points in XYZZ form."""
    curve = get_curve("BLS12_381_G1")
    limit_bindings(monkeypatch, gpu, 19 * 4 * 48, alignment=16)
    good, outside = draw_points(curve, 4, seed=1), find_outside_points(curve, 1)
    points = curve.concatenate([good[list(range(4)) * 20], outside, good])
    x, y = gpu.to_device(points.x), gpu.to_device(points.y)
    with pytest.raises(PointError, match="point 80: it is on the curve and not in the group"):
        curve.from_affine(x, y)
    assert curve.from_affine(x[:80], y[:80]).tolist() == points[:80].tolist()
    y[77] = 5
    with pytest.raises(PointError, match="point 77: x and y are not on the curve"):
        curve.from_affine(x, y)
