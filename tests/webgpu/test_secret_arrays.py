"""Buffers of secret arrays: overwritten before they serve other arrays, and when the executor is
closed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.webgpu.device_memory import WebGpuMemory

PATTERN = np.full(1000, 0xFEEDC0DE, np.uint32)
OLD = PATTERN[:4].tobytes()


def get_memory(gpu: gx.WgpuExecutor) -> WebGpuMemory:
    return gpu._device_memory


def read_idle(gpu: gx.WgpuExecutor) -> list[bytes]:
    """The contents of all idle buffers: of arrays, and those that results are read from."""
    memory, found = get_memory(gpu), []
    memory.stream.wait()
    for buffer, (_, usage) in gpu._pool._idle.items():
        if usage == memory._staging_usage:
            reader = gpu._device_memory._queue.make_reader(buffer)
            reader.begin_map(buffer.size, memory.stream._last)
            found.append(bytes(reader.wait()))
            reader.unmap()
        else:
            found.append(read_buffer(memory, buffer))
    return found


def read_buffer(memory: WebGpuMemory, buffer: Any) -> bytes:
    return bytes(memory.stream._device.device.queue.read_buffer(buffer))


@pytest.mark.parametrize("is_secret", [True, False])
def test_a_dropped_array_is_overwritten(*, is_secret: bool) -> None:
    with gx.WgpuExecutor(settings=gx.Settings()) as gpu:
        memory = get_memory(gpu)
        with memory.secret_arrays(is_secret):
            array = memory.put(PATTERN)
            memory.begin_capture()
            copy = memory.copy(array)
            graph = memory.end_capture()
        assert graph is not None
        graph.replay()
        assert copy.numpy().tobytes() == PATTERN.tobytes()
        del array, graph, copy
        gc.collect()
        gpu.synchronize()
        idle = read_idle(gpu)
        assert len(idle) >= 3
        assert any(OLD in each for each in idle) is not is_secret
        again = memory.empty(PATTERN.shape, PATTERN.dtype).numpy().tobytes()
        assert (OLD in again) is not is_secret


@pytest.mark.parametrize("is_secret", [True, False])
def test_closing_overwrites_arrays_that_exist(
    monkeypatch: pytest.MonkeyPatch, *, is_secret: bool
) -> None:
    left: list[bytes] = []
    gpu = gx.WgpuExecutor(settings=gx.Settings())
    memory = get_memory(gpu)
    arrays = []
    with memory.secret_arrays(is_secret):
        arrays.append(memory.put(PATTERN))
    clear = memory.stream.clear

    def look_and_clear() -> None:
        left.append(read_buffer(memory, memory._binder.find_storage(arrays[0]).buffer))
        clear()

    monkeypatch.setattr(memory.stream, "clear", look_and_clear)
    gpu.close()
    assert (OLD in left[0]) is not is_secret
    arrays.clear()
    memory.overwrite_secrets()
    assert not memory._secrets
