"""What an executor has done, as data that prints itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_executor.executor.checking import Checking
from gpu_executor.executor.crew import Crew
from gpu_executor.executor.families import families_of
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.telemetry.families import Family
from gpu_executor.telemetry.histogram import Distribution


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
    job_seconds: Distribution
    """From the time a job was asked for until it had its answer."""
    batch_calls: Distribution
    """Calls that were taken from the line at once."""

    @classmethod
    def of(cls, device: OpenDevice) -> DeviceStats:
        counts, journal = device.counts, device.journal
        return cls(
            device=device.seat.device,
            backend=device.seat.backend,
            calls=counts.calls,
            batches=counts.batches,
            retries=counts.retries,
            reopened=counts.reopened,
            errors=counts.errors,
            nbytes=counts.nbytes,
            seconds=counts.seconds,
            failed=None if device.failed is None else str(device.failed),
            inside=device.backend.stats(),
            job_seconds=journal.job_seconds.read(),
            batch_calls=journal.batch_calls.read(),
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
    unchecked: int
    """Calls that were to be, and have no reference."""
    fell_back: bool
    """Whether the CPU was taken because there was no GPU."""
    devices: tuple[DeviceStats, ...]

    @classmethod
    def of(cls, crew: Crew, checking: Checking) -> ExecutorStats:
        return cls(
            waiting=len(crew.line),
            waiting_bytes=crew.line.nbytes,
            checked=checking.checked,
            unchecked=checking.unchecked,
            fell_back=crew.stand_in.fell_back,
            devices=tuple(DeviceStats.of(device) for device in crew.opened()),
        )

    def families(self) -> list[Family]:
        """All of it for monitoring systems; docs/telemetry.md has them in a table."""
        return families_of(self)

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} jobs of {self.waiting_bytes:,} bytes wait"
        return "\n".join([*map(str, self.devices), f"{waiting}; {self.checked:,} checked"])
