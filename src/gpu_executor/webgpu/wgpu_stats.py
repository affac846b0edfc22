"""Statistics of the WebGPU backend: of the executor, of each bucket and of the buffer pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.backend import BackendStats
from gpu_executor.spirv.product_lowering import ProductForm
from gpu_executor.telemetry.families import MetricValue


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
class WgpuStats(BackendStats):
    """Counters since the executor was opened, and what its caches hold."""

    backend: str
    """The API under WebGPU: Vulkan, Metal, D3D12 ..."""
    submissions: int
    pipelines: int
    integers: ProductForm
    """How the package's modules multiply words: as 64-bit integers, or in halves of 16 bits where
    the device has no 64-bit integers."""
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

    def read_own_metrics(self) -> Iterator[MetricValue]:
        yield "submissions_total", (), self.submissions
        yield "cache_hits_total", ("buckets",), sum(each.hits for each in self.buckets)
        yield "cache_misses_total", ("buckets",), sum(each.misses for each in self.buckets)
        yield "cache_evictions_total", ("buckets",), self.bucket_evictions
        yield "cache_entries", ("buckets",), len(self.bucket_sizes)
        yield "cache_bytes", ("buckets",), sum(each.bytes_held for each in self.buckets)
        yield "cache_hits_total", ("exact sizes",), self.exact_hits
        yield "cache_entries", ("exact sizes",), self.exact_entries
        yield "cache_hits_total", ("buffers",), self.pool.hits
        yield "cache_misses_total", ("buffers",), self.pool.misses
        yield "cache_bytes", ("buffers",), self.pool.bytes_idle
        yield "used_bytes", (), self.pool.bytes_in_use
        yield "cache_entries", ("pipelines",), self.pipelines
        yield "padding_ratio", (), self.padding

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.bucket_sizes))
        return "\n".join(
            [
                f"[gpu] Bucket cache: {len(self.bucket_sizes)} buckets cached: [{sizes}]",
                f"[gpu] Exact-size cache: {self.exact_entries} entries",
                f"[gpu] Buffer pool hit rate: {self.pool.hit_rate:.2%}",
            ]
        )
