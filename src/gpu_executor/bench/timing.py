"""Timing a function, and saying where it was timed."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.device_info import DeviceInfo
from gpu_executor.version import __version__


def median_seconds(
    function: Callable[[], object], *, most: int = 1_000, budget: float = 0.5, least: int = 5
) -> float:
    """The median over repeats: `most` of them, or as many as the budget allows, `least` anyway."""
    function()
    taken: list[float] = []
    end = time.perf_counter() + budget
    while len(taken) < most and (len(taken) < least or time.perf_counter() < end):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def circumstances(device: DeviceInfo) -> dict[str, Any]:
    """Machine, device, driver, versions and date, for every file of figures."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "commit": _commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "device": device.as_dict(),
    }


def _commit() -> str | None:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
