"""Submitting work and waiting for results to be readable.

`PublicWaiting` goes through wgpu-py's promises, which its own thread resolves. `PrivateWaiting`
calls the same wgpu-native functions directly: it polls for the very submission that it waits for,
without the other thread, and takes 0.76 of the time for a task of 1 K elements on lavapipe. It uses
names that wgpu-py does not promise to keep, so it is taken with the version it was written for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

PRIVATE_FOR = "0.32.0"


class Readable(Protocol):
    """A buffer that is about to be mapped for reading."""

    def wait(self) -> memoryview:
        """Its bytes, when the device is done with what was submitted before; until `done`."""

    def done(self) -> None:
        """Unmap it. No view of its bytes may be used any more."""


class Waiting(Protocol):
    """How work is submitted and waited for."""

    def submit(self, command_buffers: Sequence[Any]) -> Any:
        """Hand commands to the device; returns what `map` wants to know of it."""

    def map(self, buffer: Any, nbytes: int, submitted: Any) -> Readable:
        """Begin to map a buffer's first bytes, to be read when that submission is done."""


class PublicWaiting:
    """By promises."""

    def __init__(self, device: Any) -> None:
        self._queue = device.queue

    def submit(self, command_buffers: Sequence[Any]) -> None:
        self._queue.submit(command_buffers)

    def map(self, buffer: Any, nbytes: int, submitted: None) -> Readable:
        return _Promised(buffer, nbytes)


class _Promised:
    __slots__ = ("_buffer", "_nbytes", "_promise")

    def __init__(self, buffer: Any, nbytes: int) -> None:
        self._buffer, self._nbytes = buffer, nbytes
        self._promise = buffer.map_async("READ", 0, nbytes)

    def wait(self) -> memoryview:
        self._promise.sync_wait()
        view: memoryview = self._buffer.read_mapped(0, self._nbytes, copy=False)
        return view

    def done(self) -> None:
        self._buffer.unmap()


class PrivateWaiting:
    """By wgpu-native's own functions."""

    def __init__(self, device: Any) -> None:
        from wgpu.backends.wgpu_native import _api

        self._lib, self._checked, self._ffi = _api.lib, _api.libf, _api.ffi
        self._queue, self._device = device.queue._internal, device._internal

    def submit(self, command_buffers: Sequence[Any]) -> Any:
        handles = self._ffi.new(
            "WGPUCommandBuffer[]", [commands._internal for commands in command_buffers]
        )
        index = self._checked.wgpuQueueSubmitForIndex(self._queue, len(command_buffers), handles)
        return self._ffi.new("WGPUSubmissionIndex *", index)

    def map(self, buffer: Any, nbytes: int, submitted: Any) -> Readable:
        return _Polled(self._lib, self._ffi, self._device, buffer._internal, nbytes, submitted)


class _Polled:
    __slots__ = ("_arguments", "_callback", "_ffi", "_lib", "_status", "_submitted")

    def __init__(
        self, lib: Any, ffi: Any, device: Any, buffer: Any, nbytes: int, submitted: Any
    ) -> None:
        self._lib, self._ffi, self._submitted = lib, ffi, submitted
        self._arguments = device, buffer, nbytes
        self._status: list[int] = []
        # Kept: the library calls it when the buffer is mapped.
        self._callback = ffi.callback(
            "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
            lambda status, *_: self._status.append(status),
        )
        info = ffi.new("WGPUBufferMapCallbackInfo *")
        info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, self._callback
        lib.wgpuBufferMapAsync(buffer, lib.WGPUMapMode_Read, 0, nbytes, info[0])

    def wait(self) -> memoryview:
        device, buffer, nbytes = self._arguments
        while not self._status:
            self._lib.wgpuDevicePoll(device, True, self._submitted)
        if self._status[0] != self._lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"a buffer could not be mapped ({self._status[0]})")
        address = self._lib.wgpuBufferGetConstMappedRange(buffer, 0, nbytes)
        return memoryview(self._ffi.buffer(address, nbytes))

    def done(self) -> None:
        self._lib.wgpuBufferUnmap(self._arguments[1])


def choose_waiting(wgpu: Any, device: Any, *, private: bool = True) -> Waiting:
    """The private way where wgpu-py is the version it was written for, else the public one."""
    native = type(device).__module__.startswith("wgpu.backends.wgpu_native")
    if private and native and wgpu.__version__ == PRIVATE_FOR:
        return PrivateWaiting(device)
    return PublicWaiting(device)
