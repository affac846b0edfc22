"""Which queues of a device to open: those that compute, and apart from them those that copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.device_info import QueueFamily
from gpu_executor.errors import NoDeviceError

COMPUTE_QUEUES = 1
"""More would let slots submit to queues of their own, and are slower: on an NVIDIA H200, four jobs
of 16 K take 0.46 ms through one queue and 1.04 ms through four of its family, between which it
switches. Its family without graphics gains up to 8 % with four, and nothing with few jobs."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A queue by its family and its place there."""

    family: int
    index: int


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues that a device is opened with."""

    compute: tuple[QueueAddress, ...]
    upload: QueueAddress | None
    """A queue of a family that only copies, for what goes to the device; None without one."""
    download: QueueAddress | None
    """Another one for what comes back, or the same where that family has one queue."""

    @property
    def families(self) -> list[int]:
        """Every family among them, in order."""
        copying = [queue for queue in (self.upload, self.download) if queue is not None]
        return sorted({queue.family for queue in (*self.compute, *copying)})

    def in_family(self, family: int) -> int:
        """How many queues of a family are needed."""
        copying = [queue for queue in (self.upload, self.download) if queue is not None]
        return 1 + max(q.index for q in (*self.compute, *copying) if q.family == family)


def choose_queues(families: Sequence[QueueFamily]) -> Queues:
    """The first family that computes (it copies too: Vulkan 1.3, 6.1), and one that only copies."""
    computing = [index for index, family in enumerate(families) if "compute" in family.work]
    if not computing:
        raise NoDeviceError("the device has no queue that computes")
    first = computing[0]
    compute = tuple(
        QueueAddress(first, index) for index in range(min(families[first].count, COMPUTE_QUEUES))
    )
    copying = [index for index, family in enumerate(families) if family.only_copies]
    if not copying:
        return Queues(compute, None, None)
    # The one with most queues: two let both directions of the bus work at once.
    best = max(copying, key=lambda index: families[index].count)
    return Queues(
        compute, QueueAddress(best, 0), QueueAddress(best, min(families[best].count, 2) - 1)
    )
