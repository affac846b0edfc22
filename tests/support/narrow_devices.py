"""Devices without 64-bit types: the device of the tests, opened as if it had none.

The features are not enabled then, so the validation layer reports code that uses them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.instance import Instance

WIDE_FEATURES = frozenset(
    ("shaderInt64", "shaderFloat64", "shaderBufferInt64Atomics", "shaderSharedInt64Atomics")
)


@contextlib.contextmanager
def open_narrow_gpu(settings: gx.Settings | None = None) -> Iterator[gx.PersistentVulkanBackend]:
    """Open the best device without its 64-bit types. `gx.devices()` shows them all the same."""
    list_devices = Instance.devices

    def list_narrow(instance: Instance) -> list[tuple[Handle, DeviceInfo]]:
        return [
            (handle, dataclasses.replace(info, features=info.features - WIDE_FEATURES))
            for handle, info in list_devices(instance)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "devices", list_narrow)
        backend = gx.PersistentVulkanBackend(settings=settings)
    with backend:
        yield backend
