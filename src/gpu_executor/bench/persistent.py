"""One-shot against persistent: the same field addition at seven sizes, on both data paths."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.bench.samples import elements
from gpu_executor.bench.timing import median_seconds
from gpu_executor.call import Array
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

SIZES = (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 22)

SEED_FIGURES = {
    64: (104.87, 3.90),
    1 << 10: (100.18, 4.44),
    1 << 12: (100.85, 4.97),
    1 << 14: (106.88, 7.71),
    1 << 16: (130.90, 17.22),
}
"""Milliseconds, one-shot and persistent, of the Rust original (Intel i7-9750H laptop, Windows)."""


@dataclass(frozen=True, slots=True)
class PathFigures:
    """One data path of the persistent backend."""

    init_ms: float
    first_ms: float
    average_ms: float
    speed_up: float
    """Over the one-shot backend on the same path."""
    additions_per_second: float
    stages_ms: dict[str, float]
    """Where an average call goes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size."""

    elements: int
    one_shot_ms: float
    one_shot_stages_ms: dict[str, float]
    host_visible: PathFigures
    device_local: PathFigures
    seed_speed_up: float | None


def measure(size: int) -> Row:
    """Everything about one size; opens its own backends."""
    a, b = elements(BLS12_381_FQ, size, 1), elements(BLS12_381_FQ, size, 2)
    with VulkanSpirvBackend() as one_shot:
        seconds = median_seconds(
            lambda: one_shot.run_field_add(a, b, device_local=False), budget=1.0, least=3
        )
        stats = one_shot.stats()
        stages = {} if stats is None else stats.seconds_by_stage
    seed = SEED_FIGURES.get(size)
    return Row(
        elements=size,
        one_shot_ms=seconds * 1e3,
        one_shot_stages_ms={name: value * 1e3 for name, value in stages.items()},
        host_visible=_measure_path(a, b, seconds, device_local=False),
        device_local=_measure_path(a, b, seconds, device_local=True),
        seed_speed_up=seed[0] / seed[1] if seed else None,
    )


def rows() -> Iterator[Row]:
    for size in SIZES:
        yield measure(size)


def _measure_path(a: Array, b: Array, one_shot: float, *, device_local: bool) -> PathFigures:
    begun = time.perf_counter()
    with PersistentVulkanBackend() as gpu:
        opened = time.perf_counter()
        gpu.run_field_add(a, b, device_local)
        first = time.perf_counter() - opened
        before = gpu.stats()
        average = median_seconds(lambda: gpu.run_field_add(a, b, device_local), budget=1.0, least=5)
        after = gpu.stats()
    calls = after.calls - before.calls
    stages = {
        name: (seconds - before.seconds_by_stage[name]) / calls * 1e3
        for name, seconds in after.seconds_by_stage.items()
    }
    return PathFigures(
        init_ms=(opened - begun) * 1e3,
        first_ms=first * 1e3,
        average_ms=average * 1e3,
        speed_up=one_shot / average,
        additions_per_second=len(a) / average,
        stages_ms=stages,
    )
