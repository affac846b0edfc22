"""Performance targets, each with the measured value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.device_info import DeviceInfo


@dataclass(frozen=True, slots=True)
class Target:
    """A measured quantity, and the minimum or maximum that it should reach.

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


def targets_as_dicts(targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Return the targets as dictionaries, for JSON."""
    return [dataclasses.asdict(each) | {"met": each.met} for each in targets]


def is_h200(device: DeviceInfo) -> bool:
    """Return whether the device is an NVIDIA H200, which the absolute targets are for."""
    return "H200" in device.name
