"""The device's clock: timestamps written between commands, read in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_executor.errors import DeviceLacksError
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device


class Timestamps:
    """`count` timestamps that command buffers of some queue families write."""

    def __init__(self, device: Device, families: Sequence[int], count: int) -> None:
        bits = min(device.info.queue_families[family].timestamp_bits for family in families)
        if bits == 0:
            raise DeviceLacksError(
                f"{device.info.name} writes no timestamps on queues of families {list(families)}"
            )
        self._mask = (1 << bits) - 1
        self._device = device
        self.count = count
        arena = Arena()
        info = arena.new(
            "VkQueryPoolCreateInfo", queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count
        )
        pool = out("VkQueryPool")
        vk.vkCreateQueryPool(device.handle, info, vk.ffi.NULL, pool)
        self.handle: Handle = pool[0]

    def nanoseconds(self) -> list[float]:
        """Each timestamp relative to the first. What writes them must be done."""
        ticks = vk.ffi.new("uint64_t[]", self.count)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        vk.vkGetQueryPoolResults(
            self._device.handle, self.handle, 0, self.count, 8 * self.count, ticks, 8, flags
        )
        period = self._device.info.limits.timestamp_period_ns
        return [(tick - ticks[0] & self._mask) * period for tick in ticks]

    def reset(self) -> None:
        """Forget what was written, from the host: a queue that only copies cannot."""
        vk.vkResetQueryPool(self._device.handle, self.handle, 0, self.count)

    def written(self) -> list[float | None]:
        """Each timestamp in nanoseconds of the device's clock, None for one not written."""
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
