"""Submitting and waiting by wgpu-native's own functions, for one version of wgpu-py.

It uses names that wgpu-py does not promise to keep, so it is taken with the version it was written
for only. A single task of 1 K elements takes 0.46 of the time that it takes by promises on an
NVIDIA H200 (175 and 381 us), and 0.57 on lavapipe (244 and 428).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.public_waiting import READ, READ_AS_IT_IS, PublicWaiting
from gpu_executor.webgpu.waiting import Copy, Dispatch, Waiting

PRIVATE_FOR = "0.32.0"
SPIN_SECONDS = 100e-6
"""How long a GPU is asked again and again before the thread sleeps: on an H200 a task of 1 K took
94 us so, and 121 asleep. A software device needs the processor itself: 512 K took lavapipe 23.3 ms
so, and 11.3 asleep."""


class PrivateWaiting:
    """By wgpu-native's own functions."""

    maps_inputs = True

    def __init__(self, device: WebGpuDevice) -> None:
        from wgpu.backends.wgpu_native import _api

        self._api = _api
        self._queue, self._device = device.device.queue._internal, device.device._internal
        self._spin = 0.0 if device.is_software else SPIN_SECONDS
        self._interrupts: list[int] = []
        """Threads that were interrupted in a callback and do not know it yet."""

    def submit(
        self,
        pipeline: Any,
        copies_in: Sequence[Copy],
        dispatches: Sequence[Dispatch],
        copies_out: Sequence[Copy],
    ) -> Any:
        lib, ffi = self._api.lib, self._api.ffi
        null = ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, null)
        self._copy(encoder, copies_in)
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
        self._copy(encoder, copies_out)
        commands = lib.wgpuCommandEncoderFinish(encoder, null)
        lib.wgpuCommandEncoderRelease(encoder)
        # Through wgpu-py's wrapper once: what was wrong with any of it is raised here.
        index = self._api.libf.wgpuQueueSubmitForIndex(
            self._queue, 1, ffi.new("WGPUCommandBuffer[]", [commands])
        )
        lib.wgpuCommandBufferRelease(commands)
        return ffi.new("WGPUSubmissionIndex *", index)

    def writer(self, buffer: Any) -> _MappedWriter:
        return _MappedWriter(self._mapping(buffer, self._api.lib.WGPUMapMode_Write), buffer.size)

    def reader(self, buffer: Any) -> _Mapping:
        return self._mapping(buffer, self._api.lib.WGPUMapMode_Read)

    def _mapping(self, buffer: Any, mode: int) -> _Mapping:
        return _Mapping(self._api, self._device, buffer, mode, self._spin, self._interrupts)

    def _copy(self, encoder: Any, copies: Sequence[Copy]) -> None:
        copy = self._api.lib.wgpuCommandEncoderCopyBufferToBuffer
        for source, target, offset, nbytes in copies:
            copy(encoder, source._internal, offset, target._internal, offset, nbytes)


class _Mapping:
    """A buffer that is mapped again and again, for reading or for writing."""

    def __init__(
        self, api: Any, device: Any, buffer: Any, mode: int, spin: float, interrupts: list[int]
    ) -> None:
        self._lib, self._ffi, self._device = api.lib, api.ffi, device
        self._buffer, self._handle = buffer, buffer._internal
        self._mode, self._spin, self._interrupts = mode, spin, interrupts
        self._nbytes, self._submitted = 0, None
        self._answers: list[int | None] = []
        # Kept: the library calls it whenever the buffer is mapped, in whichever thread polls.
        self._callback = api.ffi.callback(
            "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
            lambda status, *_: self._answers.append(status),
            onerror=self._interrupted,
        )
        self._info = api.ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = api.lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = self._callback

    def begin(self, nbytes: int, submitted: Any) -> None:
        self._nbytes, self._submitted = nbytes, submitted
        self._answers.clear()
        self._lib.wgpuBufferMapAsync(self._handle, self._mode, 0, nbytes, self._info[0])

    def wait(self) -> memoryview:
        if not self._answers:
            self._poll()
        answer = self._answers[0]
        if answer not in (None, self._lib.WGPUMapAsyncStatus_Success):
            raise RuntimeError(f"a buffer could not be mapped ({answer})")
        if self._mode == self._lib.WGPUMapMode_Read:
            address = self._lib.wgpuBufferGetConstMappedRange(self._handle, 0, self._nbytes)
        else:
            address = self._lib.wgpuBufferGetMappedRange(self._handle, 0, self._nbytes)
        if address == self._ffi.NULL:
            raise RuntimeError("a buffer could not be mapped")
        return memoryview(self._ffi.buffer(address, self._nbytes))

    def end(self) -> None:
        self._lib.wgpuBufferUnmap(self._handle)

    def _interrupted(self, _kind: object, error: object, _trace: object) -> None:
        """An interrupt that comes in the callback swallows the answer, and nobody hears of it: the
        answer is given here, and the thread that polls is told."""
        self._answers.append(None)
        if isinstance(error, KeyboardInterrupt):
            self._interrupts.append(get_ident())

    def _poll(self) -> None:
        poll, null = self._lib.wgpuDevicePoll, self._ffi.NULL
        until = perf_counter() + self._spin
        while not self._answers and perf_counter() < until:
            poll(self._device, False, null)
        submitted = self._submitted
        while not self._answers:
            poll(self._device, submitted is not None, null if submitted is None else submitted)
        if self._interrupts and self._interrupts[0] == get_ident():
            self._interrupts.clear()
            raise KeyboardInterrupt


class _MappedWriter:
    """The buffer is mapped whenever the device does not have it."""

    def __init__(self, mapping: _Mapping, nbytes: int) -> None:
        self._mapping, self._nbytes = mapping, nbytes
        self._begun = False
        self._room: npt.NDArray[np.uint8] | None = None

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        room = self._mapped()[offset : offset + data.nbytes]
        room.view(data.dtype.newbyteorder("<")).reshape(data.shape)[...] = data

    def end(self) -> None:
        self._room, self._begun = None, False
        self._mapping.end()

    def begin(self, submitted: Any) -> None:
        self._mapping.begin(self._nbytes, submitted)
        self._begun = True

    def close(self) -> None:
        if self._begun:
            self._mapped()
            self.end()

    def _mapped(self) -> npt.NDArray[np.uint8]:
        if self._room is None:
            if not self._begun:
                self.begin(None)
            self._room = np.frombuffer(self._mapping.wait(), np.uint8)
        return self._room


def choose_waiting(device: WebGpuDevice, *, private: bool = True) -> Waiting:
    """The private way where wgpu-py is the version it was written for, else the public one."""
    native = type(device.device).__module__.startswith("wgpu.backends.wgpu_native")
    known = native and device.wgpu.__version__ == PRIVATE_FOR
    if private and known:
        return PrivateWaiting(device)
    return PublicWaiting(device.device, READ_AS_IT_IS if known else READ)
