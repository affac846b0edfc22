"""The devices that a key or a setup computes on."""

from __future__ import annotations

from typing import Any

from gpu_executor.backend import Backend, require_array_device
from gpu_executor.calls.arguments import describe
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentTypeError, NotSupportedError


def list_devices(device: Any, what: str) -> tuple[ArrayDevice, ...]:
    """The devices of an executor or a backend, all of which run kernels; `what` needs them."""
    if not isinstance(device, Backend):
        raise ArgumentTypeError(
            f"device= is {describe(device)}; {what} takes an executor or a backend, such as "
            "gx.GpuExecutor()"
        )
    first = require_array_device(device)
    if not first.runs_kernels:
        raise NotSupportedError(what, first.backend, ("vulkan", "webgpu"))
    return tuple(each for each in device.array_devices if each.runs_kernels)
