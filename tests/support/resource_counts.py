"""Counts of what a backend and its process hold; a repeated call must not change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpu_executor as gx
from gpu_executor.vulkan import binding


def count_resources(gpu: gx.PersistentVulkanBackend) -> dict[str, Any]:
    """Counts that a repeated call must not change."""
    stats = gpu.stats()
    return {
        "blocks": stats.memory.misses,
        "allocations": stats.memory.hits + stats.memory.misses,
        "bytes": (stats.memory.bytes_held, stats.memory.bytes_used),
        "recordings": stats.recordings,
        "pipelines": stats.pipelines.misses,
        "slots": stats.slots.misses,
        "sets": stats.descriptors,
        "objects": binding.count_live_objects(),
    }


def resident_bytes() -> int:
    """The resident set size of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
