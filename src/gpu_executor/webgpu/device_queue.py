"""Device queues: how inputs reach the device, work is submitted and results are read back.

`DeviceQueue` is the interface. Two classes implement it:

`PublicQueue`   (this module) uses wgpu-py's public objects. A result is a promise, which a thread
                of wgpu-py resolves.
`NativeQueue`   (`native_queue.py`) calls the same wgpu-native functions directly. Inputs are
                written to buffers that stay mapped between tasks, and the calling thread polls for
                its result, without a second thread.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.kernel import Grid


class BoundDispatch(NamedTuple):
    """One dispatch: its pipeline, its bind group, its parameters and its grid."""

    pipeline: Any
    bind_group: Any
    parameters: bytes | None
    """The immediates; None if the pipeline has none."""
    grid: Grid


class BufferCopy(NamedTuple):
    """A copy from one buffer to another."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


class BufferClear(NamedTuple):
    """A range of a buffer that is set to zero."""

    buffer: Any
    offset: int
    nbytes: int


Command = BoundDispatch | BufferCopy | BufferClear
"""What a device does in the order in which it is encoded."""


class BufferWriter(Protocol):
    """Writes a task's inputs to one buffer, task after task.

    The order is `write` once per input, `finish`, the submission, then `begin_map`.
    """

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Copy an array of any layout into the buffer; the array may change afterwards."""

    def finish(self) -> None:
        """Make the buffer ready for a submission, after all inputs are written."""

    def begin_map(self, submission: Any) -> None:
        """Begin to map the buffer again; the mapping completes after the submission that reads
        it.
        """

    def close(self) -> None:
        """Leave the buffer unmapped. No submission may still use it."""


class BufferReader(Protocol):
    """Reads results from one buffer, task after task."""

    def begin_map(self, nbytes: int, submission: Any) -> None:
        """Begin to map the first `nbytes`; the mapping completes after the submission."""

    def wait(self) -> memoryview:
        """Wait until the buffer is mapped and return a view of it, which is valid until `unmap`."""

    def unmap(self) -> None:
        """Unmap the buffer. No view of its bytes may be used any more."""


class DeviceQueue(Protocol):
    """Submits work to a device and makes the readers and writers of its buffers."""

    maps_inputs: bool
    """Whether the writers map the buffer they fill, so that it needs the usage MAP_WRITE."""

    def submit(self, commands: Sequence[Command]) -> Any:
        """Submit commands as one command buffer. Dispatches in a row are one compute pass.

        Returns the submission, which the readers and writers of this queue take as an argument.
        """

    def wait(self, submission: Any) -> None:
        """Wait for a submission, and for everything submitted before it."""

    def make_writer(self, buffer: Any) -> BufferWriter:
        """Make a writer for a buffer of inputs."""

    def make_reader(self, buffer: Any) -> BufferReader:
        """Make a reader for a buffer of results."""


MAP_READ, MAP_READ_NOSYNC = "READ", "READ_NOSYNC"
"""Modes of wgpu-py's `map_async`. For READ wgpu-py makes an empty submission first. READ_NOSYNC,
which its own `read_buffer` uses, avoids that submission. In both modes the mapping waits for all
earlier submissions."""

MAX_GATHERED_BYTES = 64 << 10
"""Inputs up to this size are gathered on the host and written to the queue in one call."""


class PublicQueue:
    """A device queue that uses only wgpu-py's public API."""

    maps_inputs = False

    def __init__(self, device: Any, map_mode: str = MAP_READ) -> None:
        self._device, self._queue, self._map_mode = device, device.queue, map_mode

    def submit(self, commands: Sequence[Command]) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = current = None
        for command in commands:
            if not isinstance(command, BoundDispatch):
                if compute_pass is not None:
                    compute_pass.end()
                    compute_pass = None
                if isinstance(command, BufferCopy):
                    encoder.copy_buffer_to_buffer(*command)
                else:
                    encoder.clear_buffer(*command)
                continue
            if compute_pass is None:
                compute_pass, current = encoder.begin_compute_pass(), None
            pipeline, bind_group, parameters, grid = command
            if pipeline is not current:
                compute_pass.set_pipeline(pipeline)
                current = pipeline
            compute_pass.set_bind_group(0, bind_group)
            if parameters is not None:
                compute_pass.set_immediates(0, parameters, 0, len(parameters))
            compute_pass.dispatch_workgroups(*grid)
        if compute_pass is not None:
            compute_pass.end()
        self._queue.submit([encoder.finish()])

    def wait(self, submission: None) -> None:
        self._queue.on_submitted_work_done_sync()

    def make_writer(self, buffer: Any) -> _QueueWriter:
        return _QueueWriter(self._queue, buffer)

    def make_reader(self, buffer: Any) -> _PromiseReader:
        return _PromiseReader(buffer, self._map_mode)


class _QueueWriter:
    """Writes inputs with the queue's `write_buffer`, which copies them before it returns.

    Small inputs are gathered first: a call of `write_buffer` costs more than a second copy.
    """

    def __init__(self, queue: Any, buffer: Any) -> None:
        self._queue, self._buffer = queue, buffer
        small = buffer.size <= MAX_GATHERED_BYTES
        self._gathered = np.zeros(buffer.size, np.uint8) if small else None
        self._end = 0

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        if self._gathered is None:
            self._queue.write_buffer(self._buffer, offset, _pad_to_words(data))
            return
        self._end = max(self._end, copy_in(self._gathered, offset, data))

    def finish(self) -> None:
        if self._gathered is not None:
            self._queue.write_buffer(self._buffer, 0, self._gathered, 0, self._end)
            self._end = 0

    def begin_map(self, submission: None) -> None: ...

    def close(self) -> None: ...


class _PromiseReader:
    """Maps a buffer through wgpu-py's promises."""

    def __init__(self, buffer: Any, map_mode: str) -> None:
        self._buffer, self._map_mode = buffer, map_mode
        self._nbytes = 0
        self._promise: Any = None

    def begin_map(self, nbytes: int, submission: None) -> None:
        self._nbytes = nbytes
        self._promise = self._buffer.map_async(self._map_mode, 0, nbytes)

    def wait(self) -> memoryview:
        self._promise.sync_wait()
        view: memoryview = self._buffer.read_mapped(0, self._nbytes, copy=False)
        return view

    def unmap(self) -> None:
        self._buffer.unmap()


def copy_in(target: npt.NDArray[np.uint8], offset: int, data: npt.NDArray[Any]) -> int:
    """Copy an array of any layout to bytes in little-endian order; return the end of its last word,
    of which the bytes behind the array are zero.
    """
    end = offset + data.nbytes
    words_end = -(-end // 4) * 4
    view = target[offset:end].view(_as_little_endian(data.dtype))
    if data.ndim != 1:
        view = view.reshape(data.shape)
    np.copyto(view, data, casting="equiv")  # bytes, never values
    if end < words_end:
        target[end:words_end] = 0
    return words_end


def copy_out(source: memoryview, offset: int, target: npt.NDArray[Any]) -> None:
    """Copy little-endian bytes to an array of any layout."""
    view = np.frombuffer(source, _as_little_endian(target.dtype), target.size, offset)
    if target.ndim != 1:
        view = view.reshape(target.shape)
    np.copyto(target, view, casting="equiv")


def _as_little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.isnative and sys.byteorder == "little":
        return dtype
    return dtype.newbyteorder("<")


def _pad_to_words(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array in the form that `write_buffer` requires: contiguous, little-endian, a
    multiple of four bytes.
    """
    if array.nbytes % 4 == 0:
        return np.ascontiguousarray(array, _as_little_endian(array.dtype))
    padded = np.empty(-(-array.nbytes // 4) * 4, np.uint8)
    copy_in(padded, 0, array)
    return padded
