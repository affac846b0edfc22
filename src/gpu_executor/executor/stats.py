"""What an executor has done, as data that prints itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import GpuError
from gpu_executor.executor.open_device import Counts
from gpu_executor.executor.seats import Seat


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """One device's part."""

    device: str
    backend: str
    calls: int
    batches: int
    retries: int
    reopened: int
    errors: int
    nbytes: int
    seconds: float
    failed: str | None
    """Why it is left alone, if it is."""
    inside: Any
    """What its backend says of itself."""

    @classmethod
    def of(cls, seat: Seat, counts: Counts, failed: GpuError | None, inside: Any) -> DeviceStats:
        return cls(
            device=seat.device,
            backend=seat.backend,
            calls=counts.calls,
            batches=counts.batches,
            retries=counts.retries,
            reopened=counts.reopened,
            errors=counts.errors,
            nbytes=counts.nbytes,
            seconds=counts.seconds,
            failed=None if failed is None else str(failed),
            inside=inside,
        )

    def __str__(self) -> str:
        said = (
            f"{self.device} by {self.backend}: {self.calls:,} calls, {self.batches:,} batches, "
            f"{self.retries:,} retries, opened again {self.reopened:,} times, "
            f"{self.errors:,} errors"
        )
        return said if self.failed is None else f"{said}; left alone: {self.failed}"


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """All devices, and the line before them."""

    waiting: int
    waiting_bytes: int
    checked: int
    """Elements and calls that were computed again on the CPU."""
    devices: tuple[DeviceStats, ...]

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} jobs of {self.waiting_bytes:,} bytes wait"
        return "\n".join([*map(str, self.devices), f"{waiting}; {self.checked:,} checked"])
