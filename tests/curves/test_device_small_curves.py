"""Every pair and every multiple of the points of small curves on a Vulkan device, against the
definition of the group law."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.msm import digits as msm_digits
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm import stages as msm_stages
from gpu_executor.ops import points as point_operations
from gpu_executor.ops.host_points import get_arithmetic
from tests.support.curves_under_test import (
    OVER_MERSENNE31,
    SMALL,
    SMALL_QUADRATIC,
    add_ints,
    encode_points,
    list_points,
    multiply_ints,
)

small = pytest.mark.parametrize("curve", SMALL, ids=lambda curve: curve.name)


def check_pairs(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    points = list_points(curve)
    pairs = list(product(points, repeat=2))
    first, second = (
        gpu.to_device(encode_points(curve, [pair[at] for pair in pairs])) for at in (0, 1)
    )
    expected = [add_ints(curve, *pair) for pair in pairs]
    total = first + second
    assert total.tolist() == expected
    assert (total - second).tolist() == [pair[0] for pair in pairs]
    doubled = first.double()
    assert doubled.tolist() == [add_ints(curve, one, one) for one, _ in pairs]
    assert (doubled + total).tolist() == [
        add_ints(curve, add_ints(curve, one, one), other)
        for (one, _), other in zip(pairs, expected, strict=True)
    ]


@small
def test_every_sum_and_difference(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    check_pairs(gpu, curve)


def list_all_points(curve: Curve) -> PointArray:
    """All points of a small curve over an extension field of degree 2."""
    arithmetic, modulus = get_arithmetic(curve.key), curve.key.prime.modulus
    elements = [arithmetic.field.make(each) for each in product(range(modulus), repeat=2)]
    points: list[Any] = [None]
    for x in elements:
        right = arithmetic.compute_right_side(x)
        points += [(x, y) for y in elements if not (y * y - right) % modulus]
    return PointArray(curve, arithmetic.store(points, (len(points),)))


@pytest.mark.parametrize("lanes", [1, 8])
def test_every_sum_over_an_extension_field(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    """Against the host; with a nonresidue that is not negative, a != 0 and a point of order 2."""
    if gpu.device.limits.subgroup_size % lanes:
        pytest.skip(f"subgroups of {gpu.device.limits.subgroup_size}, as on lavapipe on arm64")
    monkeypatch.setattr(point_operations, "count_lanes", lambda *_: lanes)
    curve = SMALL_QUADRATIC
    points = list_all_points(curve)
    assert len(points) == 44
    there, column = gpu.to_device(points), points.reshape(-1, 1)
    total = there.reshape(-1, 1) + there
    assert total.tolist() == (column + points).tolist()
    assert (total - there).tolist() == points.reshape(-1, 1).broadcast_to((44, 44)).tolist()
    assert (there.reshape(-1, 1) * list(range(11))).tolist() == (column * list(range(11))).tolist()


@small
def test_every_multiple(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    points = list_points(curve)
    there = gpu.to_device(encode_points(curve, points)).reshape(-1, 1)
    scalars = range(curve.order)
    found = (there * list(scalars)).tolist()
    assert found == [[multiply_ints(curve, k, point) for k in scalars] for point in points]


@small
def test_comparisons_of_every_pair(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    points = list_points(curve)
    there = gpu.to_device(encode_points(curve, points))
    infinity = there[0]
    same = np.eye(len(points), dtype=np.bool_)
    column, row = there.reshape(-1, 1), there.reshape(1, -1)
    for one, two in product((column, column + infinity), (row, row + infinity)):
        assert ((one == two) == same).all()


@pytest.mark.parametrize("curve", [SMALL[0], SMALL[3]], ids=lambda curve: curve.name)
@pytest.mark.parametrize("count", [1, 2, 33, 200])
def test_msm_of_repeated_points_and_scalars(
    gpu: gx.PersistentVulkanBackend, curve: Curve, count: int
) -> None:
    """Few different points and digits: equal and opposite points meet in every bucket."""
    draw = np.random.default_rng(count)
    points = list_points(curve)
    chosen = [points[at] for at in draw.integers(0, len(points), count)]
    scalars = draw.integers(0, curve.order, count).tolist()
    expected = None
    for point, scalar in zip(chosen, scalars, strict=True):
        expected = add_ints(curve, expected, multiply_ints(curve, scalar, point))
    there = gpu.to_device(encode_points(curve, chosen))
    assert curve.msm(there, scalars).tolist() == expected


@pytest.mark.parametrize(("block_length", "tables"), [(1, 1), (2, 2), (5, 1)])
def test_msm_by_groups_of_several_invocations(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    block_length: int,
    tables: int,
) -> None:
    """As GPUs compute it: runs of partial sums of all lengths, tables of multiples that a call
    makes, and windows that are sorted by themselves, without tables by packed digits; the plan of
    each count of points is recorded with these choices."""
    for module in (msm_stages, point_operations):
        monkeypatch.setattr(module, "count_lanes", lambda *_: 4)
    monkeypatch.setattr(msm_parts, "choose_tables", lambda *_: tables)
    monkeypatch.setattr(msm_stages, "choose_block_length", lambda *_: block_length)
    monkeypatch.setattr(msm_stages, "LEAST_GROUP_LENGTH", 2)
    monkeypatch.setattr(msm_digits, "gains_by_rows", lambda *_: True)
    monkeypatch.setattr(msm_digits, "can_sort_digits", lambda *_: block_length != 1)
    curve, draw = SMALL[3], np.random.default_rng(block_length)
    points = list_points(curve)
    for count in (1, 40 + 2 * block_length + tables, 300 + 2 * block_length + tables):
        chosen = [points[at] for at in draw.integers(0, len(points), count)]
        there = gpu.to_device(encode_points(curve, chosen))
        random = draw.integers(0, curve.order, count)
        hot = np.where(draw.random(count) < 0.9, 3, random)
        for scalars in (random, random * 0 + random[0], random % 2, hot):
            expected = None
            for point, scalar in zip(chosen, scalars.tolist(), strict=True):
                expected = add_ints(curve, expected, multiply_ints(curve, scalar, point))
            assert curve.msm(there, scalars.tolist()).tolist() == expected


def test_sums_by_groups_of_several_invocations(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As GPUs compute them: the products of a row on a lane each."""
    monkeypatch.setattr(point_operations, "count_lanes", lambda *_: 4)
    check_pairs(gpu, SMALL[1])


def test_multiples_in_parts_of_the_scalar(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with long scalars on a driver that limits the iterations of loops."""
    monkeypatch.setattr(point_operations, "MAX_ITERATIONS", 1)
    curve = SMALL[2]
    points = list_points(curve)
    there = gpu.to_device(encode_points(curve, points)).reshape(-1, 1)
    scalars = range(curve.order)
    found = (there * list(scalars)).tolist()
    assert found == [[multiply_ints(curve, k, point) for k in scalars] for point in points]
    assert there.sum().tolist() == encode_points(curve, points).sum().tolist()


@pytest.mark.parametrize("curve", [OVER_MERSENNE31, SMALL_QUADRATIC], ids=lambda curve: curve.name)
def test_windows_that_several_dispatches_join(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, curve: Curve
) -> None:
    """As with long orders on a driver that limits the iterations of loops: one sum, batches, tables
    and a graph, each with a plan of its own, which is recorded with this limit."""
    made: list[int] = []
    make_terms = msm_stages.Msm._make_terms

    def note_terms(self: msm_stages.Msm, *arguments: Any) -> Any:
        made.append(len(arguments))
        return make_terms(self, *arguments)

    monkeypatch.setattr(msm_stages.Msm, "_make_terms", note_terms)
    draw = random.Random(1)
    for steps, count in ((2, 3), (8, 19)):
        iterations = steps * point_operations.TERM_ITERATIONS[curve.key.degree]
        monkeypatch.setattr(point_operations, "MAX_ITERATIONS", iterations)
        logarithms = [draw.randrange(curve.order) for _ in range(count)]
        rows = [[draw.randrange(curve.order) for _ in range(count)] for _ in range(5)]
        rows[0] = [curve.order - 1] * count
        sums = [sum(k * x for k, x in zip(row, logarithms, strict=True)) for row in rows]
        expected = (curve.generator * sums).tolist()
        points = gpu.to_device(curve.generator * logarithms)
        table = curve.precompute(points, window=2, memory=points.data.nbytes)
        with gpu.graph(points) as graph:
            total = curve.msm(points, rows[:2])
        graph(points)
        assert total.tolist() == expected[:2]
        for given in (points, table):
            made.clear()
            assert curve.msm(given, rows[1]).tolist() == expected[1]
            assert curve.msm(given, rows).tolist() == expected
            assert curve.msm(given, rows).tolist() == expected  # recorded by now
            assert len(made) >= 2 or given is points or gpu.device.kind != "cpu"


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_scalar_of_one_column(gpu: gx.PersistentVulkanBackend, place: str) -> None:
    """From bytes and as a word, for one point and for several."""
    curve, scalar = OVER_MERSENNE31, OVER_MERSENNE31.order - 5
    points = curve.generator * [1, 2, 3]
    there = gpu.to_device(points) if place == "device" else points
    prime = curve.scalar_field.prime
    given = curve.scalar_field.from_bytes(scalar.to_bytes(prime.element_bytes, "big"))
    for factor in (given, np.array(scalar, prime.column_dtype)):
        assert ((there * factor).to_host() == points * scalar).all()
        assert (there[1] * factor).to_host() == points[1] * scalar


@pytest.mark.parametrize("curve", [OVER_MERSENNE31, SMALL_QUADRATIC], ids=lambda curve: curve.name)
def test_segments_are_as_long_as_a_driver_runs_their_loops(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, curve: Curve
) -> None:
    """Lavapipe leaves loops after 65,535 iterations. The points of one row are sums of those before
    it, so that every addition is a doubling beside the additions of the other rows."""
    monkeypatch.setattr(point_operations, "SEGMENT", 1 << 30)
    draw = random.Random(1)
    logarithms = [[draw.randrange(curve.order) for _ in range(3000)] for _ in range(3)]
    logarithms[1] = [1, *(pow(2, i, curve.order) for i in range(2999))]
    points = gpu.to_device(curve.generator * [each for row in logarithms for each in row])
    found = points.reshape(3, 3000).sum(axis=1)
    assert found.tolist() == (curve.generator * [sum(row) for row in logarithms]).tolist()
