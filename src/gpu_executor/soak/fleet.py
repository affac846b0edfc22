"""The executors of a soak, one for each backend and one with several devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpu_executor.errors import GpuError
from gpu_executor.executor import GpuExecutor
from gpu_executor.executor.stats import ExecutorStats


@dataclass(frozen=True, slots=True)
class Place:
    """What one executor is opened with."""

    backend: Literal["vulkan", "webgpu", "cpu"]
    devices: list[str | int] | None = None
    """Where it has several: one device twice is two to it."""
    check: float = 0.0
    small_on_cpu: bool = False
    queued_bytes: int | None = None

    def open(self) -> GpuExecutor:
        return GpuExecutor(
            self.backend,
            devices=self.devices,
            check=self.check,
            small_on_cpu=self.small_on_cpu,
            queued_bytes=self.queued_bytes,
        )


PLACES = (
    Place("vulkan"),
    Place("vulkan", [0, 0], check=0.02, queued_bytes=1 << 22),
    Place("webgpu", small_on_cpu=True),
    Place("cpu", queued_bytes=1 << 18),
)
"""Each option somewhere; the limits are about what a few callers ask for at once."""


class Fleet:
    """Open in its `with`. What is not on this machine is left out."""

    def __init__(self) -> None:
        self.executors: list[GpuExecutor] = []
        self._places: list[Place] = []
        self._retired: list[ExecutorStats] = []
        self.absent: list[str] = []
        """Backends that are not there, and why."""

    def __enter__(self) -> Fleet:
        for place in PLACES:
            try:
                self.executors.append(place.open())
            except GpuError as error:
                self.absent.append(f"{place.backend}: {error}")
            else:
                self._places.append(place)
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.ExitStack() as closing:
            for executor in self.executors:
                closing.callback(executor.shutdown)
        self.executors.clear()

    def renew(self) -> None:
        """Open others instead of executors with a device that failed for good: an error while it
        was opened again, which is what a second fault at the wrong moment is."""
        for index, place in enumerate(self._places):
            stats = self.executors[index].stats()
            if any(each.failed is not None for each in stats.devices):
                self.executors[index].shutdown()
                self._retired.append(stats)
                self.executors[index] = place.open()

    def abandon(self) -> None:
        """Wait for nothing: something in there does not answer."""
        for executor in self.executors:
            self._retired.append(executor.stats())
            executor.shutdown(wait=False, cancel_futures=True)
        self.executors.clear()

    def stats(self) -> Iterator[ExecutorStats]:
        """Of those open, then of those before them."""
        yield from (executor.stats() for executor in self.executors)
        yield from self._retired
