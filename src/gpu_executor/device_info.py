"""What is known of a device before it is opened: plain data, the same for every backend."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["discrete", "integrated", "virtual", "cpu", "other"]


@dataclass(frozen=True, slots=True)
class MemoryHeap:
    """One heap of memory: its size, and what the memory types on it can do."""

    bytes: int
    device_local: bool
    types: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class QueueFamily:
    """Queues of one kind: how many there are and what they take."""

    count: int
    work: tuple[str, ...]
    timestamp_bits: int

    @property
    def only_copies(self) -> bool:
        """Whether it is there for copies alone: such queues work beside those that compute."""
        others = ("compute", "graphics", "video_decode", "video_encode")
        return "transfer" in self.work and not any(work in self.work for work in others)

    @property
    def only_computes(self) -> bool:
        """Whether it computes and does not draw: its queues can work side by side."""
        return "compute" in self.work and "graphics" not in self.work


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a plan has to respect."""

    max_storage_buffer_range: int
    max_allocation: int
    max_work_group_invocations: int
    max_work_group_size: tuple[int, int, int]
    max_work_group_count: tuple[int, int, int]
    max_shared_memory: int
    """Bytes that a work-group shares."""
    max_push_constants: int
    max_bound_buffers: int
    buffer_offset_alignment: int
    non_coherent_atom: int
    subgroup_size: int
    timestamp_period_ns: float
    host_import_alignment: int
    """What imported memory is aligned to, 0 where none can be imported."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A GPU, or a software driver that stands for one."""

    index: int
    name: str
    kind: Kind
    vendor: str
    driver: str
    driver_version: str
    api_version: tuple[int, int, int]
    uuid: str
    heaps: tuple[MemoryHeap, ...]
    queue_families: tuple[QueueFamily, ...]
    limits: Limits
    features: frozenset[str]
    """The optional features it has, under their Vulkan names."""
    extensions: frozenset[str]
    """Of the extensions that this package uses, those that it has."""
    pipeline_cache_uuid: str

    @property
    def unified_memory(self) -> bool:
        """Whether all its memory is the host's too, so that staging copies gain nothing."""
        return all(
            "host_visible" in kinds
            for heap in self.heaps
            if heap.device_local
            for kinds in heap.types
        )

    @property
    def device_memory(self) -> int:
        """Bytes in its own heaps."""
        return sum(heap.bytes for heap in self.heaps if heap.device_local)

    @property
    def host_memory(self) -> int:
        """Bytes of the host's memory that it sees, as far as it says."""
        shared = [heap.bytes for heap in self.heaps if not heap.device_local or self.unified_memory]
        return max(shared, default=0)

    def at(self, index: int) -> DeviceInfo:
        """The same device at a place in a ranking."""
        return dataclasses.replace(self, index=index)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = dataclasses.asdict(self)
        values["features"] = sorted(self.features)
        values["extensions"] = sorted(self.extensions)
        values["api_version"] = ".".join(map(str, self.api_version))
        return values
