"""Plans of multi-scalar multiplications in parts: pure decisions from sizes, limits and memory."""

from __future__ import annotations

import dataclasses

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm.parts import (
    MsmParts,
    measure_memory,
    plan_parts,
    split_evenly,
)
from gpu_executor.msm.plan import MsmPlan, plan_msm, with_rounds
from gpu_executor.steps.dry_device import DryDevice

G1 = gx.curves.BLS12_381_G1.key
GIB = 1 << 30


@pytest.fixture(scope="module")
def info() -> DeviceInfo:
    """A GPU that binds 4 GiB: the description of the CPU backend with other limits."""
    with gx.CpuBackend() as cpu:
        known = cpu.device
    limits = dataclasses.replace(
        known.limits,
        max_storage_buffer_range=4 * GIB - 1,
        max_shared_memory=48 << 10,
        subgroup_size=32,
        min_subgroup_size=32,
    )
    return dataclasses.replace(known, name="a GPU", kind="discrete", limits=limits)


def plan(info: DeviceInfo, points: int, memory: int, **options: bool) -> MsmParts:
    return plan_parts(G1, plan_msm(points, 1, 255), DryDevice(info), memory, **options)


@pytest.mark.parametrize("count", [0, 1, 7, 100])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_ranges_cover_everything_evenly(count: int, parts: int) -> None:
    ranges = split_evenly(count, parts)
    assert [each for one in ranges for each in range(one.start, one.stop)] == list(range(count))
    lengths = {one.stop - one.start for one in ranges}
    assert len(ranges) == parts and max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("bits", [1, 64, 255, 521, 700, 768])
@pytest.mark.parametrize("window_bits", [2, 3, 16, 22])
@pytest.mark.parametrize("tables", [1, 2, 5])
def test_joins_cover_all_windows_within_the_steps(bits: int, window_bits: int, tables: int) -> None:
    plan = MsmPlan(3, 1, bits, window_bits, tables)
    assert plan.list_joins(0) == [slice(0, plan.table_windows)]
    for most in (2 * (window_bits + 1), 93, 468, 750, 10**6):
        first, *others = plan.list_joins(most)
        joined = [range(each.start, each.stop) for each in (first, *others)]
        assert [w for each in reversed(joined) for w in each] == list(range(plan.table_windows))
        terms = [len(joined[0]), *(len(each) + 1 for each in joined[1:])]
        assert all(joined)
        assert max(terms) * (window_bits + 1) <= max(most, 2 * (window_bits + 1))
        assert bool(others) == (plan.table_windows * (window_bits + 1) > most)


def test_what_fits_runs_in_one_part_with_the_best_window(info: DeviceInfo) -> None:
    found = plan(info, 1 << 20, 100 * GIB)
    assert found.count == 1
    assert found.part == plan_msm(1 << 20, 1, 255)
    assert "window: 16 bits, which takes the least time: 16 windows" in str(found)
    assert "parts: 1, since everything fits the device at once" in str(found)


@pytest.mark.parametrize(
    ("curve", "log_points", "rounds", "f64_limbs", "slices"),
    [
        ("BN254_G1", 18, 0, True, None),
        ("BN254_G1", 19, 0, True, (1 << 19,)),
        ("BN254_G1", 20, 0, True, (1 << 18, 3 << 18)),
        ("BN254_G1", 20, 0, False, (1 << 20,)),
        ("BN254_G1", 20, 1, False, (1 << 20,)),
        ("BLS12_381_G1", 20, 0, True, (1 << 20,)),
        ("BLS12_381_G1", 22, 3, True, (1 << 20, 3 << 20)),
        ("BLS12_381_G2", 21, 0, True, (1 << 21,)),
    ],
)
def test_scalars_of_the_host_are_copied_in_slices(
    info: DeviceInfo,
    curve: str,
    log_points: int,
    rounds: int,
    f64_limbs: bool,
    slices: tuple[int, ...] | None,
) -> None:
    """Of many points, and of fewer where a device adds them faster."""
    key, memory = getattr(gx.curves, curve).key, 1000 * GIB
    whole = dataclasses.replace(plan_msm(1 << log_points, 1, 127), rounds=rounds)
    gpu = DryDevice(info, f64_limbs=f64_limbs)
    cpu = DryDevice(dataclasses.replace(info, kind="cpu"))
    assert plan_parts(key, whole, gpu, memory, copies_scalars=True).slices == slices
    assert plan_parts(key, whole, gpu, memory).slices is None
    assert plan_parts(key, whole, cpu, memory, copies_scalars=True).slices is None


def test_the_buckets_of_all_slices_fit_a_binding(info: DeviceInfo) -> None:
    key, whole = gx.curves.BN254_G1.key, plan_msm(1 << 21, 1, 254)
    _, largest = measure_memory(key, whole, info, copies_points=False)
    limits = dataclasses.replace(info.limits, max_storage_buffer_range=largest)
    device = DryDevice(dataclasses.replace(info, limits=limits), f64_limbs=True)
    found = plan_parts(key, whole, device, 1000 * GIB, copies_scalars=True)
    assert found.slices == (1 << 21,)


def test_less_memory_gives_smaller_parts_with_their_own_window(info: DeviceInfo) -> None:
    whole = plan(info, 1 << 24, 100 * GIB)
    found = plan(info, 1 << 24, 2 * GIB)
    assert found.count > 1 == whole.count
    assert found.nbytes <= 1.5 * GIB < whole.nbytes
    assert found.part.window_bits == plan_msm(found.part.points, 1, 255).window_bits
    assert found.part.window_bits < whole.part.window_bits
    assert "would exceed 75% of the 2,147,483,648 bytes of free device memory" in str(found)


def test_the_largest_size_fits_small_and_large_devices(info: DeviceInfo) -> None:
    """2^26 points of 96 bytes are more than the 4 GiB that a kernel can bind."""
    found = plan(info, 1 << 26, 139 * GIB)
    assert found.count == 2
    assert "would exceed the device's largest storage buffer" in str(found)
    for memory in (4, 8, 24):
        small = plan(info, 1 << 26, memory * GIB)
        assert small.nbytes <= 0.75 * memory * GIB
        assert sum(each.stop - each.start for each in small.point_ranges) == 1 << 26


def test_digits_are_numbered_with_31_bits(info: DeviceInfo) -> None:
    unlimited = dataclasses.replace(
        info, limits=dataclasses.replace(info.limits, max_storage_buffer_range=1 << 62)
    )
    found = plan(unlimited, 1 << 28, 1 << 50)
    assert found.part.entries <= msm_parts.MAX_PART_ENTRIES
    assert "would exceed the 31 bits of their numbers" in str(found)


def test_points_of_the_host_are_copied_in_parts(info: DeviceInfo) -> None:
    found = plan(info, 1 << 24, 100 * GIB, copies_points=True)
    assert (found.count, found.part.points) == (4, 1 << 22)
    assert "the copy from the host would overlap less of the computation" in str(found)


def test_batches_are_divided_before_the_points_are(info: DeviceInfo) -> None:
    whole = dataclasses.replace(plan_msm(4096, 4096, 255))
    found = plan_parts(G1, whole, DryDevice(info), 100 * GIB)
    assert found.part.entries <= msm_parts.MAX_ENTRIES
    assert found.part.points == 4096 and len(found.batch_ranges) == found.count > 1
    smaller = plan_parts(G1, whole, DryDevice(info), GIB)
    assert smaller.part.points == 4096 and smaller.part.batch < found.part.batch
    assert "would exceed 75%" in str(smaller)


def test_the_window_of_a_table_stays(info: DeviceInfo) -> None:
    whole = MsmPlan(1 << 22, 1, 255, 20, tables=2)
    found = plan_parts(G1, whole, DryDevice(info), 2 * GIB, has_table=True)
    assert found.count > 1
    assert (found.part.window_bits, found.part.tables) == (20, 2)
    assert "window: 20 bits, fixed by the table" in str(found)


def test_parts_do_not_become_tiny_where_there_is_no_memory(info: DeviceInfo) -> None:
    found = plan(info, 1 << 20, 0)
    assert found.part.points == msm_parts.LEAST_POINTS
    assert found.is_smallest


def test_the_measured_memory_has_all_arrays_of_a_part(info: DeviceInfo) -> None:
    """Digits have a key and a value, which are sorted from one pair of arrays to another."""
    part = plan_msm(1 << 20, 1, 255)
    nbytes, largest = measure_memory(G1, part, info, copies_points=False)
    assert nbytes >= 16 * part.entries + 2 * 96 * part.points
    assert largest >= max(4 * part.entries, 96 * part.points)
    copied, _ = measure_memory(G1, part, info, copies_points=True)
    assert copied >= nbytes + (96 + 32) * part.points


def test_only_a_call_that_makes_tables_has_memory_for_their_denominators(info: DeviceInfo) -> None:
    part = MsmPlan(1 << 16, 1, 255, 16, tables=16)
    given, _ = measure_memory(G1, part, info, copies_points=False, has_table=True)
    made, _ = measure_memory(G1, part, info, copies_points=False)
    assert made >= given + 192 * part.tables * part.points


def test_rounds_run_where_their_arrays_fit(info: DeviceInfo) -> None:
    whole = with_rounds(plan_msm(1 << 22, 1, 255), info)
    found = plan_parts(G1, whole, DryDevice(info), 100 * GIB)
    assert found.part.rounds == 4 and found.count == 1
    assert "rounds: 4 of affine additions" in str(found)
    less = plan_parts(G1, whole, DryDevice(info), 10 * GIB)
    assert less.part.rounds == 0 and less.count == 1 and less.nbytes < found.nbytes
    assert "rounds: none of affine additions: with them" in str(less)
    kept = plan_parts(G1, whole, DryDevice(info), 50 * GIB)
    assert kept.records and "bytes would not be kept for the next call" in str(kept)
    long = with_rounds(plan_msm(1 << 24, 1, 255), info)
    larger = plan_parts(G1, long, DryDevice(info), 100 * GIB)
    assert larger.part.rounds == 0  # the sums of the first round exceed a storage buffer
    streamed = plan_parts(G1, long, DryDevice(info), 100 * GIB, copies_points=True)
    assert streamed.count == 4 and streamed.part.rounds == 4
