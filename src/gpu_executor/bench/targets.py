"""Performance targets beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.device_info import DeviceInfo


@dataclass(frozen=True, slots=True)
class Target:
    """A measured quantity, and the least or the most that it should be.

    The attributes are the keys of the JSON files.
    """

    what: str
    measured: float
    aim: float
    unit: str
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.aim if self.at_most else self.measured >= self.aim


def is_h200(device: DeviceInfo) -> bool:
    """Whether the device is an NVIDIA H200, which the absolute targets are for."""
    return "H200" in device.name
