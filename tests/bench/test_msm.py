"""The benchmark of multi-scalar multiplications: it checks results; its targets are for an H200."""

from __future__ import annotations

import dataclasses

import gpu_executor as gx
from gpu_executor.bench import msm
from gpu_executor.bench.msm import MsmRow


def test_every_size_is_timed_by_stage(gpu: gx.PersistentVulkanBackend) -> None:
    (rows,) = msm.measure_msms(gpu, [0, 3], ["BLS12_381_G1"])
    assert [row.log_points for row in rows] == [0, 3]
    assert all(row.ms > 0 and row.additions_per_second > 0 for row in rows)
    assert set(rows[0].stages_ms) == {
        "limb form", "digits", "sort", "accumulate", "combine", "reduce", "join",
    }  # fmt: skip
    assert msm.check_targets(rows, gpu.device) == []


def test_known_points_are_different_multiples_of_the_generator(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    curve = gx.curves.BLS12_381_G1
    known = msm.make_known_points(gpu, curve, 4)
    assert len(set(known.logarithms)) == 16
    assert (known.points.to_host() == curve.generator * known.logarithms).all()


def test_targets_are_times_and_rates(gpu: gx.PersistentVulkanBackend) -> None:
    device = dataclasses.replace(gpu.device, name="NVIDIA H200")
    row = MsmRow("BN254_G1", 22, "", 0.0, 17.0, 5.0e9)
    assert [each.met for each in msm.check_targets([row], device)] == [True, False]
