"""The shared resources of a session that slots are made from."""

from __future__ import annotations

import itertools
from dataclasses import field

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.plan import QueueUse
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.pipeline_cache import PipelineCache
from gpu_executor.vulkan.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Resources:
    """The device of a session with its pools, queues and copy threads. Every slot refers to it."""

    device: Device
    memory: MemoryPool
    pipelines: PipelineCache
    descriptors: DescriptorPools
    compute: Timeline
    """The main compute queue."""
    parallel_compute: tuple[Timeline, ...]
    """Compute queues that run small chunks in parallel; empty where the device has none."""
    upload: Timeline | None
    download: Timeline | None
    """Transfer-only queues; None where the device has none."""
    copy_threads: CopyThreads
    _next_parallel: itertools.count[int] = field(default_factory=itertools.count)

    def list_families(self, queues: QueueUse) -> list[int]:
        """Return the queue families that a slot submits to."""
        if queues == "split" and self.upload is not None:
            return [self.upload.family, self.compute.family]
        return [self.parallel_compute[0].family if queues == "several" else self.compute.family]

    def choose_compute_queue(self, queues: QueueUse) -> Timeline:
        """Return the compute queue for a new slot; parallel queues are assigned round-robin."""
        if queues != "several":
            return self.compute
        return self.parallel_compute[next(self._next_parallel) % len(self.parallel_compute)]
