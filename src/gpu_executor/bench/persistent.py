"""One-shot against persistent: the same field addition at seven sizes, on both data paths."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpu_executor.bench.inputs import check_sums, tile_elements
from gpu_executor.bench.timing import time_function
from gpu_executor.calls.call import Array
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

BUDGET = 0.1
"""Seconds for the calls of each size and path."""
SIZES = (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)

ORIGINAL_MS = {
    64: (104.87, 3.90),
    1 << 10: (100.18, 4.44),
    1 << 12: (100.85, 4.97),
    1 << 14: (106.88, 7.71),
    1 << 16: (130.90, 17.22),
}
"""Milliseconds, one-shot and persistent, of the Rust original (Intel i7-9750H laptop, Windows)."""


@dataclass(frozen=True, slots=True)
class PathTimes:
    """One data path of the persistent backend."""

    init_ms: float
    first_ms: float
    average_ms: float
    speed_up: float
    """Speed-up over the one-shot backend on the host-visible path."""
    additions_per_second: float
    stages_ms: dict[str, float]
    """Milliseconds of each stage of an average call."""


@dataclass(frozen=True, slots=True)
class PersistentRow:
    """The measurements of one size."""

    elements: int
    one_shot_ms: float
    one_shot_stages_ms: dict[str, float]
    host_visible: PathTimes
    device_local: PathTimes
    seed_speed_up: float | None
    """Speed-up of the Rust original, if it was measured."""


def measure_size(size: int, budget: float = BUDGET) -> PersistentRow:
    """Measure one size, with backends opened for it; sums are checked before they are timed."""
    a, b = tile_elements(BLS12_381_FQ, size, 1), tile_elements(BLS12_381_FQ, size, 2)
    with VulkanSpirvBackend() as one_shot:
        check_sums("one-shot", a, b, one_shot.run_field_add(a, b, device_local=False))
        seconds = time_function(
            lambda: one_shot.run_field_add(a, b, device_local=False),
            budget=budget,
            min_calls=3,
            warm_up=False,
        )
        last = one_shot.stats().last
        stages = {} if last is None else last.seconds_by_stage
    original = ORIGINAL_MS.get(size)
    return PersistentRow(
        elements=size,
        one_shot_ms=seconds * 1e3,
        one_shot_stages_ms={name: value * 1e3 for name, value in stages.items()},
        host_visible=_measure_path(a, b, seconds, budget, device_local=False),
        device_local=_measure_path(a, b, seconds, budget, device_local=True),
        seed_speed_up=original[0] / original[1] if original else None,
    )


def _measure_path(
    a: Array, b: Array, one_shot: float, budget: float, *, device_local: bool
) -> PathTimes:
    begun = time.perf_counter()
    with PersistentVulkanBackend() as gpu:
        opened = time.perf_counter()
        sums = gpu.run_field_add(a, b, device_local)
        first = time.perf_counter() - opened
        check_sums("persistent", a, b, sums)
        before = gpu.stats()
        average = time_function(
            lambda: gpu.run_field_add(a, b, device_local), budget=budget, min_calls=5
        )
        after = gpu.stats()
    calls = after.calls - before.calls
    stages = {
        name: (seconds - before.seconds_by_stage[name]) / calls * 1e3
        for name, seconds in after.seconds_by_stage.items()
    }
    return PathTimes(
        init_ms=(opened - begun) * 1e3,
        first_ms=first * 1e3,
        average_ms=average * 1e3,
        speed_up=one_shot / average,
        additions_per_second=len(a) / average,
        stages_ms=stages,
    )
