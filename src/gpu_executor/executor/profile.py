"""ExecutorProfile: where the time of jobs goes, on all devices of an executor and on one clock."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_executor.executor.device_profile import DeviceProfile
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.telemetry.trace import Span, save_traces


class ExecutorProfile:
    """What was recorded within its `with`: the jobs of every device, and on those that Vulkan
    drives the stages of every piece."""

    def __init__(self, devices: Sequence[OpenDevice]) -> None:
        self._devices = devices
        self._profiles = [DeviceProfile() for _ in devices]
        self._ending = contextlib.ExitStack()

    @property
    def spans(self) -> list[list[Span]]:
        """Of each device, in the executor's order: times are those of `time.perf_counter_ns`."""
        return [each.spans for each in self._profiles]

    def stages(self) -> list[dict[str, float]]:
        """Seconds by stage of each device, summed over all pieces; none where there are no
        stages."""
        return [each.stages() for each in self._profiles]

    def save_trace(self, path: str | Path) -> None:
        """Write the spans for Perfetto or chrome://tracing: a process for each device, in it one
        track a queue and host thread."""
        names = [f"{number}: {each.seat}" for number, each in enumerate(self._devices)]
        save_traces(list(zip(names, self.spans, strict=True)), Path(path))

    def __enter__(self) -> ExecutorProfile:
        # Others than those of a `with` around this one, which goes on when this one is refused.
        profiles = [DeviceProfile() for _ in self._devices]
        with contextlib.ExitStack() as begun:
            for device, profile in zip(self._devices, profiles, strict=True):
                begun.callback(profile.end)
                # Before that: it may be opened again now.
                begun.callback(device.watch_no_more_by, profile)
                device.watch_by(profile)
            self._profiles, self._ending = profiles, begun.pop_all()
        return self

    def __exit__(self, *_exception: Any) -> None:
        self._ending.close()
