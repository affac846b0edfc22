"""Submitting and waiting through what wgpu-py promises to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.webgpu.waiting import Copy, Dispatch, in_fours

READ, READ_AS_IT_IS = "READ", "READ_NOSYNC"
"""To map a buffer wgpu-py makes an empty submission first; the second word, which its own
`read_buffer` uses, spares that. Mapping waits for what was submitted before either way."""

GATHERED_BYTES = 64 << 10


class PublicWaiting:
    """By promises."""

    maps_inputs = False

    def __init__(self, device: Any, mode: str = READ) -> None:
        self._device, self._queue, self._mode = device, device.queue, mode

    def submit(
        self,
        pipeline: Any,
        copies_in: Sequence[Copy],
        dispatches: Sequence[Dispatch],
        copies_out: Sequence[Copy],
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

    def writer(self, buffer: Any) -> _QueueWriter:
        return _QueueWriter(self._queue, buffer)

    def reader(self, buffer: Any) -> _Promised:
        return _Promised(buffer, self._mode)


class _QueueWriter:
    """The queue keeps a copy and writes it before the next submission.

    Small inputs are gathered first: a call of the queue costs more than copying them twice.
    """

    def __init__(self, queue: Any, buffer: Any) -> None:
        self._queue, self._buffer = queue, buffer
        small = buffer.size <= GATHERED_BYTES
        self._gathered = np.zeros(buffer.size, np.uint8) if small else None
        self._end = 0

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        if self._gathered is None:
            self._queue.write_buffer(self._buffer, offset, in_fours(data))
            return
        end = offset + data.nbytes
        room = self._gathered[offset:end].view(data.dtype.newbyteorder("<"))
        room.reshape(data.shape)[...] = data
        self._end = max(self._end, -(-end // 4) * 4)

    def end(self) -> None:
        if self._gathered is not None:
            self._queue.write_buffer(self._buffer, 0, self._gathered, 0, self._end)
            self._end = 0

    def begin(self, submitted: None) -> None: ...

    def close(self) -> None: ...


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
