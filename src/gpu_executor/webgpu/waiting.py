"""Submitting work and waiting for results to be readable.

`PublicWaiting` goes through wgpu-py's objects and promises, which its own thread resolves.
`PrivateWaiting` calls the same wgpu-native functions directly, and polls for the very submission
that it waits for, without the other thread. It uses names that wgpu-py does not promise to keep, so
it is taken with the version it was written for only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

PRIVATE_FOR = "0.32.0"
READ, READ_AS_IT_IS = "READ", "READ_NOSYNC"
"""To map a buffer wgpu-py makes an empty submission first; the second word, which its own
`read_buffer` uses, spares that. Mapping waits for what was submitted before either way."""


class Dispatch(NamedTuple):
    """One use of a pipeline."""

    bind_group: Any
    parameters: bytes | None
    """Immediates, where the device has them."""
    groups: tuple[int, int]


class CopyOut(NamedTuple):
    """From the beginning of a buffer to an offset of another."""

    source: Any
    target: Any
    offset: int
    nbytes: int


class Reader(Protocol):
    """Maps one buffer for reading, again and again."""

    def begin(self, nbytes: int, submitted: Any) -> None:
        """Begin to map its first bytes, to be read when that submission is done."""

    def wait(self) -> memoryview:
        """Its bytes, when that is done; until `end`."""

    def end(self) -> None:
        """Unmap it. No view of its bytes may be used any more."""


class Waiting(Protocol):
    """How work is submitted and waited for."""

    def write(self, buffer: Any, data: npt.NDArray[Any]) -> None:
        """Hand data for the beginning of a buffer to the queue, which copies it at once."""

    def submit(
        self, pipeline: Any, dispatches: Sequence[Dispatch], copies: Sequence[CopyOut]
    ) -> Any:
        """Hand one pass and what is copied after it to the device, in one submission; returns what
        a reader wants to know of it."""

    def reader(self, buffer: Any) -> Reader:
        """For a buffer of results."""


class PublicWaiting:
    """By promises."""

    def __init__(self, device: Any, mode: str = READ) -> None:
        self._device, self._queue, self._mode = device, device.queue, mode

    def write(self, buffer: Any, data: npt.NDArray[Any]) -> None:
        self._queue.write_buffer(buffer, 0, data)

    def submit(
        self, pipeline: Any, dispatches: Sequence[Dispatch], copies: Sequence[CopyOut]
    ) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline)
        for bind_group, parameters, groups in dispatches:
            compute_pass.set_bind_group(0, bind_group)
            if parameters is not None:
                compute_pass.set_immediates(0, parameters, 0, len(parameters))
            compute_pass.dispatch_workgroups(*groups)
        compute_pass.end()
        for source, target, offset, nbytes in copies:
            encoder.copy_buffer_to_buffer(source, 0, target, offset, nbytes)
        self._queue.submit([encoder.finish()])

    def reader(self, buffer: Any) -> Reader:
        return _Promised(buffer, self._mode)


class _Promised:
    def __init__(self, buffer: Any, mode: str) -> None:
        self._buffer, self._mode = buffer, mode
        self._nbytes = 0
        self._promise: Any = None

    def begin(self, nbytes: int, submitted: None) -> None:
        self._nbytes = nbytes
        self._promise = self._buffer.map_async(self._mode, 0, nbytes)

    def wait(self) -> memoryview:
        self._promise.sync_wait()
        view: memoryview = self._buffer.read_mapped(0, self._nbytes, copy=False)
        return view

    def end(self) -> None:
        self._buffer.unmap()


class PrivateWaiting:
    """By wgpu-native's own functions."""

    def __init__(self, device: Any) -> None:
        from wgpu.backends.wgpu_native import _api

        self._api = _api
        self._queue, self._device = device.queue._internal, device._internal

    def write(self, buffer: Any, data: npt.NDArray[Any]) -> None:
        flat = data.reshape(-1).view(np.uint8)
        start = self._api.ffi.from_buffer(flat)
        self._api.lib.wgpuQueueWriteBuffer(self._queue, buffer._internal, 0, start, flat.size)

    def submit(
        self, pipeline: Any, dispatches: Sequence[Dispatch], copies: Sequence[CopyOut]
    ) -> Any:
        lib, ffi = self._api.lib, self._api.ffi
        null = ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, null)
        compute_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
        lib.wgpuComputePassEncoderSetPipeline(compute_pass, pipeline._internal)
        for bind_group, parameters, (x, y) in dispatches:
            group = bind_group._internal
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, group, 0, null)
            if parameters is not None:
                size, start = len(parameters), ffi.from_buffer(parameters)
                lib.wgpuComputePassEncoderSetImmediates(compute_pass, 0, start, size)
            lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, x, y, 1)
        lib.wgpuComputePassEncoderEnd(compute_pass)
        lib.wgpuComputePassEncoderRelease(compute_pass)
        for source, target, offset, nbytes in copies:
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, source._internal, 0, target._internal, offset, nbytes
            )
        commands = lib.wgpuCommandEncoderFinish(encoder, null)
        lib.wgpuCommandEncoderRelease(encoder)
        # Through wgpu-py's wrapper once: what was wrong with any of it is raised here.
        index = self._api.libf.wgpuQueueSubmitForIndex(
            self._queue, 1, ffi.new("WGPUCommandBuffer[]", [commands])
        )
        lib.wgpuCommandBufferRelease(commands)
        return ffi.new("WGPUSubmissionIndex *", index)

    def reader(self, buffer: Any) -> Reader:
        return _Polled(self._api.lib, self._api.ffi, self._device, buffer)


class _Polled:
    def __init__(self, lib: Any, ffi: Any, device: Any, buffer: Any) -> None:
        self._lib, self._ffi, self._device = lib, ffi, device
        self._buffer, self._handle = buffer, buffer._internal
        self._nbytes, self._submitted = 0, None
        self._status: list[int] = []
        # Kept: the library calls it whenever the buffer is mapped.
        self._callback = ffi.callback(
            "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
            lambda status, *_: self._status.append(status),
        )
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = self._callback

    def begin(self, nbytes: int, submitted: Any) -> None:
        self._nbytes, self._submitted = nbytes, submitted
        self._status.clear()
        read = self._lib.WGPUMapMode_Read
        self._lib.wgpuBufferMapAsync(self._handle, read, 0, nbytes, self._info[0])

    def wait(self) -> memoryview:
        while not self._status:
            self._lib.wgpuDevicePoll(self._device, True, self._submitted)
        if self._status[0] != self._lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"a buffer could not be mapped ({self._status[0]})")
        address = self._lib.wgpuBufferGetConstMappedRange(self._handle, 0, self._nbytes)
        return memoryview(self._ffi.buffer(address, self._nbytes))

    def end(self) -> None:
        self._lib.wgpuBufferUnmap(self._handle)


def choose_waiting(wgpu: Any, device: Any, *, private: bool = True) -> Waiting:
    """The private way where wgpu-py is the version it was written for, else the public one."""
    native = type(device).__module__.startswith("wgpu.backends.wgpu_native")
    known = native and wgpu.__version__ == PRIVATE_FOR
    if private and known:
        return PrivateWaiting(device)
    return PublicWaiting(device, READ_AS_IT_IS if known else READ)
