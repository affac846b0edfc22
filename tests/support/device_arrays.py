"""Arrays of 32-bit words on a device, and sums of them, for tests of device memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.steps.bound_steps import SetLayout
from gpu_executor.steps.status import STATUS_BYTES
from gpu_executor.vulkan.descriptors import VALUES_PER_BINDING, DescriptorSet
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.jobs import ADD_U32

WORD = np.dtype(np.uint32)
COUNT = 5000


def get_device_memory(gpu: gx.PersistentVulkanBackend) -> DeviceMemory:
    return gpu._session.device_memory


def limit_bindings(
    monkeypatch: pytest.MonkeyPatch,
    gpu: gx.PersistentVulkanBackend,
    nbytes: int,
    alignment: int = 256,
) -> None:
    """Let a backend's device arrays be on a device that binds at most so many bytes, at offsets of
    that alignment, which is a multiple of the device's own. Every binding is checked."""
    memory = get_device_memory(gpu)
    assert memory.f64_limbs in (True, False)  # tried before the limits apply
    limits = dataclasses.replace(
        gpu.device.limits, max_storage_buffer_range=nbytes, buffer_offset_alignment=alignment
    )
    monkeypatch.setattr(memory, "info", dataclasses.replace(gpu.device, limits=limits))
    monkeypatch.setattr(memory._binder, "_max_binding_bytes", nbytes)
    monkeypatch.setattr(memory._binder, "_alignment", alignment)
    sets, binder = memory.stream._sets, memory._binder
    acquire = sets.acquire

    def check_and_acquire(values: Sequence[int], layout: SetLayout) -> DescriptorSet:
        count = layout if isinstance(layout, int) else len(layout[0])
        for index in range(0, VALUES_PER_BINDING * count, VALUES_PER_BINDING):
            _, offset, bound = values[index : index + VALUES_PER_BINDING]
            assert bound <= binder._max_binding_bytes
            assert bound == STATUS_BYTES or offset % binder._alignment == 0
        return acquire(values, layout)

    monkeypatch.setattr(sets, "acquire", check_and_acquire)


def draw_words(seed: int, count: int = COUNT) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


def submit_sum(device: DeviceMemory, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """a + b, submitted as one dispatch and not waited for."""
    result = device.empty(a.shape, WORD)
    device.submit([Dispatch(ADD_U32, (a, b, result), a.size)])
    return result
