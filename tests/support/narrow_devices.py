"""The device of the tests, opened as if it had another description, such as no 64-bit types.

Features that the description lacks are not enabled, so the validation layer reports code that uses
them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.instance import Instance

WIDE_FEATURES = frozenset(
    ("shaderInt64", "shaderFloat64", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics")
)


@contextlib.contextmanager
def open_described_gpu(
    describe: Callable[[DeviceInfo], DeviceInfo], settings: gx.Settings | None = None
) -> Iterator[gx.PersistentVulkanBackend]:
    """Open the best device with the description that `describe` makes of its own. `gx.devices()`
    shows its own all the same."""
    list_devices = Instance.devices

    def list_described(instance: Instance) -> list[tuple[Handle, DeviceInfo]]:
        return [(handle, describe(info)) for handle, info in list_devices(instance)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "devices", list_described)
        backend = gx.PersistentVulkanBackend(settings=settings)
    with backend:
        yield backend


@contextlib.contextmanager
def open_narrow_gpu(settings: gx.Settings | None = None) -> Iterator[gx.PersistentVulkanBackend]:
    """Open the best device without its 64-bit types."""

    def narrow(info: DeviceInfo) -> DeviceInfo:
        return dataclasses.replace(info, features=info.features - WIDE_FEATURES)

    with open_described_gpu(narrow, settings) as backend:
        yield backend
