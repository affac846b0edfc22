"""Vulkan error codes for tests of an executor, and an executor on Vulkan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.executor.jobs import CallArguments
from gpu_executor.vulkan.binding import vk

JOBS = 200
COUNT = 800
"""Elements of a job. All jobs together are too large to be coalesced, so that each job is a
submission."""
LOST, NO_MEMORY, OTHER = (
    "VK_ERROR_DEVICE_LOST",
    "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "VK_ERROR_TOO_MANY_OBJECTS",
)
CODES = (LOST, NO_MEMORY, OTHER)
for_every_code = pytest.mark.parametrize("code", CODES)


@pytest.fixture
def executor(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("vulkan") as opened:
        yield opened


def code_of(name: str) -> int:
    return int(getattr(vk, name))


def run_as_batch(
    executor: gx.GpuExecutor, kernel: gx.Kernel, calls: list[Any], outs: list[Any]
) -> list[Any]:
    """Run calls as one batch on the executor's device; the result or exception of each call."""
    pairs = zip(calls, outs, strict=True)
    return executor._devices[0].run_calls(kernel, [CallArguments(*pair) for pair in pairs])
