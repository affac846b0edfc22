"""The benchmark of multi-scalar multiplications: it checks results; its targets are for an H200."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.bench import curve_pipelines, fields, kernel_timing, msm
from gpu_executor.bench.fields import FieldSizes
from gpu_executor.bench.msm import (
    CurveTimes,
    KnownPoints,
    MsmRow,
    SkewRow,
    TableRow,
    plan_points,
)
from gpu_executor.msm.stages import Msm
from tests.support.curves_under_test import FILLS_LIMBS, make_small
from tests.support.device_arrays import get_device_memory

G1 = gx.curves.BLS12_381_G1
SMALL = make_small(0x30FEFE62D1AA8C9B59EE318A7, 0, 3, 0x30FEFE62D1AAA990CF8733B39, (1, 2))
"""Its scalars have two words. Its pipelines compile in a fraction of the time of a named curve."""


@pytest.fixture
def small_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msm, "get_named", {"SMALL": SMALL}.__getitem__)
    monkeypatch.setattr(fields, "CPU_SIZES", FieldSizes(256, 256, 64, 4))
    monkeypatch.setattr(kernel_timing, "WARM_UP_SECONDS", 0.01)


@pytest.mark.usefixtures("small_curve")
def test_a_curve_is_timed_by_size_stage_table_and_skew(gpu: gx.PersistentVulkanBackend) -> None:
    (times,) = msm.measure_msms(gpu, [0, 3], ["SMALL"])
    assert [row.log_points for row in times.rows] == [0, 3]
    assert all(min(row.ms, row.mapped_ms, row.resident_ms) > 0 for row in times.rows)
    assert all(row.additions_per_second > 0 for row in times.rows)
    assert set(times.rows[0].stages_ms) == {
        "limb form", "digits", "sort", "accumulate", "combine", "reduce", "join",
    }  # fmt: skip
    assert times.products_per_second is not None
    assert {row.additions_bound for row in times.rows} == {times.products_per_second / 10}
    batch = msm.BATCH_ON_CPU[0] if gpu.device.kind == "cpu" else msm.BATCH[0]
    assert [(row.batch, row.log_points) for row in times.tables] == [(1, 0), (1, 3), (batch, 3)]
    assert all(min(row.ms, row.without_ms, row.precompute_ms) > 0 for row in times.tables)
    assert [row.scalars for row in times.skews] == ["all equal", "all 0 or 1", "one hot bucket"]
    assert all(row.ratio > 0 for row in times.skews)


@pytest.mark.usefixtures("small_curve")
def test_a_wrong_sum_is_noticed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_wrongly(_: KnownPoints, scalars: msm.Scalars) -> list[int]:
        return [1] * len(scalars)

    monkeypatch.setattr(KnownPoints, "compute_logarithms", count_wrongly)
    with pytest.raises(AssertionError, match="SMALL: a sum of 2 multiples is wrong"):
        next(msm.measure_msms(gpu, [1], ["SMALL"]))


def test_known_points_are_different_multiples_of_the_generator(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    """Scalars that are 1 for one point and 0 for the others find the logarithm of each point."""
    known = msm.make_known_points(gpu, SMALL, 5)
    units = np.zeros((32, 32, 2), np.uint64)
    units[np.arange(32), np.arange(32), 0] = 1
    logarithms = known.compute_logarithms(units)
    assert len(set(logarithms)) == 32
    assert (known.points.to_host() == SMALL.generator * logarithms).all()


@pytest.mark.parametrize("count", [1, 4, 32])
def test_logarithms_of_sums_are_those_of_exact_integers(count: int) -> None:
    known = KnownPoints(G1.generator, [3, 5, 7, 11], [2**200, 2**254, 0, 1, 2, 3, 4, 5])
    scalars = np.full((2, count, 4), 2**64 - 1, np.uint64)
    scalars[1] = np.random.default_rng(1).integers(0, 2**64, (count, 4), np.uint64)
    expected = []
    for row in scalars.tolist():
        integers = [sum(word << 64 * i for i, word in enumerate(words)) for words in row]
        terms = zip((a + b for a in known.by_row for b in known.by_column), integers, strict=False)
        expected.append(sum(a * b for a, b in terms))
    assert known.compute_logarithms(scalars) == expected


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(0, [0]), (3, [0, 3]), (9, [0, 6, 8, 9]), (None, [0, 6, 8])],
)
def test_sizes_end_with_the_largest(
    gpu: gx.PersistentVulkanBackend, largest: int | None, sizes: list[int]
) -> None:
    device = dataclasses.replace(gpu.device, kind="cpu")
    assert msm.choose_sizes(device, largest) == sizes


def test_one_bucket_of_the_lowest_window_is_hot(gpu: gx.PersistentVulkanBackend) -> None:
    drawn = msm.skew_scalars(G1, 64)
    plan = plan_points(G1, 64)
    device = get_device_memory(gpu)
    stages = Msm(device, G1.key, plan)
    words = gpu.to_device(drawn["one hot bucket"])
    keys, _ = stages.split_scalars(words, *stages.make_entries())
    by_window = keys.numpy().reshape(plan.windows, 2, 64)
    assert set(by_window[0, 0].tolist()) == {0}  # digit 1 of the first half
    assert len(set(by_window[0, 1].tolist())) > 1
    assert set(map(tuple, drawn["all 0 or 1"].tolist())) == {(0, 0, 0, 0), (1, 0, 0, 0)}
    assert len(set(map(tuple, drawn["all equal"].tolist()))) == 1


def test_additions_over_an_extension_take_three_times_the_products() -> None:
    assert msm.bound_additions(G1, 30e9) == 3e9
    assert msm.bound_additions(gx.curves.BLS12_381_G2, 30e9) == 1e9
    assert msm.bound_additions(G1, 30e9, rounds=1) == 30e9 / 8
    assert 4.7e9 < msm.bound_additions(G1, 30e9, rounds=4) < 5e9


def test_targets_are_times_rates_and_ratios(gpu: gx.PersistentVulkanBackend) -> None:
    device = dataclasses.replace(gpu.device, name="NVIDIA H200")
    bn254 = CurveTimes(
        "BN254_G1",
        None,
        [MsmRow(22, "", 0.0, 17.0, 16.0, 15.0, 5.0e9, None, {})],
        [TableRow(1024, 12, 1, 16, 1, 1.0, 99.0, 99.0)],
        [SkewRow(16, "all equal", 9.0, 3.5)],
    )
    bls = dataclasses.replace(bn254, curve="BLS12_381_G1", rows=[], skews=[])
    found = [(each.measured, each.met) for each in msm.check_targets([bn254, bls], device)]
    assert found == [(17.0, True), (5.0, False), (3.5, False), (99.0, False)]
    assert msm.check_targets([bn254], dataclasses.replace(device, name="another")) == []


def test_pipelines_are_compiled_at_their_first_dispatch() -> None:
    """A backend of its own has none of the pipelines."""
    with gx.PersistentVulkanBackend() as own:
        seconds = curve_pipelines.time_pipelines(own, FILLS_LIMBS)
    assert set(seconds) >= {
        "to_limb_form", "accumulate", "combine", "sum_pairs", "join_windows", "add_terms",
    }  # fmt: skip
    (target,) = curve_pipelines.check_targets("name", {"combine": 1.0, "join_windows": 3.5})
    assert not target.met
    assert target.what == "name, pipeline join_windows"
