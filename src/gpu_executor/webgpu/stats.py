"""What the WebGPU executor has done and holds, as data and in the words of its first form."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.webgpu.buckets import BucketStats
from gpu_executor.webgpu.buffers import PoolStats


@dataclass(frozen=True, slots=True)
class WgpuStats:
    """Counters since the executor was opened."""

    device: str
    backend: str
    calls: int
    elements: int
    tasks: int
    submissions: int
    pipelines: int
    compile_seconds: float
    buffer_sets: int
    """Sets made, each with its bind group."""
    exact_hits: int
    exact_entries: int
    bucket_sizes: tuple[int, ...]
    buckets: tuple[BucketStats, ...]
    bucket_evictions: int
    borders: tuple[int, ...]
    """Beside the powers of two, where they follow the load."""
    padding: float
    """The share of padding in what came lately, where that is watched."""
    pool: PoolStats

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.bucket_sizes))
        return "\n".join(
            [
                f"[gpu] Bucket cache: {len(self.bucket_sizes)} buckets cached: [{sizes}]",
                f"[gpu] Exact-size cache: {self.exact_entries} entries",
                f"[gpu] Buffer pool hit rate: {self.pool.hit_rate:.2%}",
            ]
        )
