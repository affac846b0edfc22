"""A device's figures on disk, beside its pipeline cache."""

from __future__ import annotations

import logging
from pathlib import Path

from gpu_executor.calibration import Calibration
from gpu_executor.device_info import DeviceInfo
from gpu_executor.files import write_in_one_step
from gpu_executor.vulkan.disk_cache import fingerprint

log = logging.getLogger("gpu_executor.vulkan")


def figures_path(folder: Path, info: DeviceInfo) -> Path:
    """One file per device and driver."""
    return folder / f"calibration-{fingerprint(info)}.json"


def read_figures(folder: Path, info: DeviceInfo) -> Calibration | None:
    """The figures that were kept; None where there are none, or none that can be read."""
    path = figures_path(folder, info)
    try:
        return Calibration.from_json(path.read_text("utf-8"))
    except OSError:
        return None
    except ValueError as error:
        log.warning("%s holds no figures of %s, and will be replaced: %s", path, info.name, error)
        return None


def keep_figures(folder: Path, info: DeviceInfo, figures: Calibration) -> None:
    """Where the disk refuses, they are not kept and no more."""
    try:
        write_in_one_step(figures_path(folder, info), figures.to_json().encode())
    except OSError as error:
        log.warning("the device's figures were not kept: %s", error)
