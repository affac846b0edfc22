"""Vulkan calls that fail: the error names the call, nothing leaks, and the backend recovers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import VulkanError
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.commands import Recorder
from tests.conftest import OpenGpu, ValidationMessages
from tests.support.vulkan_faults import Fail, fail

__all__ = ["fail"]  # the fixture

ADD_U32 = gx.kernels.load("vector_add_u32")
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
X = np.arange(50, dtype=np.uint32)


def check_works(gpu: gx.PersistentVulkanBackend) -> None:
    for device_local in (True, False):
        np.testing.assert_array_equal(gpu.run(ADD_U32, X, X, device_local=device_local), 2 * X)
    assert gpu.stats().slots.in_use == 0


IN_A_CALL = [
    "vkCreateBuffer",
    "vkBindBufferMemory",
    "vkMapMemory",
    "vkCreateDescriptorSetLayout",
    "vkCreatePipelineLayout",
    "vkCreateShaderModule",
    "vkCreatePipelineCache",
    "vkCreateComputePipelines",
    "vkCreateDescriptorPool",
    "vkAllocateDescriptorSets",
    "vkCreateDescriptorUpdateTemplate",
    "vkCreateCommandPool",
    "vkAllocateCommandBuffers",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
    "vkQueueSubmit",
]
IN_OPENING = [
    "vkEnumerateInstanceLayerProperties",
    "vkEnumeratePhysicalDevices",
    "vkCreateDevice",
    "vkCreateSemaphore",
]


FAULTS: dict[str, type[Exception]] = {
    "VK_ERROR_TOO_MANY_OBJECTS": VulkanError,
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": gx.OutOfMemoryError,
    "VK_ERROR_OUT_OF_HOST_MEMORY": gx.OutOfMemoryError,
}
"""Result codes, and the errors that they become."""
WAYS: dict[str, Callable[[gx.PersistentVulkanBackend], object]] = {
    "host-visible": lambda gpu: gpu.run(ADD_U32, X, X, device_local=False),
    "device-local": lambda gpu: gpu.run(ADD_U32, X, X, device_local=True),
    "batch": lambda gpu: gpu.run_batch(ADD_U32, [(X, X)] * 3),
    "stream": lambda gpu: list(gpu.stream(ADD_U32, [(X, X)] * 3)),
}


@pytest.mark.parametrize("name", [*IN_A_CALL, "vkAllocateMemory"])
def test_a_failing_vulkan_call_raises_and_leaks_nothing(
    fresh_gpu: OpenGpu, fail: Fail, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One backend for all faults of an entry point: until a call succeeds, each one gets there."""
    before = binding.count_live_objects()
    gpu = fresh_gpu()
    for (code, error), call in product(FAULTS.items(), WAYS.values()):
        fail(name, getattr(vk, code))
        with pytest.raises(error) as caught:
            call(gpu)
        if isinstance(caught.value, VulkanError):
            assert f"{name} failed: {code}" in str(caught.value)
            assert (caught.value.call, caught.value.result) == (name, getattr(vk, code))
        monkeypatch.undo()
        assert gpu.stats().slots.in_use == 0
    check_works(gpu)
    gpu.close()
    assert binding.count_live_objects() == before


def test_an_allocation_error_names_the_device_and_what_it_holds(
    fresh_gpu: OpenGpu, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    fail("vkAllocateMemory", vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(MemoryError) as caught:
        gpu.run(ADD_U32, X, X)
    for word in ("1,024 bytes of upload memory", gpu.device.name, "0 in use"):
        assert word in str(caught.value)
    monkeypatch.undo()
    check_works(gpu)


def test_a_small_block_is_allocated_if_a_large_one_fails(fresh_gpu: OpenGpu, fail: Fail) -> None:
    gpu = fresh_gpu()
    fail("vkAllocateMemory", vk.VK_ERROR_OUT_OF_DEVICE_MEMORY, on=1)
    np.testing.assert_array_equal(gpu.run(ADD_U32, X, X), 2 * X)


def test_idle_slots_are_closed_when_memory_is_short(fresh_gpu: OpenGpu, fail: Fail) -> None:
    gpu = fresh_gpu()
    check_works(gpu)
    assert gpu.stats().slots.idle == 2
    fail("vkCreateCommandPool", vk.VK_ERROR_OUT_OF_DEVICE_MEMORY, on=1)
    np.testing.assert_array_equal(gpu.run(ADD_U32, X[:9], X[:9]), 2 * X[:9])
    assert gpu.stats().slots.idle == 2


@pytest.mark.parametrize("name", IN_OPENING)
@pytest.mark.parametrize("kind", [gx.PersistentVulkanBackend, gx.VulkanSpirvBackend])
def test_a_failing_open_leaks_nothing(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str
) -> None:
    before = binding.count_live_objects()
    fail(name, vk.VK_ERROR_INITIALIZATION_FAILED)
    with pytest.raises(gx.GpuError, match=name), kind() as backend:
        backend.run(ADD_U32, X, X)
    assert binding.count_live_objects() == before
    monkeypatch.undo()
    monkeypatch.setenv("GPU_CACHE", "0")
    with kind() as backend:
        np.testing.assert_array_equal(backend.run(ADD_U32, X, X), 2 * X)


def test_an_instance_without_its_messenger_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise binding._make_error("vkCreateDebugUtilsMessengerEXT", vk.VK_ERROR_OUT_OF_HOST_MEMORY)

    before = binding.count_live_objects()
    monkeypatch.setattr(vk, "load_extension", lambda *_: refuse)
    with pytest.raises(gx.OutOfMemoryError):
        gx.PersistentVulkanBackend()
    assert binding.count_live_objects() == before


@pytest.mark.parametrize("name", ["vkQueueSubmit", "vkWaitSemaphores"])
def test_a_lost_device_raises_and_can_be_closed(
    fresh_gpu: OpenGpu, fail: Fail, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = binding.count_live_objects()
    gpu = fresh_gpu()
    check_works(gpu)
    fail(name, vk.VK_ERROR_DEVICE_LOST)
    with pytest.raises(gx.DeviceLostError, match=f"{name} failed: .*reopen the backend"):
        gpu.run(ADD_U32, X, X)
    assert gpu.stats().slots.in_use == 0
    monkeypatch.undo()
    if name == "vkWaitSemaphores":  # the device is not really lost: wait for its work
        vk.vkDeviceWaitIdle(gpu._session.resources.device.handle)
    gpu.close()
    assert binding.count_live_objects() == before


def test_a_missing_barrier_is_reported(
    fresh_gpu: OpenGpu, validation_messages: ValidationMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation layer that watches all tests does find a hazard."""
    monkeypatch.setattr(Recorder, "_record_barrier", lambda *_arguments: None)
    gpu = fresh_gpu()
    gpu.run(ADD_U32, X, X, device_local=True)
    said = validation_messages.take()
    assert any("SYNC-HAZARD-READ-AFTER-WRITE" in message for message in said)
    assert gpu.validation_messages() == said


def test_a_leaked_object_is_reported(
    fresh_gpu: OpenGpu, validation_messages: ValidationMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    gpu.run(ADD_U32, X, X)
    left: list[tuple[Any, ...]] = []
    monkeypatch.setattr(vk, "vkDestroyDescriptorPool", lambda *arguments: left.append(arguments))
    gpu.close()
    said = validation_messages.take()
    assert left
    assert any("VkDescriptorPool" in message and "destroyed" in message for message in said)
    monkeypatch.undo()
    binding._live["DescriptorPool"] -= 1  # destroyed together with its device


@pytest.mark.parametrize(
    "name", ["vkBeginCommandBuffer", "vkAllocateDescriptorSets", "vkEndCommandBuffer"]
)
def test_commands_whose_recording_failed_are_not_used_again(
    fresh_gpu: OpenGpu, fail: Fail, validation_messages: ValidationMessages, name: str
) -> None:
    gpu = fresh_gpu()
    there = gpu.to_device(X)
    gpu.synchronize()
    fail(name, vk.VK_ERROR_OUT_OF_HOST_MEMORY, on=1)
    with pytest.raises(gx.OutOfMemoryError):
        gpu.run(ADD_U32, there, there)
    np.testing.assert_array_equal(gpu.run(ADD_U32, there, there).numpy(), 2 * X)
