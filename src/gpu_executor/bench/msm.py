"""Multi-scalar multiplications on a device: times by size and by stage.

The discrete logarithms of all points are known, so every result is checked before it is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from gpu_executor.bench.targets import Target, is_h200
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.parameters import get_named
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.ops.msm import Msm, MsmPlan, plan_msm
from gpu_executor.ops.points import make_points, to_limb_form
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

CURVES = ("BLS12_381_G1", "BN254_G1", "BLS12_381_G2")
LARGEST, LARGEST_ON_CPU = 22, 8
"""log2 of the largest number of points."""
REPEATS, REPEATS_ON_CPU = 7, 2
WARM_UP_SECONDS = 0.3
"""An idle NVIDIA H200 runs at a fifth of its clock, and needs this long to raise it."""
AIMS = {
    ("BLS12_381_G1", 10): 1.5,
    ("BLS12_381_G1", 12): 2.0,
    ("BLS12_381_G1", 16): 4.0,
    ("BLS12_381_G1", 18): 7.0,
    ("BLS12_381_G1", 20): 14.0,
    ("BLS12_381_G1", 22): 45.0,
    ("BN254_G1", 16): 3.0,
    ("BN254_G1", 20): 6.0,
    ("BN254_G1", 22): 18.0,
    ("BLS12_381_G2", 20): 45.0,
}
"""Milliseconds on an NVIDIA H200, from scalars in NumPy memory to an affine point on the host."""
ADDITION_AIMS = {("BLS12_381_G1", 22): 2.0, ("BN254_G1", 22): 5.5}
"""Mixed additions per nanosecond in the accumulation stage."""


@dataclass(frozen=True, slots=True)
class MsmRow:
    """Times of one curve and size; the attributes are the keys of the JSON files."""

    curve: str
    log_points: int
    plan: str
    first_ms: float
    """The first call, which compiles the pipelines that no earlier call has used."""
    ms: float
    """The median of calls from scalars in NumPy memory to an affine point on the host."""
    additions_per_second: float
    """Mixed additions in the accumulation stage."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    """The fastest of several runs of each stage, waited for by itself."""


@dataclass(frozen=True, slots=True)
class KnownPoints:
    """Points on a device with their discrete logarithms."""

    points: PointArray
    logarithms: Sequence[int]


def choose_sizes(device: DeviceInfo, largest: int | None = None) -> list[int]:
    """Return the log2 of the numbers of points."""
    most = LARGEST_ON_CPU if device.kind == "cpu" else LARGEST
    return [each for each in range(0, (largest or most) + 1, 2) if each == 0 or each >= 6]


def measure_msms(
    gpu: PersistentVulkanBackend, sizes: Sequence[int], curves: Sequence[str] = CURVES
) -> Iterator[list[MsmRow]]:
    """Measure all sizes of one curve after the other."""
    for name in curves:
        curve = get_named(name)
        known = make_known_points(gpu, curve, max(sizes))
        yield [_measure(gpu, name, curve, known, each) for each in sizes]


def check_targets(rows: Sequence[MsmRow], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    targets = []
    for row in rows:
        key, what = (row.curve, row.log_points), f"{row.curve}, 2^{row.log_points}"
        if key in AIMS:
            targets.append(Target(what, row.ms, AIMS[key], "ms", at_most=True))
        if key in ADDITION_AIMS:
            rate = row.additions_per_second / 1e9
            targets.append(Target(f"{what}, additions", rate, ADDITION_AIMS[key], "G/s"))
    return targets


def make_known_points(gpu: PersistentVulkanBackend, curve: Curve, log_count: int) -> KnownPoints:
    """Make 2^log_count different points on the device: the sums of every row and every column.

    Rows and columns are two arithmetic sequences of multiples of the generator. No sum is that of
    equal or opposite points, so the formula of the slope serves all.
    """
    rows, columns = 1 << log_count // 2, 1 << (log_count - log_count // 2)
    steps = 3, 3 * rows + 1
    starts = 1_000_003, 5 * curve.order // 7
    sequences = []
    for count, step, start in zip((rows, columns), steps, starts, strict=True):
        multiples = [(start + step * each) % curve.order for each in range(count)]
        sequences.append((multiples, curve.generator * multiples))
    (by_row, p), (by_column, q) = sequences
    px, py = (gpu.to_device(each).reshape(rows, 1) for each in (p.x, p.y))
    qx, qy = (gpu.to_device(each).reshape(1, columns) for each in (q.x, q.y))
    slope = (qy - py) / (qx - px)
    x = slope * slope - px - qx
    y = slope * (px - x) - py
    logarithms = [(a + b) % curve.order for a in by_row for b in by_column]
    count = rows * columns
    points = curve.from_affine(x.reshape(count), y.reshape(count), check=False)
    return KnownPoints(points, logarithms)


def _measure(
    gpu: PersistentVulkanBackend, name: str, curve: Curve, known: KnownPoints, log_points: int
) -> MsmRow:
    count = 1 << log_points
    points, prime = known.points[:count], curve.scalar_field.prime
    scalars = _draw_scalars(curve, count)
    begun = perf_counter()
    found = curve.msm(points, scalars).to_host().affine()
    first_ms = (perf_counter() - begun) * 1e3
    values = curve.scalar_field.from_words(scalars, "canonical").tolist()
    expected = sum(a * b for a, b in zip(known.logarithms, values, strict=False)) % curve.order
    if not bool((found == curve.generator * expected).all()):
        raise AssertionError(f"{name}: the sum of 2^{log_points} multiples is wrong")
    repeats, warm_up = REPEATS, WARM_UP_SECONDS
    if gpu.device.kind == "cpu":
        repeats, warm_up = REPEATS_ON_CPU, 0
    begun = perf_counter()
    while perf_counter() - begun < warm_up:
        curve.msm(points, scalars).to_host()
    times = []
    for _ in range(repeats):
        gpu.synchronize()
        begun = perf_counter()
        curve.msm(points, scalars).to_host().affine()
        times.append(perf_counter() - begun)
    plan = plan_msm(count, 1, curve.order.bit_length())
    assert isinstance(points.data, DeviceArray)
    words = gpu.to_device(scalars.view(np.uint32).reshape(1, count, prime.words))
    stages: dict[str, float] = {}
    for _ in range(repeats):
        for stage, seconds in _time_stages(gpu, curve, plan, points.data, words):
            stages[stage] = min(seconds * 1e3, stages.get(stage, float("inf")))
    return MsmRow(
        name,
        log_points,
        str(plan),
        first_ms,
        statistics.median(times) * 1e3,
        plan.entries / stages["accumulate"] * 1e3,
        stages,
    )


def _draw_scalars(curve: Curve, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """Return canonical words below half of the order."""
    prime = curve.scalar_field.prime
    drawn = np.random.default_rng(7).bytes(count * prime.element_bytes)
    words = np.frombuffer(drawn, np.uint64).reshape(count, -1).copy()
    bits = prime.bits - 1 - 64 * (words.shape[1] - 1)
    words[:, -1] &= np.uint64((1 << bits) - 1)
    return words


def _time_stages(
    gpu: PersistentVulkanBackend,
    curve: Curve,
    plan: MsmPlan,
    points: DeviceArray,
    scalars: DeviceArray,
) -> Iterator[tuple[str, float]]:
    """Run the stages of a multi-scalar multiplication, each by itself; yields their seconds."""
    device = gpu._session.device_memory
    msm, result = Msm(device, curve.key, plan), make_points(device, curve.key, plan.batch)

    def wait(begun: float) -> float:
        gpu.synchronize()
        return perf_counter() - begun

    gpu.synchronize()
    begun = perf_counter()
    table = to_limb_form(device, curve.key, points)
    yield "limb form", wait(begun)
    begun = perf_counter()
    digits = msm.split_scalars(scalars, *msm.make_entries())
    yield "digits", wait(begun)
    begun = perf_counter()
    entries = msm.sort(*digits)
    yield "sort", wait(begun)
    sums = msm.make_sums()
    gpu.synchronize()
    begun = perf_counter()
    msm.accumulate(*entries, table, sums)
    yield "accumulate", wait(begun)
    begun = perf_counter()
    msm.combine(sums)
    msm.submit()
    yield "combine", wait(begun)
    begun = perf_counter()
    windows = msm.reduce(sums.buckets)
    msm.submit()
    yield "reduce", wait(begun)
    begun = perf_counter()
    msm.join(windows, result)
    msm.submit()
    yield "join", wait(begun)
