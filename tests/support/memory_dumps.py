"""All bytes of a Vulkan backend's memory, in use or idle, as the next user could find them."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.vulkan.binding import WHOLE_SIZE, allocate_out, vk
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.memory import HOST_VISIBLE, Block, MemoryPool

WINDOW = 32
"""Bytes that are compared with each other: the size of a scalar."""


def get_pool(gpu: gx.PersistentVulkanBackend) -> MemoryPool:
    return gpu._session._memory


def require_readable(gpu: gx.PersistentVulkanBackend) -> None:
    """Skip a test on a device with memory that the host cannot read."""
    if not all(flags & HOST_VISIBLE for flags in get_pool(gpu)._device.memory_flags):
        pytest.skip("the host cannot read all memory of this device")


def read_block(device: Device, block: Block) -> npt.NDArray[np.uint8]:
    """A copy of all bytes of a block; the device must not write to it meanwhile."""
    address = block.address
    if not address:
        mapped = allocate_out("void *")
        vk.vkMapMemory(device.handle, block.memory, 0, WHOLE_SIZE, 0, mapped)
        address = int(vk.ffi.cast("uintptr_t", mapped[0]))
    view = vk.ffi.buffer(vk.ffi.cast("char *", address), block.nbytes)
    found = np.frombuffer(view, np.uint8).copy()
    if not block.address:
        vk.vkUnmapMemory(device.handle, block.memory)
    return found


def dump_memory(gpu: gx.PersistentVulkanBackend) -> list[npt.NDArray[np.uint8]]:
    """The bytes of all blocks, after everything submitted so far."""
    pool = get_pool(gpu)
    resources = gpu._session.device_memory.stream._resources
    vk.vkDeviceWaitIdle(resources.device.handle)
    return [read_block(pool._device, block) for block in list(pool._blocks)]


def list_windows(dump: list[npt.NDArray[np.uint8]]) -> set[bytes]:
    """The contents of all windows that are not zero."""
    found: set[bytes] = set()
    for block in dump:
        rows = block[: len(block) // WINDOW * WINDOW].reshape(-1, WINDOW)
        used = np.ascontiguousarray(rows[rows.view(np.uint64).any(axis=1)])
        found.update(used.view(f"V{WINDOW}").reshape(-1).tolist())
    return found


class WindowWatch:
    """Finds the windows that differ from those of the last dump, in the same place.

    It has hashes of those: a copy of secrets would be in the memory that the driver allocates next.
    """

    def __init__(self) -> None:
        self._hashes: list[npt.NDArray[np.uint64]] = []

    def list_new(self, dump: list[npt.NDArray[np.uint8]]) -> set[bytes]:
        """The contents of the windows that differ and are not zero."""
        known, self._hashes = self._hashes, [hash_windows(block) for block in dump]
        found: set[bytes] = set()
        for block, now, last in itertools.zip_longest(dump, self._hashes, known[: len(dump)]):
            rows = block[: len(now) * WINDOW].reshape(-1, WINDOW)
            is_same = last is not None and now.shape == last.shape
            found |= list_windows([(rows[now != last] if is_same else rows).reshape(-1)])
        return found


def hash_windows(block: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """A number of 64 bits for each window."""
    factors = np.random.default_rng(1).integers(0, 1 << 64, WINDOW // 8, np.uint64) | np.uint64(1)
    numbers = block[: len(block) // WINDOW * WINDOW].view(np.uint64).reshape(-1, WINDOW // 8)
    mixed = numbers ^ numbers >> np.uint64(32)
    found: npt.NDArray[np.uint64] = (mixed * factors).sum(axis=1, dtype=np.uint64)
    return found


def contains(dump: list[npt.NDArray[np.uint8]], pattern: bytes) -> bool:
    return any(pattern in block.tobytes() for block in dump)
