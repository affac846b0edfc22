"""Calls under way: closing waits for them, and turns later ones away. Whether a call failed because
the device is lost is found out here too."""

from __future__ import annotations

import threading

from gpu_executor.errors import ClosedError, DeviceLostError
from gpu_executor.webgpu.device import WebGpuDevice

DEVICE_LOST = -4
"""VK_ERROR_DEVICE_LOST, as it is by Vulkan."""


class InUse:
    """A call is a `with` around its work."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        self._changed = threading.Condition()
        self._calls = 0
        self._closed = self._lost = False

    def __enter__(self) -> None:
        if self._lost:
            self._raise_lost(None)
        with self._changed:
            if self._closed:
                raise ClosedError("the executor is closed; open another one")
            self._calls += 1

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify_all()
        # The errors of a lost device are of many kinds: a buffer or a shader that cannot be had.
        if isinstance(error, Exception) and self._device.is_lost():
            # From now on nothing is submitted: wgpu-native would end the process.
            self._lost = True
            self._raise_lost(error)

    def end(self) -> bool:
        """Return when no call is under way; whether this was the first to end it."""
        with self._changed:
            first, self._closed = not self._closed, True
            while self._calls:
                self._changed.wait()
        return first

    def _raise_lost(self, error: Exception | None) -> None:
        meaning = f"{self._device.name} is gone; reopen the backend"
        raise DeviceLostError("WebGPU", DEVICE_LOST, meaning) from error
