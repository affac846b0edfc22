"""The measurements of one benchmark, and performance targets beside the measured values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_executor.device_info import DeviceInfo


class DescribedDevice(Protocol):
    """A device or adapter that a JSON file can describe."""

    def as_dict(self) -> dict[str, Any]: ...


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


@dataclass(frozen=True)
class Measurement:
    """All measurements of one benchmark. The fields of a subclass are its tables."""

    device: DescribedDevice
    targets: Sequence[Target] | None = dataclasses.field(default=None, kw_only=True)
    """None for a benchmark that has no targets on any device."""

    def tables(self) -> dict[str, Any]:
        """The tables of the JSON file; targets are the table `aims`."""
        tables = self.list_tables()
        if self.targets is not None:
            tables["aims"] = [dataclasses.asdict(each) | {"met": each.met} for each in self.targets]
        return tables

    def list_tables(self) -> dict[str, Any]:
        """The tables without the targets: the fields of the subclass by their names."""
        names = [each.name for each in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names if name not in ("device", "targets")}


@dataclass(frozen=True)
class MeasuredRows(Measurement):
    """Measurements that are one table."""

    rows: Sequence[Any]


def is_h200(device: DeviceInfo) -> bool:
    """Return whether the device is an NVIDIA H200, which the absolute targets are for."""
    return "H200" in device.name
