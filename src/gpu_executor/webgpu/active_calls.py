"""`ActiveCalls`: the calls that use a device now, which is open and not lost."""

from __future__ import annotations

import threading

from gpu_executor.errors import ClosedError, DeviceLostError
from gpu_executor.webgpu.device import WebGpuDevice

DEVICE_LOST = -4
"""VK_ERROR_DEVICE_LOST: a lost WebGPU device is reported with Vulkan's error code."""


class ActiveCalls:
    """The calls that are running. Each call does its work inside a `with` statement.

    Closing waits for these calls and refuses later ones. A call that fails because the device is
    lost raises `DeviceLostError`, and so does every call after it.
    """

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        self._lock = threading.RLock()  # a signal handler may make calls
        self._ended = threading.Condition(self._lock)
        """Notified when a call ends after `close`."""
        self._count = 0
        self._closed = self._lost = False

    def __enter__(self) -> None:
        if self._lost:
            self._raise_lost(None)
        with self._lock:
            if self._closed:
                raise ClosedError("the executor is closed; open another one")
            self._count += 1

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with self._lock:
            self._count -= 1
            if self._closed:
                self._ended.notify_all()
        # A lost device raises errors of many types, so test the device itself.
        if isinstance(error, Exception) and self._device.is_lost():
            # Nothing may be submitted from now on: wgpu-native would end the process.
            self._lost = True
            self._raise_lost(error)

    def close(self) -> bool:
        """Refuse further calls and wait for the active ones; return whether this was the first
        `close`."""
        with self._lock:
            first, self._closed = not self._closed, True
            while self._count:
                self._ended.wait()
        return first

    def _raise_lost(self, error: Exception | None) -> None:
        meaning = f"{self._device.name} is lost; reopen the backend"
        raise DeviceLostError("WebGPU", DEVICE_LOST, meaning) from error
