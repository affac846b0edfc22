"""A device queue that calls wgpu-native's functions directly, for one version of wgpu-py.

It uses private names of wgpu-py, so it is chosen only with the version it was written for. A single
task of 1 K elements takes half the time of `PublicQueue`: 177 and 360 us on an NVIDIA H200, 245 and
495 us on lavapipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import (
    MAP_READ,
    MAP_READ_NOSYNC,
    BoundDispatch,
    BufferClear,
    BufferCopy,
    Command,
    DeviceQueue,
    PublicQueue,
    copy_in,
)

WGPU_VERSION = "0.32.0"
"""The version of wgpu-py whose private names this module uses."""
SPIN_SECONDS = 100e-6
"""How long a thread polls a GPU before it sleeps. On an H200 a task of 1 K elements took 94 us with
polling and 121 us with sleeping. A software device needs the processor itself: 512 K elements took
lavapipe 23.3 ms with polling and 11.3 ms with sleeping."""


def is_known_version(wgpu: Any, device: Any) -> bool:
    """Whether a device is one of wgpu-native in the version whose private names are known."""
    native = type(device).__module__.startswith("wgpu.backends.wgpu_native")
    return native and bool(wgpu.__version__ == WGPU_VERSION)


def open_queue(device: WebGpuDevice, *, private: bool = True) -> DeviceQueue:
    """Open a `NativeQueue` where `private` allows it and wgpu-py has the version that it was
    written for, else a `PublicQueue`."""
    known = is_known_version(device.wgpu, device.device)
    if private and known:
        return NativeQueue(device)
    return PublicQueue(device.device, MAP_READ_NOSYNC if known else MAP_READ)


class NativeQueue:
    """A device queue on wgpu-native's C functions."""

    maps_inputs = True

    def __init__(self, device: WebGpuDevice) -> None:
        from wgpu.backends.wgpu_native import _api

        self._api = _api
        self._queue, self._device = device.device.queue._internal, device.device._internal
        self._spin = 0.0 if device.is_software else SPIN_SECONDS
        self._interrupts: list[int] = []
        """Threads that were interrupted in a callback, where the interrupt cannot be raised."""

    def submit(self, commands: Sequence[Command]) -> Any:
        lib, ffi = self._api.lib, self._api.ffi
        null = ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, null)
        compute_pass = current = None
        for command in commands:
            if not isinstance(command, BoundDispatch):
                self._end_pass(compute_pass)
                compute_pass = None
                self._record(encoder, command)
                continue
            if compute_pass is None:
                compute_pass = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
                current = None
            pipeline, bind_group, parameters, (x, y, z) = command
            if pipeline is not current:
                lib.wgpuComputePassEncoderSetPipeline(compute_pass, pipeline._internal)
                current = pipeline
            group = bind_group._internal
            lib.wgpuComputePassEncoderSetBindGroup(compute_pass, 0, group, 0, null)
            if parameters is not None:
                size, start = len(parameters), ffi.from_buffer(parameters)
                lib.wgpuComputePassEncoderSetImmediates(compute_pass, 0, start, size)
            lib.wgpuComputePassEncoderDispatchWorkgroups(compute_pass, x, y, z)
        self._end_pass(compute_pass)
        try:
            # wgpu-py's checking wrapper (`libf`) raises the validation errors of all calls above.
            # Submitting an invalid command buffer would end the process.
            encoded = self._api.libf.wgpuCommandEncoderFinish(encoder, null)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)
        index = self._api.libf.wgpuQueueSubmitForIndex(
            self._queue, 1, ffi.new("WGPUCommandBuffer[]", [encoded])
        )
        lib.wgpuCommandBufferRelease(encoded)
        return ffi.new("WGPUSubmissionIndex *", index)

    def make_writer(self, buffer: Any) -> _MappedWriter:
        return _MappedWriter(self._map(buffer, self._api.lib.WGPUMapMode_Write), buffer.size)

    def make_reader(self, buffer: Any) -> _BufferMapping:
        return self._map(buffer, self._api.lib.WGPUMapMode_Read)

    def _map(self, buffer: Any, mode: int) -> _BufferMapping:
        return _BufferMapping(self._api, self._device, buffer, mode, self._spin, self._interrupts)

    def wait(self, submission: Any) -> None:
        if submission is not None:
            self._api.lib.wgpuDevicePoll(self._device, True, submission)

    def _end_pass(self, compute_pass: Any) -> None:
        if compute_pass is not None:
            self._api.lib.wgpuComputePassEncoderEnd(compute_pass)
            self._api.lib.wgpuComputePassEncoderRelease(compute_pass)

    def _record(self, encoder: Any, command: BufferCopy | BufferClear) -> None:
        lib = self._api.lib
        if isinstance(command, BufferClear):
            buffer, offset, nbytes = command
            lib.wgpuCommandEncoderClearBuffer(encoder, buffer._internal, offset, nbytes)
            return
        source, source_offset, target, target_offset, nbytes = command
        lib.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, source._internal, source_offset, target._internal, target_offset, nbytes
        )


class _BufferMapping:
    """A buffer that is mapped and unmapped for every task, for reading or for writing."""

    def __init__(
        self, api: Any, device: Any, buffer: Any, mode: int, spin: float, interrupts: list[int]
    ) -> None:
        self._lib, self._ffi, self._device = api.lib, api.ffi, device
        self._buffer, self._handle = buffer, buffer._internal
        self._mode, self._spin, self._interrupts = mode, spin, interrupts
        self._nbytes, self._submission = 0, None
        self._answers: list[int | None] = []
        """The status of the mapping in progress, once it is done; None after an error in the
        callback."""
        # An attribute, so that it lives as long as the library may call it: whenever the buffer is
        # mapped, in whichever thread polls.
        self._callback = api.ffi.callback(
            "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
            lambda status, *_: self._answers.append(status),
            onerror=self._note_interrupt,
        )
        self._info = api.ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = api.lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = self._callback

    def begin_map(self, nbytes: int, submission: Any) -> None:
        self._nbytes, self._submission = nbytes, submission
        self._answers.clear()
        self._lib.wgpuBufferMapAsync(self._handle, self._mode, 0, nbytes, self._info[0])

    def wait(self) -> memoryview:
        if not self._answers:
            self._poll()
        answer = self._answers[0]
        if answer not in (None, self._lib.WGPUMapAsyncStatus_Success):
            raise RuntimeError(f"wgpu-native could not map a buffer: status {answer}")
        if self._mode == self._lib.WGPUMapMode_Read:
            address = self._lib.wgpuBufferGetConstMappedRange(self._handle, 0, self._nbytes)
        else:
            address = self._lib.wgpuBufferGetMappedRange(self._handle, 0, self._nbytes)
        if address == self._ffi.NULL:
            raise RuntimeError("wgpu-native could not map a buffer: it returned no address")
        return memoryview(self._ffi.buffer(address, self._nbytes))

    def unmap(self) -> None:
        self._lib.wgpuBufferUnmap(self._handle)

    def _note_interrupt(self, _kind: object, error: object, _trace: object) -> None:
        """Set the status in place of the callback, which an exception ended.

        cffi cannot raise through the C library, so an interrupt is noted for the polling thread.
        """
        self._answers.append(None)
        if isinstance(error, KeyboardInterrupt):
            self._interrupts.append(get_ident())

    def _poll(self) -> None:
        poll, null = self._lib.wgpuDevicePoll, self._ffi.NULL
        until = perf_counter() + self._spin
        while not self._answers and perf_counter() < until:
            poll(self._device, False, null)
        submission = self._submission
        while not self._answers:
            poll(self._device, submission is not None, null if submission is None else submission)
        if self._interrupts and self._interrupts[0] == get_ident():
            self._interrupts.clear()
            raise KeyboardInterrupt


class _MappedWriter:
    """Writes inputs to a buffer that is mapped whenever no submission uses it."""

    def __init__(self, mapping: _BufferMapping, nbytes: int) -> None:
        self._mapping, self._nbytes = mapping, nbytes
        self._begun = False
        self._mapped: npt.NDArray[np.uint8] | None = None

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        copy_in(self._wait(), offset, data)

    def finish(self) -> None:
        self._mapped, self._begun = None, False
        self._mapping.unmap()

    def begin_map(self, submission: Any) -> None:
        self._mapping.begin_map(self._nbytes, submission)
        self._begun = True

    def close(self) -> None:
        if self._begun:
            self._wait()
            self.finish()

    def _wait(self) -> npt.NDArray[np.uint8]:
        if self._mapped is None:
            if not self._begun:
                self.begin_map(None)
            self._mapped = np.frombuffer(self._mapping.wait(), np.uint8)
        return self._mapped
