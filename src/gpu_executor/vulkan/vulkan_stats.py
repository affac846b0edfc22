"""The counters of a Vulkan backend, as a printable dataclass."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_executor.backend import BackendStats
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.telemetry.families import MetricValue
from gpu_executor.vulkan.descriptors import DescriptorStats
from gpu_executor.vulkan.disk_cache import DiskCacheStats
from gpu_executor.vulkan.memory import MemoryStats
from gpu_executor.vulkan.pipeline_cache import PipelineStats
from gpu_executor.vulkan.slot_pool import SlotStats


@dataclass(frozen=True, slots=True)
class Stats(BackendStats):
    """The calls that a Vulkan backend has run, and what it holds."""

    calls_by_path: dict[str, int]
    pipelines: PipelineStats
    disk_cache: DiskCacheStats
    slots: SlotStats
    recordings: int
    shrunk: int
    """How often a chunk was halved or slots were left out, because memory was short."""
    memory: MemoryStats
    descriptors: DescriptorStats

    def read_own_metrics(self) -> Iterator[MetricValue]:
        for path, calls in self.calls_by_path.items():
            yield "path_calls_total", (path,), calls
        yield "recordings_total", (), self.recordings
        yield "shrunk_total", (), self.shrunk
        caches: dict[str, PipelineStats | SlotStats | MemoryStats] = {
            "pipelines": self.pipelines,
            "slots": self.slots,
            "memory": self.memory,
        }
        for cache, counted in caches.items():
            yield "cache_hits_total", (cache,), counted.hits
            yield "cache_misses_total", (cache,), counted.misses
        yield "cache_evictions_total", ("pipelines",), self.pipelines.evictions
        yield "cache_entries", ("pipelines",), self.pipelines.kept
        yield "cache_entries", ("slots",), self.slots.idle + self.slots.in_use
        yield "cache_entries", ("descriptor sets",), self.descriptors.sets_used
        yield "cache_bytes", ("memory",), self.memory.bytes_held
        yield "used_bytes", (), self.memory.bytes_used

    def __str__(self) -> str:
        paths = ", ".join(f"{count:,} {path}" for path, count in self.calls_by_path.items())
        stages = ", ".join(f"{name} {s * 1e3:,.2f} ms" for name, s in self.seconds_by_stage.items())
        return "\n".join(
            [
                f"{self.device}",
                f"  calls        {self.calls:,} ({paths or 'none'}), {self.elements:,} elements in "
                f"{self.chunks:,} chunks, {self.dispatches:,} dispatches on device arrays",
                f"  time         {stages}",
                f"  pipelines    {self.pipelines.kept} cached, {self.pipelines.hits:,} hits, "
                f"{self.pipelines.misses:,} made, {self.pipelines.evictions:,} evicted, "
                f"{self.pipelines.lowered:,} with pairs of words for 64-bit integers, "
                f"{self.pipelines.quick:,} in their quick form, {self.pipelines.replaced:,} of "
                f"these replaced, {self.pipelines.compiling:,} being compiled",
                f"  disk cache   {self.disk_cache.path or 'off'}, "
                f"{self.disk_cache.pipelines_loaded:,} pipelines read "
                f"({self.disk_cache.bytes_loaded:,} bytes), "
                f"{self.disk_cache.pipelines_saved:,} written",
                f"  slots        {self.slots.idle} idle, {self.slots.in_use} in use, "
                f"{self.slots.hits:,} hits, {self.slots.misses:,} made, "
                f"{self.recordings:,} recordings, shrunk {self.shrunk:,} times",
                f"  memory       {self.memory.bytes_used:,} of {self.memory.bytes_held:,} bytes "
                f"used in {self.memory.blocks} blocks, {self.memory.hits:,} hits, "
                f"{self.memory.misses:,} misses",
                f"  bytes        {self.memory_use}",
                f"  descriptors  {self.descriptors.sets_used} sets in "
                f"{self.descriptors.pools} pools",
            ]
        )
