"""Arrays of 32-bit words on a device, and sums of them, for tests of device memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import Dispatch
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.jobs import ADD_U32

WORD = np.dtype(np.uint32)
COUNT = 5000


def get_device_memory(gpu: gx.PersistentVulkanBackend) -> DeviceMemory:
    return gpu._session.device_memory


def draw_words(seed: int, count: int = COUNT) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


def submit_sum(device: DeviceMemory, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """a + b, submitted as one dispatch and not waited for."""
    result = device.empty(a.shape, WORD)
    device.submit([Dispatch(ADD_U32, (a, b, result), a.size)])
    return result
