"""Rounds of affine additions: the sums that they leave, against the definition of the group law."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.kernels.curves import curve_limbs
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm import plan as msm_plan
from gpu_executor.msm import stages as msm_stages
from gpu_executor.msm.plan import (
    choose_rounds,
    count_sums,
    has_rounds,
    plan_msm,
    resize_plan,
    with_rounds,
)
from gpu_executor.msm.stages import AffineRounds
from gpu_executor.ops.points import to_limb_form
from gpu_executor.vulkan import device_trials
from gpu_executor.vulkan.device_trials import measure_bytes_per_product
from tests.support.curves_under_test import (
    FILLS_LIMBS,
    FILLS_WORDS,
    OVER_MERSENNE31,
    SMALL,
    WITH_HALVES,
    IntPoint,
    add_ints,
    encode_points,
    list_points,
    multiply_ints,
)
from tests.support.device_arrays import get_device_memory
from tests.support.plans import describe_device

NO_KEY, NEGATIVE = 0xFFFFFFFF, 0x80000000
SMALL_CURVES = [SMALL[0], SMALL[4]]
"""With a generator of x = 0, and with points of order 2; a is not 0."""
LARGER = [OVER_MERSENNE31, FILLS_LIMBS, FILLS_WORDS, WITH_HALVES]
"""With limbs of 28 and 30 bits, and primes that fill words or limbs."""


@pytest.fixture(autouse=True)
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invocation has several pairs, though there are few."""
    monkeypatch.setattr(msm_stages, "LEAST_PAIRS", 3)


def draw_points(curve: Curve, draw: random.Random, count: int) -> list[IntPoint]:
    """Points of a curve, some of them equal, opposite or infinity."""
    if curve in SMALL:
        return draw.choices(list_points(curve), k=count)
    pair = curve.generator.affine().tolist()
    few: list[IntPoint] = [multiply_ints(curve, draw.randrange(curve.order), pair) for _ in "123"]
    many = [few[0]]
    while len(many) < count // 2:
        many.append(add_ints(curve, many[-1], draw.choice(few)))
    return draw.sample([*many, *draw.choices([None, *few], k=count - len(many))], count)


def sum_entries(curve: Curve, points: list[IntPoint], entries: Iterable[int]) -> IntPoint:
    """The sum of the points of entries, by the definition of the group law."""
    total: IntPoint = None
    for entry in entries:
        point = points[entry & ~NEGATIVE]
        if entry & NEGATIVE and point is not None:
            point = point[0], -point[1] % curve.key.prime.modulus
        total = add_ints(curve, total, point)
    return total


def run_rounds(
    gpu: gx.PersistentVulkanBackend,
    curve: Curve,
    points: list[IntPoint],
    rows: list[tuple[int, int]],
    runs: int,
    rounds: int,
) -> tuple[list[int], list[IntPoint]]:
    """The keys and the sums that the rounds leave of rows of a key and an entry."""
    device, modulus = get_device_memory(gpu), curve.key.prime.modulus
    table = to_limb_form(device, curve.key, device.put(encode_points(curve, points).words()))
    keys, entries = (np.array(each, np.uint32) for each in zip(*rows, strict=True))
    made = AffineRounds(device, curve.key, len(keys), runs, rounds)
    made.find_pairs(device.put(keys), device.put(entries))
    sums, left = made.add(table).numpy(), made.keys.numpy().tolist()
    assert len(left) == len(sums) == count_sums(len(keys), runs, rounds)
    count = left.index(NO_KEY) if NO_KEY in left else len(left)
    assert set(left[count:]) <= {NO_KEY}
    layout = curve_limbs(curve.key)
    inverse = pow(1 << layout.bits * layout.count, -1, modulus)
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(sums[:count]).view(np.uint32)
    numbers = [
        tuple(int.from_bytes(each.tobytes(), "little") for each in point)
        for point in words.reshape(count, 2, -1)
    ]
    assert all(each < modulus for point in numbers for each in point)
    found = [(x * inverse % modulus, y * inverse % modulus) if x or y else None for x, y in numbers]
    return left[:count], found


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("curve", [*SMALL_CURVES, *LARGER], ids=lambda curve: curve.name)
def test_rounds_leave_the_sums_of_every_run(
    gpu: gx.PersistentVulkanBackend, curve: Curve, rounds: int
) -> None:
    """Runs of all lengths from 0 on and a long one, in any place, between entries that are none:
    equal, opposite and infinite points meet, which are added or subtracted."""
    draw = random.Random(rounds)
    lengths = draw.sample([*range(20), 90], 21)
    points = draw_points(curve, draw, 60)
    runs = [
        [draw.randrange(len(points)) | NEGATIVE * draw.randrange(2) for _ in range(length)]
        for length in lengths
    ]
    rows: list[tuple[int, int]] = []
    for key, run in enumerate(runs):
        rows += [(key, entry) for entry in run]
        rows += [(NO_KEY, 0)] * draw.choice([0, 0, 1, 2])
    keys, sums = run_rounds(gpu, curve, points, rows, len(lengths), rounds)
    assert keys == sorted(keys)
    for key, run in enumerate(runs):
        mine = [point for each, point in zip(keys, sums, strict=True) if each == key]
        assert len(mine) == -(-len(run) // 2**rounds)
        assert sum_entries(curve, mine, range(len(mine))) == sum_entries(curve, points, run)


@pytest.mark.parametrize("curve", SMALL_CURVES, ids=lambda curve: curve.name)
def test_every_sum_and_difference_of_two_points(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    points = list_points(curve)
    entries = [at | sign for at in range(len(points)) for sign in (0, NEGATIVE)]
    pairs = list(itertools.product(entries, repeat=2))
    rows = [(key, entry) for key, pair in enumerate(pairs) for entry in pair]
    keys, sums = run_rounds(gpu, curve, points, rows, len(pairs), 1)
    assert keys == list(range(len(pairs)))
    assert sums == [sum_entries(curve, points, pair) for pair in pairs]


@pytest.mark.parametrize("slices", [False, True])
def test_msm_in_rounds(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, *, slices: bool
) -> None:
    """As a GPU with integer limbs computes it, recorded, with skewed scalars too; the scalars of
    the host may come in two slices."""
    monkeypatch.setattr(msm_plan, "count_round_pairs", lambda _: 64)
    monkeypatch.setattr(msm_parts, "has_rounds", lambda *_: True)
    monkeypatch.setattr(msm_parts, "choose_tables", lambda *_: 1)  # as for many points
    if slices:
        monkeypatch.setattr(msm_parts, "copies_late", lambda *_: True)
        monkeypatch.setattr(msm_parts, "choose_slices", lambda *_, **__: (256, 445))
    curve, draw, count = SMALL[4], np.random.default_rng(7), 700 + slices
    points = list_points(curve)
    chosen = [points[at] for at in draw.integers(0, len(points), count)]
    there = gpu.to_device(encode_points(curve, chosen))
    random_scalars = draw.integers(0, curve.order, count).astype(np.uint32)
    given = curve.scalar_field.encode(random_scalars.tolist())
    plan = str(curve.explain_msm(there, given))
    assert "rounds: " in plan and "of affine additions, which leave at most" in plan
    assert ("slices: 2" in plan) == slices
    for scalars in (random_scalars, random_scalars * 0 + 5, random_scalars % 2):
        expected = None
        for point, scalar in zip(chosen, scalars.tolist(), strict=True):
            expected = add_ints(curve, expected, multiply_ints(curve, scalar, point))
        for _ in range(2):  # recorded, then replayed
            found = curve.msm(there, curve.scalar_field.encode(scalars.tolist()))
            assert found.tolist() == expected


def test_rounds_are_chosen_by_pairs_and_by_the_length_of_runs() -> None:
    pairs = 1 << 22
    assert [choose_rounds(each, 1, pairs) for each in (0, pairs, 2 * pairs - 1)] == [0, 0, 0]
    assert [choose_rounds(pairs << each, 1, pairs) for each in (1, 2, 4)] == [1, 2, 4]
    assert choose_rounds(16 * pairs, 4 * pairs, pairs) == 1  # runs of 4 become runs of 2
    assert choose_rounds(16 * pairs, 8 * pairs, pairs) == 0


def test_slices_have_rounds_of_their_own() -> None:
    info = describe_device()
    whole = with_rounds(plan_msm(1 << 22, 1, 255), info)
    assert whole.rounds == 4
    assert resize_plan(whole, 1 << 20, info).rounds == 2
    assert resize_plan(plan_msm(1 << 22, 1, 255), 1 << 20, info).rounds == 0


def test_tables_of_a_call_have_no_rounds() -> None:
    """Their points have denominators."""
    assert with_rounds(plan_msm(1 << 22, 1, 255, tables=2), describe_device()).rounds == 0


def test_devices_that_gain_from_rounds(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that add with integer limbs in single invocations, and whose memory is fast: not CPUs,
    and not those whose f64 limbs are as fast."""
    device, curve = get_device_memory(gpu), gx.curves.BLS12_381_G1.key
    assert device.info.kind != "cpu" or not has_rounds(device, curve)
    monkeypatch.setattr(msm_plan, "count_lanes", lambda *_: 4)
    monkeypatch.setitem(vars(device), "bytes_per_product", 112.0)  # as on an NVIDIA H200
    assert has_rounds(device, curve)
    assert not has_rounds(device, gx.curves.BLS12_381_G2.key)
    for fast in (False, True):
        monkeypatch.setitem(vars(device), "f64_limbs", fast)
        assert has_rounds(device, gx.curves.BN254_G1.key) != fast
    for slower in (20.0, 0.0):
        monkeypatch.setitem(vars(device), "bytes_per_product", slower)
        assert not has_rounds(device, curve)


def test_bytes_per_product_are_measured(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against given times, and with those of the device; also while a graph is recorded."""
    device = get_device_memory(gpu)
    monkeypatch.setattr(device_trials, "TRIAL_POINTS", 1 << 11)
    monkeypatch.setattr(device_trials, "COPIED_BYTES", 1 << 20)
    monkeypatch.setattr(device_trials, "WARM_UP_SECONDS", 0.01)
    there = gpu.to_device(np.array([3, 1, 2], np.uint32))
    with gx.graph(there) as graph:
        ascending = gx.ops.sort(there)
        assert (measure_bytes_per_product(device) or 0) > 0
    graph(np.array([9, 7, 8], np.uint32))
    assert ascending.numpy().tolist() == [7, 8, 9]
    monkeypatch.setattr(device_trials, "WARM_UP_SECONDS", 0)
    times = itertools.cycle([4.0, 2.0])  # the products, then four copies
    monkeypatch.setattr(device_trials, "_time", lambda *_: next(times))
    products, moved = device_trials.TRIAL_COEFFICIENTS << 11, 8 << 20
    assert measure_bytes_per_product(device) == (moved / 2.0) * (4.0 / products)


def test_no_memory_to_measure_means_no_rounds(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OutOfMemoryError("no memory")

    device = get_device_memory(gpu)
    monkeypatch.setattr(device, "empty", refuse)
    assert measure_bytes_per_product(device) is None
