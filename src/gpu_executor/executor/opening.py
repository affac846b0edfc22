"""Opening the devices that an executor was asked for, or the best that opens."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

from gpu_executor.errors import GpuError, NoDeviceError
from gpu_executor.executor.checking import Checking
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.seats import Ranking, Seat
from gpu_executor.settings import Settings

log = logging.getLogger("gpu_executor.executor")


def open_devices(
    ranking: Ranking,
    seats: Sequence[Seat] | None,
    settings: Settings,
    tries: int,
    checking: Checking,
) -> list[OpenDevice]:
    """Those that were asked for, or where none were the best."""
    if seats is None:
        return [_open_best(ranking, settings, tries, checking)]
    return _open_all(seats, settings, tries, checking)


def _open_all(
    seats: Sequence[Seat], settings: Settings, tries: int, checking: Checking
) -> list[OpenDevice]:
    """All of them, or none."""
    devices: list[OpenDevice] = []
    try:
        for seat in seats:
            devices.append(OpenDevice(seat, settings, tries, checking))
    except BaseException:
        for device in devices:
            device.close()
        raise
    return devices


def _open_best(ranking: Ranking, settings: Settings, tries: int, checking: Checking) -> OpenDevice:
    """The first that opens; that others did not, or that it is the CPU, is a warning."""
    refused: list[str] = []
    for seat in ranking:
        try:
            device = OpenDevice(seat, settings, tries, checking)
        except GpuError as error:
            refused.append(f"{seat}: {error}")
            continue
        if refused or seat.backend == "cpu":
            _warn(f"kernels run on {seat}, since better was not to be had", ranking, refused)
        return device
    raise NoDeviceError("\n".join(["no device could be opened", *ranking.absent, *refused]))


def _warn(said: str, ranking: Ranking, refused: Sequence[str]) -> None:
    said = "; ".join([said, *ranking.absent, *refused])
    log.warning(said)
    warnings.warn(said, RuntimeWarning, stacklevel=5)  # where the executor is made
