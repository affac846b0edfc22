"""MSMs of few points, and joins of windows, in residues, as GPUs compute them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.curves.parameters import get_named
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels import residues
from gpu_executor.msm import parts, plan
from gpu_executor.msm.residues import choose_lengths
from gpu_executor.webgpu.device import WebGpuDevice
from tests.support.curves_under_test import WITH_HALVES
from tests.support.plans import describe_device

CURVES = ("BLS12_381_G1", "BN254_G1", "SECP256K1")
COUNTS = (1, 2, 8, 9, 33)
"""Up to eight points one work-group adds in each window."""


@pytest.fixture(autouse=True)
def in_residues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device computes in residues, as GPUs do, and any number of points."""
    for module in (plan, parts):
        monkeypatch.setattr(
            module, "has_residues", lambda curve, _info: residues.choose_bases(curve) is not None
        )
    monkeypatch.setattr(plan, "RESIDUE_ENTRIES", 1 << 30)


@pytest.fixture
def curve() -> Curve:
    """The curve with the most residues."""
    return get_named(CURVES[0])


@pytest.fixture
def rng() -> random.Random:
    return random.Random(11)


def check(
    gpu: gx.PersistentVulkanBackend, curve: Curve, logs: list[int], scalars: list[int]
) -> None:
    """Compare the MSM of multiples of the generator with one multiple."""
    points = gpu.to_device(curve.generator * logs)
    found = curve.msm(points, gpu.to_device(curve.scalar_field(scalars))).to_host()
    total = sum(a * b for a, b in zip(logs, scalars, strict=True)) % curve.order
    assert found == curve.generator * total


@pytest.mark.parametrize(
    ("name", "count"),
    [*((CURVES[0], count) for count in COUNTS), *((name, 9) for name in CURVES[1:])],
)
def test_few_points_of_every_kind(
    gpu: gx.PersistentVulkanBackend, name: str, rng: random.Random, count: int
) -> None:
    """Infinity, equal and opposite points, and scalars at both ends."""
    curve = get_named(name)
    r = curve.order
    logs = [rng.choice([0, 1, 2, r - 1, r - 2, rng.randrange(r)]) for _ in range(count)]
    scalars = [rng.choice([0, 1, 2, r - 1, r - 2, rng.randrange(r)]) for _ in range(count)]
    assert "residues" in str(curve.explain_msm(gpu.to_device(curve.generator * logs), scalars))
    check(gpu, curve, logs, scalars)


def test_halves_whose_digits_carry(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    """Halves of scalars whose digits are all 7, 8 or 15, of both signs."""
    glv = curve.glv
    assert glv is not None
    digits = ["7" * 31, "8" * 31, "f" * 31, "1" + "8" * 31, "1" + "7" * 31]
    halves = [int(each, 16) * sign for each in digits for sign in (1, -1)]
    scalars = [(a + b * glv.eigenvalue) % curve.order for a in halves for b in halves[:4]]
    check(gpu, curve, [5] * len(scalars), scalars)


def test_residues_are_explained_without_slices(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many points a device adds in residues: these have no buckets for a slice."""
    monkeypatch.setattr(parts, "copies_late", lambda *_: True)
    curve = get_named("BN254_G1")
    points = gpu.to_device(curve.generator * [1, 2, 3])
    text = str(curve.explain_msm(points, [4, 5, 6]))
    assert "residues" in text and "slices" not in text and "while" not in text
    assert curve.msm(points, [4, 5, 6]).to_host() == curve.generator * 32


def test_sums_that_are_infinity(gpu: gx.PersistentVulkanBackend, curve: Curve) -> None:
    r = curve.order
    for logs, scalars in (
        ([0, 0, 0], [1, 2, r - 1]),
        ([1, 1], [5, r - 5]),
        ([3, r - 3, 7], [r - 1, r - 1, 0]),
        ([9] * 10, [0] * 10),
    ):
        check(gpu, curve, logs, scalars)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 60, 126, 127, 128])
def test_short_scalars_are_not_split(
    gpu: gx.PersistentVulkanBackend, rng: random.Random, bits: int
) -> None:
    curve = get_named("BLS12_381_G1")
    scalars = [(1 << bits) - 1, 1 << bits - 1, *(rng.getrandbits(bits) for _ in range(3))]
    logs = [rng.randrange(curve.order) for _ in scalars]
    found = curve.msm(gpu.to_device(curve.generator * logs), scalars).to_host()
    total = sum(a * b for a, b in zip(logs, scalars, strict=True)) % curve.order
    assert found == curve.generator * total


def test_batches_share_points_or_have_their_own(
    gpu: gx.PersistentVulkanBackend, rng: random.Random
) -> None:
    curve = get_named("BN254_G1")
    logs = [[rng.randrange(curve.order) for _ in range(5)] for _ in range(3)]
    scalars = [[rng.randrange(curve.order) for _ in range(5)] for _ in range(3)]

    def add(rows: list[list[int]]) -> list[int]:
        return [
            sum(a * b for a, b in zip(row, own, strict=True)) % curve.order
            for row, own in zip(rows, scalars, strict=True)
        ]

    points = gpu.to_device(curve.generator * logs)
    assert (curve.msm(points, scalars).to_host() == curve.generator * add(logs)).all()
    shared = curve.msm(points[0], scalars).to_host()
    assert (shared == curve.generator * add([logs[0]] * 3)).all()


def test_points_in_xyzz_form_views_and_graphs(gpu: gx.PersistentVulkanBackend) -> None:
    curve = get_named("BN254_G1")
    points = gpu.to_device(curve.generator * [2, 3, 4, 5])
    doubled, field = points + points, curve.scalar_field
    scalars = gpu.to_device(field([1, 10, 100, 1000]))
    assert curve.msm(doubled, scalars).to_host() == curve.generator * 2 * 5432
    assert curve.msm(points[::-2], scalars[:2]).to_host() == curve.generator * (5 + 30)

    @gx.graph
    def add(given: gx.FieldArray) -> gx.curves.PointArray:
        return curve.msm(points, given)

    assert add(scalars).to_host() == curve.generator * 5432
    other = gpu.to_device(field([0, 0, 0, 7]))
    assert add(other).to_host() == curve.generator * 35
    assert curve.msm(points, scalars).to_host() == curve.generator * 5432
    assert add(scalars).to_host() == curve.generator * 5432


def test_points_outside_of_the_group_have_buckets(gpu: gx.PersistentVulkanBackend) -> None:
    """The formulas are complete in the group of prime order; nothing else is known of others."""
    curve = get_named("BLS12_381_G1")
    outside = curve.from_bytes(bytes([0x80]) + bytes(46) + bytes([4]), check=False)
    points = gpu.to_device(outside.reshape(1))
    assert "residues" not in str(curve.explain_msm(points, [5]))
    assert curve.msm(points, [5]).to_host() == (outside.reshape(1) * 5)[0]


def test_few_points_of_a_table_are_added_without_it(
    gpu: gx.PersistentVulkanBackend,
    curve: Curve,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """In one sum, in batches, in a graph and from a file, also if the points are overwritten."""
    r = curve.order
    logs = [0, 1, r - 1, rng.randrange(r), rng.randrange(r)]
    points = gpu.to_device(curve.generator * logs)
    table = curve.precompute(points, window=4)
    table.save(tmp_path / "table")
    loaded = curve.load_table(tmp_path / "table", points)
    points.data.fill(0)
    rows = [[rng.randrange(r) for _ in logs], [r - 1, 0, 1, 0, 0], [0] * 5]
    sums = [sum(a * b for a, b in zip(logs, row, strict=True)) % r for row in rows]
    expected = curve.generator * sums
    for each in (table, loaded):
        assert "without buckets" in str(curve.explain_msm(each, rows))
        assert (curve.msm(each, rows).to_host() == expected).all()
        assert curve.msm(each, rows[0]).to_host() == expected[0]

    @gx.graph
    def add(given: gx.FieldArray) -> gx.curves.PointArray:
        return curve.msm(table, given)

    assert add(gpu.to_device(curve.scalar_field(rows[0]))).to_host() == expected[0]
    assert add(gpu.to_device(curve.scalar_field(rows[1]))).to_host() == expected[1]
    monkeypatch.setattr(plan, "RESIDUE_ENTRIES", 0)
    assert "without buckets" not in str(curve.explain_msm(table, batch=1))
    assert (curve.msm(table, rows).to_host() == expected).all()


def test_a_table_and_its_points_take_the_memory_that_they_may(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    """The copy of the points comes before a second table, and a first table before the copy."""
    points = gpu.to_device(curve.generator * [1, 2, 3])
    one = points.data.nbytes
    for memory, tables, copies in ((2 * one - 1, 1, False), (2 * one, 1, True), (3 * one, 2, True)):
        table = curve.precompute(points, window=4, memory=memory)
        assert (table.plan.tables, table.nbytes <= memory) == (tables, True)
        assert ("without buckets" in str(curve.explain_msm(table))) == copies
        assert curve.msm(table, [4, 5, 6]).to_host() == curve.generator * 32


def test_a_table_takes_the_place_of_residues_from_half_of_their_digits_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curve, bits = get_named("BN254_G1"), 254
    info = describe_device(lanes=plan.MEASURED_LANES)

    def is_in_residues(has_table: bool) -> bool:
        """Of seven points and two sums, with halves of 32 windows: 2 x 7 x 2 x 32 digits."""
        made = plan.plan_residues(
            curve.key, 7, 2, bits, curve.glv, info, shares_points=True, has_table=has_table
        )
        return made is not None

    digits = 7 * 2 * 2 * 32
    for most, expected in (
        (digits - 1, (False, False)),
        (digits, (True, False)),
        (2 * digits - 1, (True, False)),
        (2 * digits, (True, True)),
    ):
        monkeypatch.setattr(plan, "RESIDUE_ENTRIES", most)
        assert (is_in_residues(False), is_in_residues(True)) == expected


def test_a_table_has_no_copy_of_many_points(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = get_named("BN254_G1")
    points = gpu.to_device(curve.generator * [1, 2, 3])
    multiples = 2 * 3 * plan.MULTIPLES * 4 * residues.POINT_WORDS  # of the points and their images
    for most, copies in ((multiples, True), (multiples - 1, False)):
        monkeypatch.setattr(plan, "MAX_MULTIPLES_BYTES", most)
        table = curve.precompute(points, window=4)
        assert (table.nbytes > table.data.nbytes) == copies
        assert ("table: not used" in str(curve.explain_msm(table))) == copies


def test_tables_of_points_outside_of_the_group_have_buckets(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    curve = get_named("BLS12_381_G1")
    outside = curve.from_bytes(bytes([0x80]) + bytes(46) + bytes([4]), check=False).reshape(1)
    table = curve.precompute(gpu.to_device(outside), window=4)
    assert "without buckets" not in str(curve.explain_msm(table, [5]))
    assert curve.msm(table, [5]).to_host() == (outside * 5)[0]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_windows_of_buckets_are_joined_in_residues(
    gpu: gx.PersistentVulkanBackend,
    curve: Curve,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    monkeypatch.setattr(plan, "RESIDUE_ENTRIES", 0)
    r = curve.order
    logs = [rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(count)]
    check(gpu, curve, logs, [rng.choice([0, 1, r - 1, rng.randrange(r)]) for _ in range(count)])


def test_curves_with_residues() -> None:
    """The bases have room for every sum of two products, and their moduli are coprime."""
    for name in ("BLS12_381_G1", "BN254_G1", "SECP256K1", "PALLAS", "VESTA", "BLS12_377_G1"):
        bases = residues.choose_bases(get_named(name).key)
        assert bases is not None
        assert len(bases.a) == len(bases.b) <= residues.MAX_RESIDUES
        moduli = [*bases.a, *bases.b]
        assert int(np.lcm.reduce(np.array(moduli, object))) == int(
            np.prod(np.array(moduli, object))
        )
        assert all((1 << 30) - 1024 < each < 1 << 30 for each in moduli)
    for name in ("BLS12_381_G2", "BN254_G2"):
        assert residues.choose_bases(get_named(name).key) is None


def test_sums_of_products_fit_64_bits() -> None:
    """The bounds that glsl/curves/residues.glsl states, for the largest numbers."""
    mask = (1 << 30) - 1

    def reduce(x: int, c: int) -> int:
        y = (x >> 30 & mask) * c + (x & mask) + (x >> 60) * c * c
        assert (x & mask) + (x >> 60) * c * c < 1 << 32
        return (y & mask) + (y >> 30) * c

    c = residues.MAX_OFFSET - 1
    bound = (1 << 30) + (1 << 21)
    most = (1 << 60) - 1
    assert max(reduce(x, c) for x in ((1 << 64) - 1, most | 15 << 60, most, most - mask)) < bound
    terms = residues.MAX_RESIDUES * bound * mask
    assert terms + bound * mask < 1 << 64
    assert terms + (residues.MAX_RESIDUES + 1) * mask < 1 << 64
    lifted = bound + (1 << 30)  # the multiple of p that is added
    difference, total = bound + lifted, 2 * bound
    assert difference < 1 << 32
    assert difference * total + bound * bound < 1 << 64  # Y of a sum
    assert 2 * bound * difference + bound * total < 1 << 64  # X of a doubling
    assert bound * lifted + bound * bound < 1 << 64  # a product with an opposite point


def test_a_large_coefficient_has_no_residues() -> None:
    p = get_named("SECP256K1").field.modulus
    shifted = get_named("SECP256K1")
    scale = 3**6  # (9 x, 27 y) is on the curve with b = 7 * 3^6
    x, y = shifted.generator.tolist()
    curve = Curve(
        shifted.field,
        0,
        7 * scale,
        order=shifted.order,
        generator=(9 * x % p, 27 * y % p),
        name="c",
    )
    assert residues.choose_bases(curve.key) is None


@pytest.mark.parametrize("terms", [1, 2, 8, 9, 16, 17, 100, 2048, 70000])
def test_every_term_is_added_once(terms: int) -> None:
    left = terms
    for length in choose_lengths(terms, 32):
        left = -(-left // length)
    assert left == 1


def test_many_points_with_short_scalars_go_to_buckets(gpu: gx.PersistentVulkanBackend) -> None:
    """Their digits are few, and the multiples of all points would exceed a binding."""
    curve = gx.curves.BN254_G1
    points = gpu.to_device((curve.generator * [1, 2, 3])[np.arange(44_000) % 3])
    assert "without buckets" not in str(curve.explain_msm(points, [1] * 44_000))
    assert "without buckets" in str(curve.explain_msm(points[:2_000], [1] * 2_000))


@pytest.mark.parametrize(
    "few",
    [True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["few points", "joins"],
)
def test_webgpu_computes_in_residues_on_a_gpu(
    webgpu_like_a_gpu: gx.WgpuExecutor, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        monkeypatch.setattr(plan, "RESIDUE_ENTRIES", 0)
    curve = WITH_HALVES
    points = webgpu_like_a_gpu.to_device(curve.generator * [1, 2, 3])
    assert ("without buckets" in str(curve.explain_msm(points, [7] * 3))) == few
    r = curve.order
    found = curve.msm(points, [r - 1, 5, r - 2]).to_host()
    assert found == curve.generator * (-1 + 10 - 6)


@pytest.fixture(scope="module")
def webgpu_like_a_gpu() -> Iterator[gx.WgpuExecutor]:
    """An adapter that is described as a GPU, whose groups of lanes add points."""
    describe = WebGpuDevice._describe

    def describe_as_gpu(device: WebGpuDevice, *arguments: Any) -> DeviceInfo:
        return dataclasses.replace(describe(device, *arguments), kind="discrete")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WebGpuDevice, "_describe", describe_as_gpu)
        executor = gx.WgpuExecutor()
    with executor:
        yield executor
