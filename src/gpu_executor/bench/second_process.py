"""What the pipeline cache on disk is worth: the first call of a process without it and with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from gpu_executor.bench.samples import elements
from gpu_executor.kernels import load
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

PROCESSES = 3
DRIVER_CACHE_OFF = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}
"""Drivers have caches of their own, which would hide what ours does."""


@dataclass(frozen=True, slots=True)
class FirstCalls:
    """Milliseconds of a process's first call, and those of making its pipeline."""

    without_ms: float
    with_ms: float
    pipeline_without_ms: float
    pipeline_with_ms: float
    cache_bytes: int


def first_calls() -> FirstCalls:
    """The fastest of a few processes, each with an empty cache, then each with a filled one."""
    empty, filled = [], []
    for _ in range(PROCESSES):
        with tempfile.TemporaryDirectory() as folder:
            empty.append(_first_call(folder))
            filled.append(_first_call(folder))
    return FirstCalls(
        without_ms=min(call["first_ms"] for call in empty),
        with_ms=min(call["first_ms"] for call in filled),
        pipeline_without_ms=min(call["pipeline_ms"] for call in empty),
        pipeline_with_ms=min(call["pipeline_ms"] for call in filled),
        cache_bytes=int(filled[0]["bytes_loaded"]),
    )


def _first_call(folder: str) -> dict[str, float]:
    environment = os.environ | DRIVER_CACHE_OFF | {"GPU_CACHE_DIR": folder, "GPU_CACHE": "1"}
    child = subprocess.run(
        [sys.executable, "-m", __name__],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(child.stdout)
    return figures


def main() -> None:
    a, b = elements(BLS12_381_FQ, 64, 1), elements(BLS12_381_FQ, 64, 2)
    kernel = load("bls12_381_fq_mul")
    with PersistentVulkanBackend() as gpu:
        begun = time.perf_counter()
        gpu.run(kernel, a, b)
        first = time.perf_counter() - begun
        stats = gpu.stats()
    figures = {
        "first_ms": first * 1e3,
        "pipeline_ms": stats.seconds_by_stage["pipeline"] * 1e3,
        "bytes_loaded": stats.disk_cache.bytes_loaded,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
