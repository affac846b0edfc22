"""`CudaDevice`: the CUDA device that is the same GPU as a Vulkan device, and what it imports.

Everything happens in the primary context of the device, which PyTorch, CuPy and the CUDA runtime
use too.
"""

from __future__ import annotations

import contextlib
import operator
import os
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

from gpu_executor.cuda.driver import (
    DEDICATED,
    DISABLE_TIMING,
    NON_BLOCKING,
    OPAQUE_FD,
    TIMELINE_SEMAPHORE_FD,
    Driver,
    Handle,
    load_library,
)
from gpu_executor.errors import ArgumentTypeError, CudaError, ExportError, GpuError

LEGACY_STREAM = 1
"""CU_STREAM_LEGACY, which DLPack too calls 1; 2 is the default stream of each thread."""


def find_stream(caller: str, stream: Any) -> int:
    """The handle of a CUDA stream: an integer, a stream of PyTorch or CuPy, or another object with
    `__cuda_stream__`. None and 0 stand for the legacy default stream."""
    if stream is None:
        return LEGACY_STREAM
    if hasattr(stream, "__cuda_stream__"):
        handle = stream.__cuda_stream__()[1]
    else:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    if not isinstance(handle, bool):
        with contextlib.suppress(TypeError):
            found = operator.index(handle)
            if found >= 0:
                return found or LEGACY_STREAM
    raise ArgumentTypeError(
        f"{caller}: {stream!r} is no CUDA stream; pass its handle as an integer, or a stream of "
        "PyTorch or CuPy"
    )


class MappedMemory:
    """Memory of another API, mapped for CUDA until this object is gone.

    CUDA may still use it then: all work of the context is waited for before.
    """

    __slots__ = ("__weakref__", "pointer")

    def __init__(self, device: CudaDevice, memory: Handle, pointer: int) -> None:
        self.pointer = pointer
        # Not at exit: other libraries may still use the memory then.
        weakref.finalize(self, _unmap, device, memory, pointer).atexit = False


def _unmap(device: CudaDevice, memory: Handle, pointer: int) -> None:
    if device.is_inherited:
        return
    # An error means that the context is gone or broken, and the memory with it.
    with contextlib.suppress(GpuError), device.use():
        with contextlib.suppress(GpuError):
            device.driver.cuCtxSynchronize()
        with contextlib.suppress(GpuError):
            device.driver.cuMemFree_v2(pointer)
        device.driver.cuDestroyExternalMemory(memory)


class CudaDevice:
    """A CUDA device and its primary context, which this object retains. Thread-safe."""

    def __init__(self, name: str, wanted: str) -> None:
        """`wanted` is the UUID of the Vulkan device, `name` its name."""
        self.driver = Driver(load_library())
        self.ffi = self.driver.ffi
        self._process = os.getpid()
        self.ordinal = self._find(name, uuid.UUID(wanted))
        """Its index among the CUDA devices of this process."""
        device, context = self.ffi.new("CUdevice *"), self.ffi.new("CUcontext *")
        self.driver.cuDeviceGet(device, self.ordinal)
        self.driver.cuDevicePrimaryCtxRetain(context, device[0])
        self._context = context[0]
        released = self.driver.cuDevicePrimaryCtxRelease_v2
        weakref.finalize(self, _release_context, self._process, released, device[0]).atexit = False

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked child of the process that opened the device."""
        return os.getpid() != self._process

    def _find(self, name: str, wanted: uuid.UUID) -> int:
        """The index of the device with a UUID."""
        try:
            self.driver.cuInit(0)
        except CudaError as error:
            raise ExportError(
                f"arrays on {name} cannot be exchanged with CUDA, which does not work here: {error}"
            ) from error
        count, device = self.ffi.new("int *"), self.ffi.new("CUdevice *")
        found, listed = self.ffi.new("CUuuid *"), []
        self.driver.cuDeviceGetCount(count)
        for ordinal in range(count[0]):
            self.driver.cuDeviceGet(device, ordinal)
            self.driver.cuDeviceGetUuid_v2(found, device[0])
            listed.append(uuid.UUID(bytes=bytes(found.bytes)))
            if listed[-1] == wanted:
                return ordinal
        raise ExportError(
            f"arrays on {name} cannot be exchanged with CUDA: its UUID is {wanted}, and the CUDA "
            f"devices of this process have {', '.join(map(str, listed)) or 'none'}; "
            "CUDA_VISIBLE_DEVICES selects them"
        )

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Make the primary context this thread's current one."""
        self.driver.cuCtxPushCurrent_v2(self._context)
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent_v2(self.ffi.new("CUcontext *"))

    def import_memory(self, fd: int, nbytes: int, *, dedicated: bool) -> MappedMemory:
        """Map memory that Vulkan has exported. CUDA takes the file descriptor; it is closed here if
        CUDA does not."""
        ffi, driver = self.ffi, self.driver
        wanted = ffi.new("CUDA_EXTERNAL_MEMORY_HANDLE_DESC *")
        wanted.type, wanted.handle.fd, wanted.size = OPAQUE_FD, fd, nbytes
        wanted.flags = DEDICATED if dedicated else 0
        memory, pointer = ffi.new("CUexternalMemory *"), ffi.new("CUdeviceptr *")
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, fd)
            with self.use():
                driver.cuImportExternalMemory(memory, wanted)
                undo.pop_all()
                undo.callback(driver.cuDestroyExternalMemory, memory[0])
                whole = ffi.new("CUDA_EXTERNAL_MEMORY_BUFFER_DESC *")
                whole.size = nbytes
                driver.cuExternalMemoryGetMappedBuffer(pointer, memory[0], whole)
                undo.pop_all()
        return MappedMemory(self, memory[0], int(pointer[0]))

    def import_semaphore(self, fd: int) -> Handle:
        """A timeline semaphore that Vulkan has exported. CUDA takes the file descriptor; it is
        closed here if CUDA does not. The context must be current."""
        wanted = self.ffi.new("CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *")
        wanted.type, wanted.handle.fd = TIMELINE_SEMAPHORE_FD, fd
        semaphore = self.ffi.new("CUexternalSemaphore *")
        try:
            self.driver.cuImportExternalSemaphore(semaphore, wanted)
        except BaseException:
            os.close(fd)
            raise
        return semaphore[0]

    def make_stream(self) -> Handle:
        """A stream that waits for no other one by itself. The context must be current."""
        stream = self.ffi.new("CUstream *")
        self.driver.cuStreamCreate(stream, NON_BLOCKING)
        return stream[0]

    def make_event(self) -> Handle:
        """An event. The context must be current."""
        event = self.ffi.new("CUevent *")
        self.driver.cuEventCreate(event, DISABLE_TIMING)
        return event[0]

    def signal(self, semaphore: Handle, value: int, stream: Handle) -> None:
        """Let a stream signal a value of a semaphore. The context must be current."""
        parameters = self.ffi.new("CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *")
        parameters.params.fence.value = value
        semaphores = self.ffi.new("CUexternalSemaphore[]", [semaphore])
        self.driver.cuSignalExternalSemaphoresAsync(semaphores, parameters, 1, stream)

    def wait(self, semaphore: Handle, value: int, stream: Handle) -> None:
        """Let a stream wait for a value of a semaphore. The context must be current."""
        parameters = self.ffi.new("CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *")
        parameters.params.fence.value = value
        semaphores = self.ffi.new("CUexternalSemaphore[]", [semaphore])
        self.driver.cuWaitExternalSemaphoresAsync(semaphores, parameters, 1, stream)


def _release_context(process: int, release: Any, device: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(GpuError):
            release(device)
