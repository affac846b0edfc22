"""What a compiler says of a pipeline: instructions, registers, spills, by the extension
VK_KHR_pipeline_executable_properties. Each driver has statistics of its own.
"""

from __future__ import annotations

from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import Pipeline


def read_statistics(device: Device, pipeline: Pipeline) -> dict[str, float]:
    """Return the statistics of a compute pipeline by the names that the driver gives them.

    The device was opened with a description of `describe_device(..., statistics=True)`.
    """
    arena = Arena()
    of_executable = arena.new("VkPipelineExecutableInfoKHR", pipeline=pipeline.handle)
    read = vk.load_device_extension(device.handle, "vkGetPipelineExecutableStatisticsKHR")
    count = allocate_out("uint32_t")
    read(device.handle, of_executable, count, vk.ffi.NULL)
    found = arena.array("VkPipelineExecutableStatisticKHR", count[0])
    for each in found:
        each.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR
    read(device.handle, of_executable, count, found)
    return {vk.ffi.string(each.name).decode(): _read_value(each) for each in found[0 : count[0]]}


def _read_value(statistic: Handle) -> float:
    """Return the member of the union that the driver has written."""
    value = statistic.value
    by_format = {
        vk.VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: value.b32,
        vk.VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: value.i64,
        vk.VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: value.u64,
    }
    return by_format.get(statistic.format, value.f64)  # type: ignore[no-any-return]
