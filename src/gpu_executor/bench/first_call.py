"""The first call of a process, with an empty and with a filled pipeline cache on disk."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass

from gpu_executor.bench.child_process import run_python
from gpu_executor.bench.inputs import tile_elements
from gpu_executor.bench.sampled import Sampled
from gpu_executor.kernels import load
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

PROCESSES = 2
"""Pairs of processes; each process takes 1 to 2 s."""
DRIVER_CACHE_OFF = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}
"""Drivers have disk caches too, which would hide the effect of this package's cache."""


@dataclass(frozen=True, slots=True)
class FirstCallTimes:
    """Milliseconds of a process's first call and of creating its pipeline, `with` and `without` the
    cache.
    """

    without_ms: float
    with_ms: float
    pipeline_without_ms: float
    pipeline_with_ms: float
    cache_bytes: int


def measure_first_calls(pairs: int) -> FirstCallTimes:
    """Measure pairs of processes, with an empty cache and then with the filled cache;
    return the fastest times.
    """
    empty, filled = [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            empty.append(_run_process(folder))
            filled.append(_run_process(folder))
    return FirstCallTimes(
        without_ms=Sampled.fastest(call["first_ms"] for call in empty),
        with_ms=Sampled.fastest(call["first_ms"] for call in filled),
        pipeline_without_ms=Sampled.fastest(call["pipeline_ms"] for call in empty),
        pipeline_with_ms=Sampled.fastest(call["pipeline_ms"] for call in filled),
        cache_bytes=int(filled[0]["bytes_loaded"]),
    )


def _run_process(cache_dir: str) -> dict[str, float]:
    """Run this module in a process of its own and read what it prints."""
    as_by_default = {"GPU_CACHE_DIR": cache_dir, "GPU_CACHE": "1", "GPU_QUICK_PIPELINES": "1"}
    environment = os.environ | DRIVER_CACHE_OFF | as_by_default
    child = run_python(["-m", __name__], environment=environment)
    child.check_returncode()
    measured: dict[str, float] = json.loads(child.stdout)
    return measured


def main() -> None:
    """Time the first call of this process and print the result as JSON."""
    a, b = tile_elements(BLS12_381_FQ, 64, 1), tile_elements(BLS12_381_FQ, 64, 2)
    kernel = load("bls12_381_fq_mont_mul")
    with PersistentVulkanBackend() as gpu:
        begun = time.perf_counter()
        gpu.run(kernel, a, b)
        first = time.perf_counter() - begun
        stats = gpu.stats()
    measured = {
        "first_ms": first * 1e3,
        "pipeline_ms": stats.seconds_by_stage["pipeline"] * 1e3,
        "bytes_loaded": stats.disk_cache.bytes_loaded,
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
