"""The binding to CUDA's driver library (libcuda), by cffi without a compiler.

`driver` holds the functions under their names in C. A call that fails raises `CudaError`. cffi
releases the GIL around every call. The library comes with NVIDIA's driver; it is loaded when it is
used first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpu_executor.errors import CudaError, ExportError, OutOfMemoryError

Handle = Any
"""A cffi pointer: an object of CUDA, or a structure in C memory."""

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY, NOT_READY = 2, 600
"""Values of CUresult."""
OPAQUE_FD, TIMELINE_SEMAPHORE_FD = 1, 9
"""CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, and CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_ with
TIMELINE_SEMAPHORE_FD."""
DEDICATED = 1
"""CUDA_EXTERNAL_MEMORY_DEDICATED."""
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: the stream does not wait for the legacy default stream."""
DISABLE_TIMING = 2
"""CU_EVENT_DISABLE_TIMING."""

DECLARATIONS = """
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct { unsigned char bytes[16]; } CUuuid;

typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; const void *object; } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
    unsigned long long offset;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; const void *object; } handle;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

typedef struct {
    struct {
        struct { unsigned long long value; } fence;
        union { void *fence; unsigned long long reserved; } nvSciSync;
        struct { unsigned long long key; } keyedMutex;
        unsigned int reserved[12];
    } params;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;

typedef struct {
    struct {
        struct { unsigned long long value; } fence;
        union { void *fence; unsigned long long reserved; } nvSciSync;
        struct { unsigned long long key; unsigned int timeoutMs; } keyedMutex;
        unsigned int reserved[10];
    } params;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

CUresult cuInit(unsigned int);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuDeviceGetCount(int *);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuCtxSynchronize(void);
CUresult cuStreamCreate(CUstream *, unsigned int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned int);
CUresult cuEventCreate(CUevent *, unsigned int);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuImportExternalMemory(CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *);
CUresult cuExternalMemoryGetMappedBuffer(
    CUdeviceptr *, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *);
CUresult cuDestroyExternalMemory(CUexternalMemory);
CUresult cuImportExternalSemaphore(
    CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *);
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore);
CUresult cuSignalExternalSemaphoresAsync(
    const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *, unsigned int,
    CUstream);
CUresult cuWaitExternalSemaphoresAsync(
    const CUexternalSemaphore *, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *, unsigned int,
    CUstream);
"""


@functools.cache
def load_ffi() -> Any:
    """The declarations of the driver library."""
    import cffi  # not before an array is shared: it would take part of the time of opening

    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    return ffi


def load_library() -> Any:
    """The driver library. Raises `ExportError` where there is none."""
    try:
        return load_ffi().dlopen(LIBRARY)
    except OSError as error:
        raise ExportError(
            f"arrays are exchanged with other libraries through CUDA's driver library, which "
            f"cannot be loaded: {error}"
        ) from None


class Driver:
    """The functions of the driver library, each of which raises `CudaError` when it fails."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.ffi = load_ffi()

    def __getattr__(self, name: str) -> Callable[..., None]:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise ExportError(f"CUDA's driver library is too old: it has no {name}") from None

        def call(*arguments: Any) -> None:
            result = function(*arguments)
            if result:
                raise self._make_error(name, result)

        setattr(self, name, call)
        return call

    def is_ready(self, event: Handle) -> bool:
        """Whether everything before an event is complete."""
        result = self._library.cuEventQuery(event)
        if result not in (0, NOT_READY):
            raise self._make_error("cuEventQuery", result)
        return bool(result == 0)

    def _make_error(self, call: str, result: int) -> Exception:
        name = self.ffi.new("char **")
        found = self._library.cuGetErrorName(result, name) == 0 and name[0] != self.ffi.NULL
        meaning = self.ffi.string(name[0]).decode() if found else "an unknown CUresult"
        if result == OUT_OF_MEMORY:
            return OutOfMemoryError(f"{call} failed: {meaning}")
        return CudaError(call, result, meaning)
