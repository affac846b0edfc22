"""Which queues of a device to open: those that compute, and apart from them those that copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.device_info import QueueFamily
from gpu_executor.errors import NoDeviceError

SIDE_BY_SIDE = 4
"""Queues for small pieces to be computed on side by side. Those of a family that draws too are left
alone: on an NVIDIA H200, four jobs of 16 K take 1.04 ms through four of them, between which it
switches, and 0.46 ms through one. Its family without graphics gains up to 8 % with four."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A queue by its family and its place there."""

    family: int
    index: int


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues that a device is opened with."""

    compute: QueueAddress
    side_by_side: tuple[QueueAddress, ...]
    """Queues that compute, two at least, for pieces that are small; none where there are none."""
    upload: QueueAddress | None
    """A queue of a family that only copies, for what goes to the device; None without one."""
    download: QueueAddress | None
    """Another one for what comes back, or the same where that family has one queue."""

    @property
    def families(self) -> list[int]:
        """Every family among them, in order."""
        return sorted({queue.family for queue in self._all()})

    def in_family(self, family: int) -> int:
        """How many queues of a family are needed."""
        return 1 + max(queue.index for queue in self._all() if queue.family == family)

    def _all(self) -> list[QueueAddress]:
        copying = [queue for queue in (self.upload, self.download) if queue is not None]
        return [self.compute, *self.side_by_side, *copying]


def choose_queues(families: Sequence[QueueFamily]) -> Queues:
    """The first family that computes (it copies too: Vulkan 1.3, 6.1), and one that only copies."""
    computing = [index for index, family in enumerate(families) if "compute" in family.work]
    if not computing:
        raise NoDeviceError("the device has no queue that computes")
    compute, side_by_side = QueueAddress(computing[0], 0), _side_by_side(families)
    copying = [index for index, family in enumerate(families) if family.only_copies]
    if not copying:
        return Queues(compute, side_by_side, None, None)
    # The one with most queues: two let both directions of the bus work at once.
    best = max(copying, key=lambda index: families[index].count)
    second = min(families[best].count, 2) - 1
    return Queues(compute, side_by_side, QueueAddress(best, 0), QueueAddress(best, second))


def _side_by_side(families: Sequence[QueueFamily]) -> tuple[QueueAddress, ...]:
    for index, family in enumerate(families):
        if family.only_computes and family.count > 1:
            return tuple(QueueAddress(index, at) for at in range(min(family.count, SIDE_BY_SIDE)))
    return ()
