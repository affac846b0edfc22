"""Scalars in halves: which points have them, and the sums of points and their images."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.parameters import NAMES
from gpu_executor.errors import ArgumentTypeError, PointError
from gpu_executor.msm import digits as msm_digits
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm.parts import MsmParts
from gpu_executor.msm.plan import DEVICE_COSTS, MsmPlan
from gpu_executor.msm.scalars import to_scalar_words
from gpu_executor.msm.stages import Msm
from gpu_executor.primes.glv import LEAST_WINDOW_BITS, Glv
from tests.support.curves_under_test import SMALL, WITH_HALVES
from tests.support.device_arrays import get_device_memory

G1 = gx.curves.BLS12_381_G1
Gpu = gx.PersistentVulkanBackend


def list_named() -> list[Curve]:
    return [getattr(gx.curves, name) for name in NAMES]


def get_glv(curve: Curve) -> Glv:
    assert curve.glv is not None
    return curve.glv


def get_plan(points: PointArray) -> MsmPlan:
    explained = cast(Curve, points.curve).explain_msm(points)
    assert isinstance(explained, MsmParts)
    return explained.part


def make_outside(count: int) -> PointArray:
    """Points of BLS12-381 G1 of which none is in the group of prime order."""
    field, x = G1.field, 1
    found: list[tuple[int, int]] = []
    while len(found) < count:
        y2 = field.encode([(x**3 + 4) % field.modulus])
        if field.is_square(y2).all():
            found.append((x, int(field.sqrt(y2).tolist()[0])))
        x += 1
    return G1.from_affine(*map(list, zip(*found, strict=True)), check=False)


@pytest.mark.parametrize("curve", list_named(), ids=NAMES)
def test_the_basis_spans_the_lattice_of_a_cube_root_of_unity(curve: Curve) -> None:
    glv = get_glv(curve)
    (a1, b1), (a2, b2) = glv.basis
    eigenvalue = glv.eigenvalue
    assert (eigenvalue**2 + eigenvalue + 1) % curve.order == 0
    assert (a2 + b2 * eigenvalue) % curve.order == 0
    assert abs(a1 * b2 - a2 * b1) == curve.order
    assert glv.scalar_bits <= curve.order.bit_length() // 2 + 1


def test_curves_without_a_cube_root_map_have_no_halves() -> None:
    assert all(curve.glv is None for curve in SMALL)


def list_scalars(curve: Curve) -> list[int]:
    """Scalars whose halves are the smallest and the largest, of all signs, and random ones."""
    glv, draw = get_glv(curve), random.Random(1)
    (a1, b1), (a2, b2) = glv.basis
    corners = [
        k1 + k2 * glv.eigenvalue
        for s in (-1, 1)
        for t in (-1, 1)
        for k1, k2 in [((s * a1 + t * a2) // 2, (s * b1 + t * b2) // 2), (s, 0), (0, t), (s, t)]
    ]
    near = [corner + each for corner in corners for each in (-1, 0, 1)]
    random_ones = [draw.randrange(curve.order) for _ in range(16)]
    return [each % curve.order for each in (0, *near, curve.order // 2, *random_ones)]


@pytest.mark.parametrize("curve", [G1, gx.curves.SECP256K1], ids=repr)
def test_sums_of_extreme_halves(gpu: Gpu, curve: Curve) -> None:
    """Of random points, so that a wrong half is not hidden by another: errors would cancel each
    other only if these logarithms solved an equation."""
    scalars, draw = list_scalars(curve), random.Random(3)
    logarithms = [draw.randrange(curve.order) for _ in scalars]
    points = gpu.to_device(curve.generator * logarithms)
    assert get_plan(points).glv == curve.glv
    rows = np.array([scalars, scalars[::-1]], np.object_)
    totals = [sum(k * one for k, one in zip(row, logarithms, strict=True)) for row in rows]
    assert (curve.msm(points, rows).to_host() == curve.generator * totals).all()


@pytest.mark.parametrize("curve", list_named(), ids=NAMES)
def test_digits_of_halves(gpu: Gpu, curve: Curve) -> None:
    """Digits of windows of every length, as integers: k1 + k2 l is the scalar, modulo the order."""
    glv, scalars = get_glv(curve), list_scalars(curve)
    device, count, eigenvalue = get_device_memory(gpu), len(scalars), glv.eigenvalue
    words = gpu.to_device(to_scalar_words(curve.scalar_field, scalars))
    for window_bits in range(LEAST_WINDOW_BITS, DEVICE_COSTS.max_bits + 1):
        plan = MsmPlan(count, 1, glv.scalar_bits, window_bits, glv=glv)
        msm = Msm(device, curve.key, plan)
        keys, entries = (each.numpy() for each in msm.split_scalars(words, *msm.make_entries()))
        halves = [0] * (2 * count)
        for key, entry in zip(keys.tolist(), entries.tolist(), strict=True):
            if key != 0xFFFFFFFF:
                window, digit = key // plan.buckets, key % plan.buckets + 1
                sign = -1 if entry >> 31 else 1
                halves[entry & 0x7FFFFFFF] += sign * digit << window_bits * window
        found = [k1 + k2 * eigenvalue for k1, k2 in zip(halves, halves[count:], strict=False)]
        assert [each % curve.order for each in found] == scalars
        assert max(map(abs, halves)) <= 3 << glv.scalar_bits >> 2


@pytest.mark.parametrize(("batch", "windows"), [(1, (LEAST_WINDOW_BITS, 15)), (3, (9, 16))])
def test_packed_digits_are_the_same(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, batch: int, windows: tuple[int, ...]
) -> None:
    """Digits in one word, of halves and of whole scalars, and their order: that of digits in two
    words. Both passes of a sort have equally many bits, or not."""
    curve, device = gx.curves.BN254_G2, get_device_memory(gpu)
    scalars = list_scalars(curve)
    rows = np.array([scalars[at:] + scalars[:at] for at in range(batch)], np.object_)
    words = gpu.to_device(to_scalar_words(curve.scalar_field, rows))
    for glv in (curve.glv, None):
        bits = curve.order.bit_length() if glv is None else glv.scalar_bits
        for window_bits in windows:
            plan = MsmPlan(len(scalars), batch, bits, window_bits, glv=glv)
            found = []
            for packs in (False, True):
                monkeypatch.setattr(msm_digits, "can_sort_digits", lambda *_, own=packs: own)
                monkeypatch.setattr(msm_digits, "gains_by_rows", lambda *_: True)
                msm = Msm(device, curve.key, plan)
                entries = msm.make_entries()
                assert len(entries) == (1 if packs else 2)
                found.append(
                    [each.numpy() for each in msm.sort(*msm.split_scalars(words, *entries))]
                )
            keys = found[0][0]
            assert (found[1][0] == keys).all()
            has_bucket = keys != 0xFFFFFFFF  # no point is added for other digits, with any sign
            assert (found[0][1] == found[1][1])[has_bucket].all()


@pytest.mark.parametrize("place", ["device", "slices", "tables", "streamed", "cpu"])
def test_scalars_of_the_host_are_those_of_the_call(
    gpu: Gpu, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(2)
    numbers = [G1.order - 1, 0, 1, *(draw.randrange(G1.order) for _ in range(13))]
    scalars = G1.scalar_field.encode(numbers)
    points = G1.generator * list(range(1, 17))
    expected = G1.generator * sum(k * (i + 1) for i, k in enumerate(numbers))
    if place in ("slices", "tables"):
        if place == "slices":
            monkeypatch.setattr(msm_parts, "copies_late", lambda *_: True)
            monkeypatch.setattr(msm_parts, "choose_slices", lambda *_, **__: (4, 12))
        else:
            monkeypatch.setattr(msm_parts, "choose_tables", lambda *_: 2)
        there, mapped = gpu.to_device(points), gpu.asarray(scalars)
        for given in (scalars, mapped, scalars[::-1].copy()[::-1]):
            assert G1.msm(there, given).to_host() == expected
        found = G1.msm(there, scalars)
        scalars[:] = 0  # the result has the scalars of its call
        assert found.to_host() == expected
    elif place == "streamed":
        assert G1.msm(points, scalars, device=gpu) == expected
    else:
        backend = gpu if place == "device" else gx.open_backend("cpu")
        assert G1.msm(backend.to_device(points), scalars).to_host() == expected


def test_points_outside_the_group_have_no_halves(gpu: Gpu) -> None:
    """k P + l Q by additions; the map has another eigenvalue on these points."""
    points = gpu.to_device(make_outside(4))
    assert not points.known_in_subgroup
    k, total = 0b1011 << 200, points[0]
    for bit in format(k, "b")[1:]:
        total = total.double() + points[0] if bit == "1" else total.double()
    expected = (total + points[1] + points[2] + points[3]).to_host()
    assert G1.msm(points, [k, 1, 1, 1]).to_host() == expected
    assert get_plan(points).glv is None


def test_halves_in_a_group_that_is_not_all_points_of_its_order(gpu: Gpu) -> None:
    """The map multiplies the points of the group of the generator by a number, and others not."""
    curve = WITH_HALVES
    other = 0xA85EBC5960C085834DE59534D43C2DD30CC, 0x9B7A24942679DD9C29483D2FA4C9576857D
    x, y = ([each] for each in other)
    with pytest.raises(PointError, match="not in the group"):
        curve.from_affine(x, y)
    outside, inside = curve.from_affine(x, y, check=False), curve.generator * [5]
    scalars = [curve.order // 3]
    for points, glv in ((outside, None), (inside, get_glv(curve))):
        there = gpu.to_device(points)
        found = curve.msm(there, scalars).to_host()
        assert found == points[0] * scalars[0]
        assert get_plan(there).glv == glv
    # The map does not map the group of this generator to itself.
    mixed = (outside + inside).tolist()[0]
    without = Curve(curve.field, 0, 2, order=curve.order, generator=mixed)
    assert without.glv is None and without != curve


def test_checked_points_and_what_is_computed_from_them_have_halves(gpu: Gpu) -> None:
    outside, checked = make_outside(3), G1.generator * [1, 2, 3]
    data = checked.to_bytes()
    known: list[Callable[[], PointArray]] = [
        lambda: G1.from_bytes(data),
        lambda: G1.from_bytes(data, device=gpu),
        lambda: G1.from_affine(checked.x, checked.y),
        lambda: G1.from_words(checked.numpy(), "canonical"),
        lambda: G1.infinity(3),
        lambda: (checked + checked[::-1] - checked.double() * 5).reshape(3, 1)[1:],
        lambda: gpu.to_device(checked).affine().to_host().copy(),
        lambda: G1.concatenate([checked, -checked]),
        checked.sum,
        lambda: G1.msm(gpu.to_device(checked), [1, 2, 3]),
        lambda: G1.msm(G1.precompute(gpu.to_device(checked)), [1, 2, 3]),
        lambda: pickle.loads(pickle.dumps(checked)),
    ]
    unknown: list[Callable[[], PointArray]] = [
        lambda: G1.from_bytes(data, check=False),
        lambda: G1.from_affine(checked.x, checked.y, check=False),
        lambda: G1.from_words(checked.words(), "montgomery", check=False),
        lambda: checked + outside,
        lambda: outside * 5,
        lambda: G1.concatenate([checked, outside]),
        lambda: G1.stack([outside, checked]),
        outside.sum,
        lambda: G1.msm(gpu.to_device(outside), [1, 2, 3]),
        lambda: G1.msm(G1.precompute(gpu.to_device(outside)), [1, 2, 3]),
        lambda: pickle.loads(pickle.dumps(outside)),
    ]
    assert [make().known_in_subgroup for make in known] == [True] * len(known)
    assert [make().known_in_subgroup for make in unknown] == [False] * len(unknown)


def test_a_graph_of_checked_points_refuses_others(gpu: Gpu) -> None:
    """The recorded commands split scalars into halves."""
    checked, outside = gpu.to_device(G1.generator * [1, 2]), gpu.to_device(make_outside(2))
    with gx.graph(checked) as run:
        total = G1.msm(checked, [3, 2**200])
    run(gpu.to_device(G1.generator * [5, 7]))
    assert total.to_host() == G1.generator * (3 * 5 + 2**200 * 7)
    with pytest.raises(ArgumentTypeError, match="known to be in the group of prime order"):
        run(outside)
