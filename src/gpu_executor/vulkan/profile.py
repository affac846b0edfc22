"""Profiles: the time of every stage of every chunk, on the device's queues and the host's threads.

Profiled slots write timestamps around each stage of their commands. VK_EXT_calibrated_timestamps
relates the device's clock to the host's, so that one trace shows both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from time import perf_counter_ns

from gpu_executor.errors import DeviceLacksError
from gpu_executor.telemetry.profile import STAGES, StageProfile
from gpu_executor.telemetry.spans import Span, TraceFile
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device


class Timestamps:
    """A query pool of `count` timestamps for command buffers of the given queue families."""

    def __init__(self, device: Device, families: Sequence[int], count: int) -> None:
        bits = min(device.info.queue_families[family].timestamp_bits for family in families)
        if bits == 0:
            raise DeviceLacksError(
                f"{device.info.name} does not support timestamps on queue families {list(families)}"
            )
        self._mask = (1 << bits) - 1
        self._device = device
        self.count = count
        arena = Arena()
        info = arena.new(
            "VkQueryPoolCreateInfo", queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count
        )
        pool = allocate_out("VkQueryPool")
        vk.vkCreateQueryPool(device.handle, info, vk.ffi.NULL, pool)
        self.handle: Handle = pool[0]

    def read_elapsed(self) -> list[float]:
        """Return each timestamp in nanoseconds since the first. The commands must be done."""
        ticks = vk.ffi.new("uint64_t[]", self.count)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        vk.vkGetQueryPoolResults(
            self._device.handle, self.handle, 0, self.count, 8 * self.count, ticks, 8, flags
        )
        period = self._device.info.limits.timestamp_period_ns
        return [(tick - ticks[0] & self._mask) * period for tick in ticks]

    def reset(self) -> None:
        """Reset the queries from the host, because a transfer queue cannot."""
        vk.vkResetQueryPool(self._device.handle, self.handle, 0, self.count)

    def read(self) -> list[float | None]:
        """Return each timestamp in nanoseconds of the device's clock; None if not written."""
        values = vk.ffi.new("uint64_t[]", 2 * self.count)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WITH_AVAILABILITY_BIT
        vk.vkGetQueryPoolResults(
            self._device.handle, self.handle, 0, self.count, 16 * self.count, values, 16, flags
        )
        period = self._device.info.limits.timestamp_period_ns
        return [
            values[2 * index] * period if values[2 * index + 1] else None
            for index in range(self.count)
        ]

    def close(self) -> None:
        vk.vkDestroyQueryPool(self._device.handle, self.handle, vk.ffi.NULL)


EXTENSION = "VK_EXT_calibrated_timestamps"
CLOCK_READINGS = 8
"""Both clocks are read this often and the closest pair counts: a thread may be descheduled."""
CALIBRATED_TIMESTAMP_INFO = 1000184000
"""VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT. The `vulkan` package defines another number."""


class Profile(StageProfile):
    """A profile with the stages that ran on the device's queues."""

    def __init__(self, device: Device, trace: TraceFile, on_end: Callable[[], None]) -> None:
        super().__init__(trace, on_end)
        self._offset_ns = measure_clock_offset_ns(device)

    def add_device_spans(self, marks: list[tuple[str, str, float, float]], chunk: int) -> None:
        """Add stages that ran on queues: track, stage, begin and end on the device's clock."""
        for track, stage, begin, end in marks:
            offset = self._offset_ns
            self.spans.append(Span(track, stage, int(begin) + offset, int(end) + offset, chunk))


def measure_clock_offset_ns(device: Device) -> int:
    """Return the nanoseconds to add to the device's clock to get `time.perf_counter_ns`; 0 where
    the clocks cannot be related. Drivers of other systems than Linux do not know CLOCK_MONOTONIC.
    """
    if EXTENSION not in device.info.extensions or sys.platform != "linux":
        return 0
    ask = vk.load_device_extension(device.handle, "vkGetCalibratedTimestampsEXT")
    arena = Arena()
    infos = arena.array("VkCalibratedTimestampInfoKHR", 2)
    for info, domain in zip(
        infos, (vk.VK_TIME_DOMAIN_DEVICE_KHR, vk.VK_TIME_DOMAIN_CLOCK_MONOTONIC_KHR), strict=True
    ):
        info.sType = CALIBRATED_TIMESTAMP_INFO
        info.timeDomain = domain
    stamps, deviation = arena.array("uint64_t", 2), arena.array("uint64_t", 1)
    samples = []
    for _ in range(CLOCK_READINGS):
        ask(device.handle, 2, infos, stamps, deviation)
        # perf_counter_ns and CLOCK_MONOTONIC may have different origins; read both together.
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        now = perf_counter_ns()
        between = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - before
        on_device = int(stamps[0] * device.info.limits.timestamp_period_ns)
        offset = int(stamps[1]) + now - before - on_device
        samples.append((int(deviation[0]) + between, offset))
    return min(samples)[1]


class StageTimestamps:
    """The timestamps of one slot: begin and end of copy in, compute and copy out."""

    def __init__(self, device: Device, families: list[int]) -> None:
        self.timestamps = Timestamps(device, families, 6)

    def reset(self) -> None:
        """Reset the timestamps before their commands are submitted again."""
        self.timestamps.reset()

    def read_spans(self, tracks: tuple[str, str, str]) -> list[tuple[str, str, float, float]]:
        """Return track, stage, begin and end of each stage that ran."""
        at = self.timestamps.read()
        return [
            (track, stage, begin, end)
            for track, stage, begin, end in zip(
                tracks, STAGES[1:4], at[0::2], at[1::2], strict=True
            )
            if begin is not None and end is not None
        ]

    def close(self) -> None:
        self.timestamps.close()
