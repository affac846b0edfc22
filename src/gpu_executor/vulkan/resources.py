"""What slots are made from: the open device, its pools, its queues, and threads that copy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from gpu_executor.plan import QueueUse
from gpu_executor.vulkan.copying import Crew
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
    computing: tuple[Timeline, ...]
    """The queues that compute."""
    upload: Timeline | None
    download: Timeline | None
    """Queues that only copy, where the device has them."""
    crew: Crew
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def compute(self) -> Timeline:
        """The first queue that computes."""
        return self.computing[0]

    def families(self, queues: QueueUse) -> list[int]:
        """The queue families that a slot submits to."""
        if queues == "one" or self.upload is None:
            return [self.compute.family]
        return [self.upload.family, self.compute.family]

    def next_compute(self) -> Timeline:
        """The queues in turn, so that slots made one after the other work side by side."""
        return self.computing[next(self._turns) % len(self.computing)]
