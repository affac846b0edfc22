"""The description of a device: plain data, known before the device is opened."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

from gpu_executor.common.lean_dataclass import dataclass

Kind = Literal["discrete", "integrated", "virtual", "cpu", "other"]

PORTABILITY_SUBSET = "VK_KHR_portability_subset"
"""The extension of devices whose driver implements a subset of Vulkan, such as MoltenVK. A device
that has it must be opened with it. Of what the subset may lack, kernels need nothing: events,
images, samplers and what draws are not used, and the alignment that it adds is that of vertices."""
MAX_PORTABLE_LANES = 32
"""The lanes of a subgroup that shuffles may cross on such a device: Metal's shuffles are wrong in
the subgroups of 64 of some AMD GPUs, which MoltenVK reported before 1.4.2."""
MAX_GROUP_LANES = 8
"""The most lanes of the groups in which kernels on points exchange numbers by shuffles. A device
whose subgroups may be smaller is asked for larger ones, if it takes that."""
MAX_SHUFFLING_INVOCATIONS = 128
"""The most invocations of a work-group of a kernel that relies on `DeviceInfo.shuffle_lanes`."""
DEFAULT_PARALLELISM: dict[Kind, int] = {
    "discrete": 1 << 14,
    "integrated": 1 << 11,
    "virtual": 1 << 14,
    "cpu": 1 << 5,
    "other": 1 << 14,
}
"""What `DeviceInfo.parallelism` is where a device does not report it. Too many cost some additions
of partial results and some memory, too few leave a part of the device idle: so these are those of
the larger devices of each kind."""


@dataclass(frozen=True, slots=True)
class MemoryHeap:
    """A memory heap: its size in bytes, and the properties of each of its memory types."""

    bytes: int
    device_local: bool
    types: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class QueueFamily:
    """Queues of one kind: how many there are, and the kinds of work that they accept."""

    count: int
    work: tuple[str, ...]
    timestamp_bits: int

    @property
    def only_copies(self) -> bool:
        """Whether its queues only copy. Such queues run concurrently with those that compute."""
        others = ("compute", "graphics", "video_decode", "video_encode")
        return "transfer" in self.work and not any(work in self.work for work in others)

    @property
    def only_computes(self) -> bool:
        """Whether its queues compute and do not draw. Such queues run concurrently."""
        return "compute" in self.work and "graphics" not in self.work


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that plans and kernels must keep to. Sizes are bytes."""

    max_storage_buffer_range: int
    max_uniform_buffer_range: int
    max_allocation: int
    max_work_group_invocations: int
    max_work_group_size: tuple[int, int, int]
    max_work_group_count: tuple[int, int, int]
    max_shared_memory: int
    """Bytes of shared memory of a work-group."""
    max_push_constants: int
    max_bound_buffers: int
    buffer_offset_alignment: int
    non_coherent_atom: int
    subgroup_size: int
    """Invocations of a subgroup, as shaders read them; a pipeline may run in smaller ones."""
    min_subgroup_size: int
    """Invocations of the smallest subgroup that a pipeline may run in; the same as `subgroup_size`
    where the device does not report it."""
    timestamp_period_ns: float
    host_import_alignment: int
    """The alignment of imported memory; 0 where the device cannot import any."""
    max_required_invocations: int = 0
    """Invocations of a work-group of a pipeline that requires subgroups of `subgroup_size`; 0 where
    no pipeline can require a size."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A GPU, or a software driver that acts as one."""

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
    """The optional features that the device has, by their Vulkan names."""
    extensions: frozenset[str]
    """The extensions that the device has, of those that this package uses."""
    pipeline_cache_uuid: str
    execution_lanes: int = 0
    """Invocations that the device executes at the same time: the lanes of all schedulers of its
    multiprocessors (NVIDIA), of all SIMD units of its compute units (AMD), or of the vectors of all
    cores (a CPU). 0 where the device does not report it."""

    @property
    def parallelism(self) -> int:
        """Invocations that the device executes at the same time, as reported or else by its kind.
        How far work is divided follows from it, and from nothing else that is known of a GPU."""
        return self.execution_lanes or DEFAULT_PARALLELISM[self.kind]

    def count_invocations(self, subgroups: int) -> int:
        """The invocations that give each scheduler so many subgroups. A scheduler has room for some
        of them at the same time, and computes with one while others wait: how many it has room for
        depends on the registers of a kernel."""
        return subgroups * self.parallelism

    def round_invocations(self, subgroups: int) -> int:
        """`count_invocations`, rounded down to a power of two."""
        return 1 << (self.count_invocations(subgroups).bit_length() - 1)

    @property
    def unified_memory(self) -> bool:
        """Whether all device memory is host-visible, so that staging copies gain nothing."""
        return all(
            "host_visible" in kinds
            for heap in self.heaps
            if heap.device_local
            for kinds in heap.types
        )

    @property
    def is_portability_subset(self) -> bool:
        """Whether the driver implements a subset of Vulkan, on Metal for example."""
        return PORTABILITY_SUBSET in self.extensions

    @property
    def has_unreliable_subgroups(self) -> bool:
        """Whether subgroups are too large for Metal's shuffles. Then the device has no feature of
        subgroups: votes, ballots and sums are not relied on either."""
        return self.is_portability_subset and self.limits.subgroup_size > MAX_PORTABLE_LANES

    @property
    def requires_subgroup_size(self) -> bool:
        """Whether pipelines with shuffles are made for subgroups of `subgroup_size`: the device has
        smaller ones, in which groups of invocations do not fit, and can be told the size. Larger
        ones are left to its compiler, which knows how many registers a kernel needs."""
        limits = self.limits
        return (
            limits.min_subgroup_size < min(limits.subgroup_size, MAX_GROUP_LANES)
            and limits.max_required_invocations >= MAX_SHUFFLING_INVOCATIONS
            and "subgroupSizeControl" in self.features
        )

    @property
    def shuffle_lanes(self) -> int:
        """How many adjacent invocations are in one subgroup, whatever the pipeline: the largest
        groups in which kernels exchange values by shuffles."""
        limits = self.limits
        # All of Apple's GPUs have 32, of which MoltenVK is sure of 4 only.
        is_fixed = self.vendor == "Apple" or self.requires_subgroup_size
        lanes = limits.subgroup_size if is_fixed else limits.min_subgroup_size
        lanes = min(lanes, MAX_PORTABLE_LANES) if self.is_portability_subset else lanes
        return max(lanes, 1)  # some devices do not report a size

    @property
    def device_memory(self) -> int:
        """Bytes in device-local heaps."""
        return sum(heap.bytes for heap in self.heaps if heap.device_local)

    @property
    def host_memory(self) -> int:
        """Bytes of host memory that the device can use, as its heaps report them."""
        shared = [heap.bytes for heap in self.heaps if not heap.device_local or self.unified_memory]
        return max(shared, default=0)

    def at(self, index: int) -> DeviceInfo:
        """The same description with another index."""
        return dataclasses.replace(self, index=index)

    def without_subgroups(self) -> DeviceInfo:
        """The same description without the features of subgroups."""
        others = (name for name in self.features if not name.startswith("subgroup "))
        return dataclasses.replace(self, features=frozenset(others))

    def as_dict(self) -> dict[str, Any]:
        """The description in values that JSON can represent."""
        values = dataclasses.asdict(self)
        values["features"] = sorted(self.features)
        values["extensions"] = sorted(self.extensions)
        values["api_version"] = ".".join(map(str, self.api_version))
        return values


def describe_alternatives(able: Iterable[str], devices: str, *, has_reference: bool) -> str:
    """Say which devices of this machine have what another one lacks, by name, and whether the CPU
    runs the kernel. `devices` is the noun for where nobody has it."""
    names = sorted(set(able))
    found = f"{' and '.join(names)} has it" if names else f"no {devices} of this machine has it"
    if not has_reference:
        return f"{found}; the kernel has no reference for the CPU"
    return f'{found}; GpuExecutor("cpu") runs its reference'
