"""Figures that were aimed for, beside those that were measured."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.device_info import DeviceInfo


@dataclass(frozen=True, slots=True)
class Aim:
    """What was measured, and what it should be at least, or at most."""

    what: str
    measured: float
    aim: float
    unit: str
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.aim if self.at_most else self.measured >= self.aim


def is_h200(device: DeviceInfo) -> bool:
    """Whether it is the device that speeds were aimed for on."""
    return "H200" in device.name
