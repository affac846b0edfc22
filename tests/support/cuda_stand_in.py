"""A stand-in for CUDA's driver library, for software devices: it maps the memory that Vulkan
exports into this process, and its streams run at once, in the thread that submits to them.

Lavapipe exports memory, and no semaphores. Those are handed over as file descriptors of empty
files, which the stand-in knows, and it signals and waits for them through Vulkan.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.arrays import dlpack
from gpu_executor.cuda import device as cuda_device
from gpu_executor.cuda.driver import load_ffi
from gpu_executor.vulkan import cuda_exchange, external_memory
from gpu_executor.vulkan.binding import Arena, allocate_out, vk

INVALID = 1
"""CUDA_ERROR_INVALID_VALUE."""


class CudaStandIn:
    """The functions of libcuda that the package calls, on memory of the host."""

    def __init__(self, wanted: str) -> None:
        self.uuids = [uuid.uuid4(), uuid.UUID(wanted)]
        self.ffi = load_ffi()
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {}
        """What functions return instead of doing anything."""
        self.live: Counter[str] = Counter()
        self.capturing: set[int] = set()
        """Streams that record a CUDA graph."""
        self.before_signals: Callable[[], None] | None = None
        """What a stream computes before it signals a semaphore, some time later. The device must be
        open without the validation layer (1.3.239), which deadlocks for 10 s if one thread signals
        a semaphore while another waits for work behind it."""
        self.is_broken = False
        """Whether the context is broken: work is accepted, and waiting for it fails."""
        self._objects: dict[int, Any] = {}
        self._semaphores: dict[int, tuple[Any, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        run = getattr(type(self), f"do_{name}", None)

        def call(*arguments: Any) -> int:
            self.calls[name] += 1
            if name in self.failing:
                return self.failing[name]
            return 0 if run is None else int(run(self, *arguments) or 0)

        return call

    def _add(self, kind: str, value: object) -> int:
        self.live[kind] += 1
        key = 0x1000 + len(self._objects)
        self._objects[key] = (kind, value)
        return key

    def _remove(self, key: int) -> Any:
        kind, value = self._objects[key]
        self._objects[key] = None
        self.live[kind] -= 1
        return value

    def _as_key(self, handle: Any) -> int:
        return int(self.ffi.cast("uintptr_t", handle))

    def do_cuGetErrorName(self, result: int, out: Any) -> int:  # noqa: N802 - CUDA's names
        self._name = self.ffi.new("char[]", b"CUDA_ERROR_STAND_IN")
        out[0] = self._name
        return 0

    def do_cuDeviceGetCount(self, out: Any) -> None:  # noqa: N802
        out[0] = len(self.uuids)

    def do_cuDeviceGet(self, out: Any, ordinal: int) -> None:  # noqa: N802
        out[0] = ordinal

    def do_cuDeviceGetUuid_v2(self, out: Any, device: int) -> None:  # noqa: N802
        self.ffi.memmove(out, self.uuids[device].bytes, 16)

    def do_cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:  # noqa: N802
        self.live["context"] += 1
        out[0] = self.ffi.cast("CUcontext", 16)

    def do_cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:  # noqa: N802
        self.live["context"] -= 1

    def do_cuCtxPushCurrent_v2(self, context: Any) -> None:  # noqa: N802
        self.live["pushed"] += 1

    def do_cuCtxPopCurrent_v2(self, out: Any) -> None:  # noqa: N802
        self.live["pushed"] -= 1

    def do_cuStreamCreate(self, out: Any, flags: int) -> None:  # noqa: N802
        assert flags == 1
        out[0] = self.ffi.cast("CUstream", self._add("stream", None))

    def do_cuStreamDestroy_v2(self, stream: Any) -> None:  # noqa: N802
        self._remove(self._as_key(stream))

    def do_cuStreamSynchronize(self, stream: Any) -> int:  # noqa: N802
        return 700 if self.is_broken else 0

    def do_cuStreamIsCapturing(self, stream: Any, out: Any) -> None:  # noqa: N802
        out[0] = int(self._as_key(stream) in self.capturing)

    def do_cuEventCreate(self, out: Any, flags: int) -> None:  # noqa: N802
        out[0] = self.ffi.cast("CUevent", self._add("event", None))

    def do_cuEventDestroy_v2(self, event: Any) -> None:  # noqa: N802
        self._remove(self._as_key(event))

    def do_cuMemcpyDtoDAsync_v2(  # noqa: N802
        self, target: int, source: int, nbytes: int, stream: Any
    ) -> None:
        ctypes.memmove(target, source, nbytes)

    def do_cuImportExternalMemory(self, out: Any, wanted: Any) -> int:  # noqa: N802
        fd = wanted.handle.fd
        if wanted.type != 1 or os.fstat(fd).st_size < wanted.size:
            return INVALID
        mapped = mmap.mmap(fd, 0)
        os.close(fd)  # it belongs to the library now
        out[0] = self.ffi.cast("CUexternalMemory", self._add("memory", mapped))
        return 0

    def do_cuExternalMemoryGetMappedBuffer(  # noqa: N802
        self, out: Any, memory: Any, wanted: Any
    ) -> None:
        mapped = self._objects[self._as_key(memory)][1]
        start: int = struct.unpack_from("QQ", mapped)[1]  # Mesa's header says where the memory is
        out[0] = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + start
        self.live["mapping"] += 1

    def do_cuMemFree_v2(self, pointer: int) -> None:  # noqa: N802
        self.live["mapping"] -= 1

    def do_cuDestroyExternalMemory(self, memory: Any) -> None:  # noqa: N802
        self._remove(self._as_key(memory))

    def do_cuImportExternalSemaphore(self, out: Any, wanted: Any) -> int:  # noqa: N802
        fd = wanted.handle.fd
        if wanted.type != 9:
            return INVALID
        semaphore = self._semaphores[os.fstat(fd).st_ino]
        os.close(fd)
        out[0] = self.ffi.cast("CUexternalSemaphore", self._add("semaphore", semaphore))
        return 0

    def do_cuDestroyExternalSemaphore(self, semaphore: Any) -> None:  # noqa: N802
        self._remove(self._as_key(semaphore))

    def do_cuSignalExternalSemaphoresAsync(  # noqa: N802
        self, semaphores: Any, values: Any, count: int, stream: Any
    ) -> None:
        if self.is_broken:
            return
        device, handle = self._objects[self._as_key(semaphores[0])][1]
        arena, compute = Arena(), self.before_signals
        info = arena.new("VkSemaphoreSignalInfo", semaphore=handle, value=values.params.fence.value)

        def run(_keep_alive: Arena = arena) -> None:
            if compute is not None:
                time.sleep(0.2)
                compute()
            vk.vkSignalSemaphore(device.handle, info)

        if compute is None:
            run()
        else:
            threading.Thread(target=run).start()

    def do_cuWaitExternalSemaphoresAsync(  # noqa: N802
        self, semaphores: Any, values: Any, count: int, stream: Any
    ) -> None:
        device, handle = self._objects[self._as_key(semaphores[0])][1]
        arena = Arena()
        info = arena.new(
            "VkSemaphoreWaitInfo",
            semaphoreCount=1,
            pSemaphores=arena.array("VkSemaphore", [handle]),
            pValues=arena.array("uint64_t", [values.params.fence.value]),
        )
        assert vk.vkWaitSemaphores(device.handle, info, 20_000_000_000) == vk.VK_SUCCESS

    def create_semaphore(self, device: Any, arena: Any) -> Any:
        """A timeline semaphore that is not exported, since the device cannot."""
        kind = arena.new(
            "VkSemaphoreTypeCreateInfo",
            semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE,
            initialValue=0,
        )
        info = arena.new("VkSemaphoreCreateInfo", pNext=kind)
        semaphore = allocate_out("VkSemaphore")
        vk.vkCreateSemaphore(device.handle, info, vk.ffi.NULL, semaphore)
        return semaphore[0]

    def export_semaphore(self, device: Any, semaphore: Any) -> int:
        """A file descriptor by which the stand-in finds the semaphore."""
        fd = os.memfd_create("semaphore")
        self._semaphores[os.fstat(fd).st_ino] = device, semaphore
        return fd


def count_open_files() -> int:
    """The open file descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def cuda(gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaStandIn]:
    """The stand-in in place of libcuda; at the end nothing of it may be alive that other tests do
    not use. On a GPU tests/cuda/test_cuda_libraries.py has the library itself."""
    if gpu.device.kind != "cpu":
        pytest.skip("the stand-in cannot map the memory of a GPU")
    made = CudaStandIn(gpu.device.uuid)
    monkeypatch.setattr(cuda_device, "load_library", lambda: made)
    monkeypatch.setattr(external_memory, "create_semaphore", made.create_semaphore)
    monkeypatch.setattr(external_memory, "export_semaphore", made.export_semaphore)
    monkeypatch.setattr(cuda_exchange, "check_exports", lambda _device: None)
    before = dlpack.count_exports()
    yield made
    gc.collect()
    assert dlpack.count_exports() == before
    assert +made.live == Counter()
