"""Device queues: how inputs reach the device, work is submitted and results are read back.

`DeviceQueue` is the interface. Two classes implement it:

`PublicQueue`   (this module) uses wgpu-py's public objects. A result is a promise, which a thread
                of wgpu-py resolves.
`NativeQueue`   (`native_queue.py`) calls the same wgpu-native functions directly. Inputs are
                written to buffers that stay mapped between tasks, and the calling thread polls for
                its result, without a second thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class BoundDispatch(NamedTuple):
    """One dispatch of a pipeline: its bind group, its parameters and its grid."""

    bind_group: Any
    parameters: bytes | None
    """The immediates; None if the device has none and the parameters are in a uniform buffer.
    """
    groups: tuple[int, int]
    """Work-groups in x and y."""


class BufferCopy(NamedTuple):
    """A copy from one buffer to another, at the same offset in both."""

    source: Any
    target: Any
    offset: int
    nbytes: int


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

    def submit(
        self,
        pipeline: Any,
        copies_in: Sequence[BufferCopy],
        dispatches: Sequence[BoundDispatch],
        copies_out: Sequence[BufferCopy],
    ) -> Any:
        """Submit the copies in, one compute pass and the copies out as one command buffer.

        Returns the submission, which the readers and writers of this queue take as an argument.
        """

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

    def submit(
        self,
        pipeline: Any,
        copies_in: Sequence[BufferCopy],
        dispatches: Sequence[BoundDispatch],
        copies_out: Sequence[BufferCopy],
    ) -> None:
        encoder = self._device.create_command_encoder()
        for source, target, offset, nbytes in copies_in:
            encoder.copy_buffer_to_buffer(source, offset, target, offset, nbytes)
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline)
        for bind_group, parameters, groups in dispatches:
            compute_pass.set_bind_group(0, bind_group)
            if parameters is not None:
                compute_pass.set_immediates(0, parameters, 0, len(parameters))
            compute_pass.dispatch_workgroups(*groups)
        compute_pass.end()
        for source, target, offset, nbytes in copies_out:
            encoder.copy_buffer_to_buffer(source, offset, target, offset, nbytes)
        self._queue.submit([encoder.finish()])

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
        end = offset + data.nbytes
        target = self._gathered[offset:end].view(data.dtype.newbyteorder("<"))
        target.reshape(data.shape)[...] = data
        self._end = max(self._end, -(-end // 4) * 4)

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


def _pad_to_words(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array in the form that `write_buffer` requires: contiguous, little-endian, a
    multiple of four bytes.
    """
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if plain.nbytes % 4 == 0:
        return plain
    padded = np.zeros(-(-plain.nbytes // 4) * 4, np.uint8)
    padded[: plain.nbytes] = plain.reshape(-1).view(np.uint8)
    return padded
