"""Statistics of the WebGPU backend: of the executor, of each bucket and of the buffer pool."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.idle_memory import MemoryUse


@dataclass(frozen=True, slots=True)
class BucketStats:
    """Counters and memory of one bucket of one kernel."""

    kernel: str
    bucket: int
    """The bucket's size in elements."""
    hits: int
    """Tasks that found an idle buffer set."""
    misses: int
    """Tasks for which a buffer set was made."""
    evictions: int
    """How often the bucket was evicted from the cache."""
    bytes_held: int
    """Bytes of the bucket's idle buffer sets."""
    pipelines: int = 0
    """1 if the pipeline tuned for the bucket is compiled; 0 while another one of the kernel is
    used."""
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Counters and memory of the buffer pool. A hit is a request served by an idle buffer."""

    hits: int
    misses: int
    bytes_idle: int
    """Bytes of the buffers in the pool."""
    bytes_in_use: int
    """Bytes of the lent buffers: those of tasks and of cached buffer sets."""

    @property
    def hit_rate(self) -> float:
        """The share of requests that were hits; 0 before the first request."""
        requests = self.hits + self.misses
        return self.hits / requests if requests else 0.0


@dataclass(frozen=True, slots=True)
class WgpuStats:
    """Counters since the executor was opened, and what its caches hold."""

    device: str
    backend: str
    """The API under WebGPU: Vulkan, Metal, D3D12 ..."""
    calls: int
    elements: int
    tasks: int
    """Pieces of calls that ran: one per call, or several if the call was chunked."""
    submissions: int
    pipelines: int
    compile_seconds: float
    buffer_sets: int
    """Buffer sets made, each with its bind group."""
    exact_hits: int
    exact_entries: int
    bucket_sizes: tuple[int, ...]
    buckets: tuple[BucketStats, ...]
    bucket_evictions: int
    borders: tuple[int, ...]
    """The learned bucket boundaries, in addition to the powers of two; empty unless adaptive."""
    padding: float
    """The share of padding in the sizes observed most recently; 0 unless adaptive."""
    pool: PoolStats
    memory_use: MemoryUse

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.bucket_sizes))
        return "\n".join(
            [
                f"[gpu] Bucket cache: {len(self.bucket_sizes)} buckets cached: [{sizes}]",
                f"[gpu] Exact-size cache: {self.exact_entries} entries",
                f"[gpu] Buffer pool hit rate: {self.pool.hit_rate:.2%}",
            ]
        )
