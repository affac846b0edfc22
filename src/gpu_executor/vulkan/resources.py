"""What slots are made from: the open device, its pools, its queues, and threads that copy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from gpu_executor.plan import QueueUse
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Resources:
    """One of these belongs to a session; every slot refers to it."""

    device: Device
    memory: MemoryPool
    pipelines: PipelineCache
    descriptors: DescriptorPools
    compute: Timeline
    """The queue that computes."""
    parallel_compute: tuple[Timeline, ...]
    """Queues that compute beside each other, where the device has them."""
    upload: Timeline | None
    download: Timeline | None
    """Queues that only copy, where the device has them."""
    copy_threads: CopyThreads
    _next_parallel: itertools.count[int] = field(default_factory=itertools.count)

    def list_families(self, queues: QueueUse) -> list[int]:
        """The queue families that a slot submits to."""
        if queues == "split" and self.upload is not None:
            return [self.upload.family, self.compute.family]
        return [self.parallel_compute[0].family if queues == "several" else self.compute.family]

    def choose_compute_queue(self, queues: QueueUse) -> Timeline:
        """The queue that a slot computes on; of several another one each time."""
        if queues != "several":
            return self.compute
        return self.parallel_compute[next(self._next_parallel) % len(self.parallel_compute)]
