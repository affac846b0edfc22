"""The counters of a Vulkan backend, as a printable dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.idle_memory import MemoryUse
from gpu_executor.vulkan.descriptors import DescriptorStats
from gpu_executor.vulkan.disk_cache import DiskCacheStats
from gpu_executor.vulkan.memory import MemoryStats
from gpu_executor.vulkan.pipeline import PipelineStats
from gpu_executor.vulkan.slot_pool import SlotStats


@dataclass(frozen=True, slots=True)
class Stats:
    """The calls that a Vulkan backend has run, and what it holds."""

    device: str
    calls: int
    elements: int
    pieces: int
    calls_by_path: dict[str, int]
    seconds_by_stage: dict[str, float]
    pipelines: PipelineStats
    disk_cache: DiskCacheStats
    slots: SlotStats
    recordings: int
    shrunk: int
    """How often a chunk was halved or slots were left out, because memory was short."""
    memory: MemoryStats
    memory_use: MemoryUse
    descriptors: DescriptorStats

    def __str__(self) -> str:
        paths = ", ".join(f"{count:,} {path}" for path, count in self.calls_by_path.items())
        stages = ", ".join(f"{name} {s * 1e3:,.2f} ms" for name, s in self.seconds_by_stage.items())
        return "\n".join(
            [
                f"{self.device}",
                f"  calls        {self.calls:,} ({paths or 'none'}), {self.elements:,} elements in "
                f"{self.pieces:,} pieces",
                f"  time         {stages}",
                f"  pipelines    {self.pipelines.kept} cached, {self.pipelines.hits:,} hits, "
                f"{self.pipelines.misses:,} made, {self.pipelines.evictions:,} evicted",
                f"  disk cache   {self.disk_cache.path or 'off'}, "
                f"{self.disk_cache.bytes_loaded:,} bytes read",
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
