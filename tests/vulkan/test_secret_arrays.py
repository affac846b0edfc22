"""Memory of secret arrays: overwritten before anything else gets it, however they end."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLostError
from gpu_executor.vulkan import memory as memory_module
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.device_memory import MIN_CONCURRENT_BYTES, DeviceMemory
from gpu_executor.vulkan.memory import Block, Purpose
from tests.support.device_arrays import get_device_memory
from tests.support.memory_dumps import (
    contains,
    dump_memory,
    get_pool,
    read_block,
    require_readable,
)

SIZES = [24, 100_000, MIN_CONCURRENT_BYTES]
"""Bytes that would be part of commands, of staging memory, and of a copy beside the stream."""


class Secret:
    """Words that no test had before: new memory may hold bytes of a backend that was closed."""

    def __init__(self) -> None:
        self._word = secrets.randbits(32)
        self.pattern = self.repeat(16).tobytes()

    def repeat(self, nbytes: int) -> npt.NDArray[np.uint32]:
        return np.full(nbytes // 4, self._word, np.uint32)


@pytest.fixture
def secret() -> Secret:
    return Secret()


@pytest.fixture
def own() -> Iterator[gx.PersistentVulkanBackend]:
    with gx.PersistentVulkanBackend() as gpu:
        require_readable(gpu)
        yield gpu


@pytest.mark.parametrize("is_secret", [True, False])
@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("put", [DeviceMemory.put, DeviceMemory.put_ahead])
def test_a_dropped_array_is_overwritten(
    own: gx.PersistentVulkanBackend,
    put: Callable[..., gx.DeviceArray],
    nbytes: int,
    secret: Secret,
    *,
    is_secret: bool,
) -> None:
    device = get_device_memory(own)
    with device.secret_arrays(is_secret):
        array = put(device, secret.repeat(nbytes))
        copy = device.copy(array)
    assert copy.numpy().tobytes() == array.numpy().tobytes() == secret.repeat(nbytes).tobytes()
    del array, copy
    own.synchronize()
    assert contains(dump_memory(own), secret.pattern) is not is_secret


def test_another_array_gets_no_bytes_of_a_secret(
    own: gx.PersistentVulkanBackend, secret: Secret
) -> None:
    device = get_device_memory(own)
    for _ in range(3):  # without a wait in between
        with device.secret_arrays():
            device.put(secret.repeat(4096))
        assert secret.pattern not in device.empty((1024,), np.dtype(np.uint32)).numpy().tobytes()
    assert contains(dump_memory(own), secret.pattern)
    device.overwrite_secrets()
    assert not contains(dump_memory(own), secret.pattern)


def test_secrets_serve_secrets_without_a_fill(own: gx.PersistentVulkanBackend) -> None:
    device = get_device_memory(own)
    with device.secret_arrays():
        for _ in range(5):
            device.empty((1000,), np.dtype(np.uint32))
    assert len(get_pool(own).list_secrets()) == 1
    assert device.stream.submissions == 0
    own.synchronize()
    assert not get_pool(own).list_secrets()
    assert own.stats().memory_use.in_use["device arrays"] == 0


def test_a_dropped_graph_is_overwritten(own: gx.PersistentVulkanBackend, secret: Secret) -> None:
    device = get_device_memory(own)
    with device.secret_arrays():
        source = device.put(secret.repeat(5000))
        device.begin_capture()
        copies = [device.copy(source) for _ in range(3)]
        graph = device.end_capture()
    assert graph is not None
    graph.replay()
    assert secret.pattern in copies[0].numpy().tobytes()
    del graph, copies, source
    gc.collect()
    own.synchronize()
    assert not contains(dump_memory(own), secret.pattern)


def test_closing_overwrites_arrays_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[tuple[Purpose, bytes]] = []
    free = memory_module._free_block

    def look_and_free(device: Device, block: Block) -> None:
        freed.append((block.purpose, read_block(device, block).tobytes()))
        free(device, block)

    monkeypatch.setattr(memory_module, "_free_block", look_and_free)
    for is_secret in (False, True):
        freed.clear()
        secret = Secret()
        with gx.PersistentVulkanBackend() as gpu:
            require_readable(gpu)
            device = get_device_memory(gpu)
            with device.secret_arrays(is_secret):
                array = device.put(secret.repeat(100_000))
            array.numpy()
        assert {Purpose.DEVICE, Purpose.READBACK} <= {purpose for purpose, _ in freed}
        assert any(secret.pattern in content for _, content in freed) is not is_secret
        del array


def test_secrets_of_a_lost_device_are_not_used_again(
    own: gx.PersistentVulkanBackend, secret: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = get_device_memory(own)
    with device.secret_arrays():
        array = device.put(secret.repeat(4096))
    array.numpy()
    own.synchronize()

    def fail(_submission: object) -> None:
        raise DeviceLostError("vkQueueSubmit", -4, "lost by a test")

    with monkeypatch.context() as patch:
        patch.setattr(device.stream._timeline, "submit", fail)
        del array
        with pytest.raises(DeviceLostError):
            device.overwrite_secrets()
        assert secret.pattern not in bytes(dump_free_memory(own))
    device.overwrite_secrets()
    assert not contains(dump_memory(own), secret.pattern)


def dump_free_memory(gpu: gx.PersistentVulkanBackend) -> bytes:
    """The bytes of all free ranges."""
    pool, found = get_pool(gpu), b""
    for block in pool._blocks:
        content = read_block(pool._device, block)
        found += b"".join(content[start : start + size].tobytes() for start, size in block.free)
    return found
