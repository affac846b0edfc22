"""The device's clock: timestamps written between commands, read in nanoseconds."""

from __future__ import annotations

from gpu_executor.errors import DeviceLacksError
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device


class Timestamps:
    """`count` timestamps that command buffers of one queue family write."""

    def __init__(self, device: Device, family: int, count: int) -> None:
        bits = device.info.queue_families[family].timestamp_bits
        if bits == 0:
            raise DeviceLacksError(
                f"{device.info.name} writes no timestamps on queues of family {family}"
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

    def close(self) -> None:
        vk.vkDestroyQueryPool(self._device.handle, self.handle, vk.ffi.NULL)
