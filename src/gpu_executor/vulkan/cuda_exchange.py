"""`CudaExchange`: device arrays that CUDA libraries use without a copy, and arrays that come from
them.

Exported memory is in blocks that CUDA has imported: a device array there has a CUDA address. Two
timeline semaphores keep the order. Vulkan signals one behind everything that was submitted, and a
CUDA stream waits for it. CUDA signals the other, and the command stream waits for it. Only two
streams of this object touch the semaphores; events connect them with streams of other libraries. So
the values of a semaphore are signalled in order, whatever streams are passed.

Memory that another library had is used again when all work of the CUDA context is complete: the
library may drop an array while its kernels still run. The host waits for that, so it is put off
until there is more of such memory than an executor keeps idle. CUDA's imports hold the memory by
themselves, so arrays of other libraries stay valid when the backend is closed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest
from gpu_executor.arrays.dlpack import CPU as HOST
from gpu_executor.arrays.dlpack import (
    CUDA,
    CUDA_MANAGED,
    IS_COPIED,
    TakenTensor,
    TensorLayout,
    check_exportable,
    export_host_array,
    make_capsule,
    request_capsule,
    take_capsule,
)
from gpu_executor.arrays.idle_memory import IdleMemory
from gpu_executor.calls.arguments import parse_dtype
from gpu_executor.cuda.device import CudaDevice, MappedMemory, find_stream
from gpu_executor.cuda.driver import Handle
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentValueError,
    CudaError,
    ExportError,
    GpuError,
    OutOfMemoryError,
)
from gpu_executor.vulkan.command_stream import CommandStream
from gpu_executor.vulkan.device_storage import ExportedStorage
from gpu_executor.vulkan.external_memory import (
    SharedSemaphore,
    check_exports,
    export_memory,
)
from gpu_executor.vulkan.memory import Allocation, Block, Purpose
from gpu_executor.vulkan.resources import Resources

NO_SYNC = -1
"""The stream of a DLPack request that keeps the order by itself."""


class _Connection:
    """The CUDA device of the same GPU, with the semaphores and streams that both use."""

    def __init__(self, resources: Resources) -> None:
        check_exports(resources.device)
        info = resources.device.info
        self.cuda = CudaDevice(info.name, info.uuid)
        driver = self.cuda.driver
        with self.cuda.use(), contextlib.ExitStack() as opened:
            self.outgoing = SharedSemaphore(resources.device)
            """Signalled by Vulkan."""
            opened.callback(self.outgoing.close)
            self.incoming = SharedSemaphore(resources.device)
            """Signalled by CUDA."""
            opened.callback(self.incoming.close)
            self.waiting = self.cuda.make_stream()
            """The stream that waits for `outgoing`."""
            opened.callback(driver.cuStreamDestroy_v2, self.waiting)
            self.signalling = self.cuda.make_stream()
            """The stream that copies to exported memory and signals `incoming`."""
            opened.callback(driver.cuStreamDestroy_v2, self.signalling)
            self.event = self.cuda.make_event()
            opened.callback(driver.cuEventDestroy_v2, self.event)
            self.outgoing_import = self.cuda.import_semaphore(self.outgoing.export())
            opened.callback(driver.cuDestroyExternalSemaphore, self.outgoing_import)
            self.incoming_import = self.cuda.import_semaphore(self.incoming.export())
            opened.callback(driver.cuDestroyExternalSemaphore, self.incoming_import)
            self.signal = resources.compute.prepare_exchange(signals=self.outgoing)
            self.wait = resources.compute.prepare_exchange(waits_for=self.incoming)
            self._opened = opened.pop_all()

    def join(self, before: Handle, after: Handle) -> None:
        """Let a stream wait for what is on another one. The context must be current."""
        self.cuda.driver.cuEventRecord(self.event, before)
        self.cuda.driver.cuStreamWaitEvent(after, self.event, 0)

    def close(self) -> None:
        """Free everything, when the device is done with every submission."""
        if not self.outgoing.is_reached:
            # The device is lost. CUDA may wait for ever: its objects end with the process.
            self.outgoing.close()
            self.incoming.close()
            return
        with contextlib.suppress(GpuError), self.cuda.use():
            self.cuda.driver.cuStreamSynchronize(self.waiting)
            self.cuda.driver.cuStreamSynchronize(self.signalling)
        with self.cuda.use():
            self._opened.close()


class CudaExchange:
    """What a Vulkan device exchanges with CUDA. Safe from several threads."""

    def __init__(
        self, resources: Resources, stream: CommandStream, idle_memory: IdleMemory
    ) -> None:
        self._resources, self._stream, self._idle_memory = resources, stream, idle_memory
        self._lock = threading.RLock()
        self._connection: _Connection | None = None
        self._retired: deque[tuple[Allocation, int]] = deque()
        """Memory that other libraries had, of arrays that are gone, and the timeline value of its
        last use here. Finalizers add to it."""
        self._waiting: list[tuple[Allocation, int]] = []
        """The same, which waits for CUDA."""
        self._borrowed: deque[tuple[Handle, TakenTensor]] = deque()
        """Arrays of other libraries that are being copied, and the events behind the copies."""

    # --- memory ---

    def empty(self, device: Any, nbytes: int) -> ExportedStorage:
        """Uninitialized memory that CUDA can use. `device` is the `DeviceMemory`."""
        with self._lock:
            self._connect()
            self.return_borrowed()
            if self._count_retired() > self._idle_memory.limit:
                self.collect()
            try:
                allocation = self._allocate(nbytes)
            except OutOfMemoryError:
                if not self.collect():
                    raise
                allocation = self._allocate(nbytes)
            return ExportedStorage(device, allocation, nbytes)

    def _allocate(self, nbytes: int) -> Allocation:
        return self._stream.allocate(Purpose.EXPORT, max(nbytes, 1), "device array")

    def _count_retired(self) -> int:
        """The bytes of memory that other libraries had, of arrays that are gone."""
        self._waiting += [self._retired.popleft() for _ in range(len(self._retired))]
        return sum(allocation.nbytes for allocation, _ in self._waiting)

    def retire(self, allocation: Allocation, last_use: int, *, is_shared: bool) -> None:
        """Take the memory of a storage that is gone; safe from a finalizer."""
        if is_shared:
            self._retired.append((allocation, last_use))
        else:
            self._stream.release(allocation, last_use)

    def collect(self) -> bool:
        """Wait for CUDA, and return the memory of arrays that other libraries had to the pool;
        whether there was some. Returns arrays of other libraries, too, whose copies are done."""
        self.return_borrowed()
        with self._lock:
            connection = self._connection
            if connection is None or not self._count_retired():
                return False
            with connection.cuda.use():
                connection.cuda.driver.cuCtxSynchronize()
            while self._waiting:
                self._stream.release(*self._waiting.pop())
            return True

    def return_borrowed(self) -> None:
        """Give arrays of other libraries back whose copies are done."""
        with self._lock:
            connection = self._connection
            while connection is not None and self._borrowed:
                event, tensor = self._borrowed[0]
                with connection.cuda.use():
                    if not connection.cuda.driver.is_ready(event):
                        return
                    self._borrowed.popleft()
                    connection.cuda.driver.cuEventDestroy_v2(event)
                tensor.release()

    def _map(self, connection: _Connection, block: Block) -> MappedMemory:
        """A block as CUDA sees it; it is imported once."""
        if not isinstance(block.imported, MappedMemory):
            fd = export_memory(self._resources.device, block.memory)
            block.imported = connection.cuda.import_memory(
                fd, block.memory_bytes, dedicated=block.is_dedicated
            )
        return block.imported

    # --- export ---

    def find_device(self, array: DeviceArray) -> tuple[int, int]:
        """The DLPack device of an array; raises `ExportError` for one that CUDA cannot use."""
        _check_shareable(array)
        return CUDA, self._connect().cuda.ordinal

    def export(self, array: DeviceArray, request: ExportRequest) -> object:
        """The DLPack capsule of an array. The caller has checked that its elements are computed."""
        if request.dl_device is not None and request.dl_device[0] == HOST:
            if request.copy is False:
                raise ExportError("the array is on a device, and copy=False allows no copy to CPU")
            return export_host_array(array.numpy(), ExportRequest(max_version=request.max_version))
        storage = _check_shareable(array)
        check_exportable(array.dtype)
        if 0 in array.strides and array.size > 1:
            raise ExportError("the array repeats elements, which others could write; copy() it")
        with self._lock:
            connection = self._connect()
            place = CUDA, connection.cuda.ordinal
            if request.dl_device is not None and tuple(request.dl_device) != place:
                raise ExportError(
                    f"the array is on DLPack's device {place}, not on {request.dl_device}"
                )
            flags = 0
            if request.copy:
                device = storage.device
                copied = device.empty_exportable(array.shape, array.dtype)
                device.assign(copied, array)
                array, flags = copied, IS_COPIED
                storage = _check_shareable(array)
            mapped = self._map(connection, storage.allocation.block)
            start = mapped.pointer + storage.allocation.offset + array.offset
            layout = TensorLayout(
                start if array.size else 0,
                place,
                array.shape,
                tuple(step // array.dtype.itemsize for step in array.strides),
                array.dtype,
            )
            storage.is_shared = True
            if request.stream != NO_SYNC:
                self.make_stream_wait(request.stream)
            return make_capsule(layout, (array, mapped), request, flags=flags)

    # --- import ---

    def copy_tensor(self, device: Any, tensor: Any) -> DeviceArray:
        """A device array with the elements of a CUDA array of another library, copied on the device
        after what the library has submitted. `device` is the `DeviceMemory`."""
        place, info = tuple(tensor.__dlpack_device__()), self._resources.device.info
        if place[0] not in (CUDA, CUDA_MANAGED):
            raise ExportError(
                f"from_dlpack: the array is on DLPack's device {place}, and {info.name} takes "
                "arrays of CUDA and of the host; copy the array to the host first"
            )
        connection = self._connect()
        if place[1] != connection.cuda.ordinal:
            raise ExportError(
                f"from_dlpack: the array is on DLPack's device {place}, and {info.name} is "
                f"device {(CUDA, connection.cuda.ordinal)} (UUID {info.uuid}); copy the array to "
                "that device or to the host first"
            )
        address = int(connection.cuda.ffi.cast("uintptr_t", connection.signalling))
        # Not under the lock: the other library may have locks of its own.
        taken = take_capsule(request_capsule(tensor, address))
        layout = taken.layout
        try:
            if not layout.is_contiguous:
                raise ArgumentShapeError(
                    f"from_dlpack: the array of shape {layout.shape} has strides {layout.strides} "
                    "(in elements) and is not C-contiguous; make a contiguous copy first, such as "
                    "tensor.contiguous()"
                )
            parse_dtype(layout.dtype)
            with self._lock:
                made: DeviceArray = device.empty_exportable(layout.shape, layout.dtype)
                if made.size:
                    self._copy_in(connection, taken, made)
                else:
                    taken.release()
                return made
        except BaseException:
            if not any(tensor is taken for _, tensor in self._borrowed):
                taken.release()
            raise

    def _copy_in(self, connection: _Connection, taken: TakenTensor, made: DeviceArray) -> None:
        storage, cuda = _check_shareable(made), connection.cuda
        mapped = self._map(connection, storage.allocation.block)
        target = mapped.pointer + storage.allocation.offset
        storage.is_shared = True  # until the device waits for the copy
        with cuda.use():
            cuda.driver.cuMemcpyDtoDAsync_v2(
                target, taken.layout.pointer, made.nbytes, connection.signalling
            )
            try:
                event = cuda.make_event()
                cuda.driver.cuEventRecord(event, connection.signalling)
            except BaseException:
                cuda.driver.cuStreamSynchronize(connection.signalling)
                raise
            self._borrowed.append((event, taken))
            cuda.signal(
                connection.incoming_import, connection.incoming.advance(), connection.signalling
            )
        storage.last_use = self._stream.exchange(connection.wait)
        storage.is_shared = False

    # --- order ---

    def make_stream_wait(self, stream: Any) -> None:
        """Let a CUDA stream wait for everything submitted to the device so far."""
        handle = find_stream("make_stream_wait", stream)
        with self._lock:
            connection = self._connect()
            with connection.cuda.use():
                target = self._check_stream(connection, handle)
                value = connection.outgoing.advance()
                connection.signal.signal_value[1] = value
                self._stream.exchange(connection.signal)
                connection.cuda.wait(connection.outgoing_import, value, connection.waiting)
                connection.join(connection.waiting, target)

    def wait_for_stream(self, stream: Any) -> None:
        """Let everything that is submitted to the device later wait for what is on a CUDA stream
        now."""
        handle = find_stream("wait_for_stream", stream)
        with self._lock:
            connection = self._connect()
            with connection.cuda.use():
                source = self._check_stream(connection, handle)
                connection.join(source, connection.signalling)
                value = connection.incoming.advance()
                connection.cuda.signal(connection.incoming_import, value, connection.signalling)
            self._stream.exchange(connection.wait)

    def _check_stream(self, connection: _Connection, handle: int) -> Handle:
        """A CUDA stream; one that records a CUDA graph is refused, since Vulkan would wait for work
        that does not run."""
        ffi = connection.cuda.ffi
        stream, capturing = ffi.cast("CUstream", handle), ffi.new("int *")
        connection.cuda.driver.cuStreamIsCapturing(stream, capturing)
        if capturing[0]:
            raise ArgumentValueError(
                f"the CUDA stream {handle:#x} records a CUDA graph, whose work does not run now; "
                "exchange arrays outside of the recording"
            )
        return stream

    # --- lifetime ---

    def _connect(self) -> _Connection:
        if self._stream.closed:
            self._stream.check_open()
        with self._lock:
            if self._connection is None:
                self._connection = _Connection(self._resources)
            return self._connection

    def end_waits(self) -> None:
        """Wait for what CUDA has to signal. If CUDA's context is broken, which never signals it,
        the device is let go on: only then the command stream can be closed."""
        with self._lock:
            connection = self._connection
            if connection is None or connection.incoming.is_reached:
                return
            try:
                with connection.cuda.use():
                    connection.cuda.driver.cuStreamSynchronize(connection.signalling)
            except CudaError:
                with contextlib.suppress(GpuError):
                    connection.incoming.signal()

    def close(self) -> None:
        """Free everything; the command stream is closed. Arrays that other libraries have stay
        valid."""
        with self._lock:
            with contextlib.suppress(GpuError):
                self.return_borrowed()
            connection, self._connection = self._connection, None
            if connection is None:
                return
            with contextlib.suppress(GpuError):
                connection.close()
            self._borrowed.clear()
            self._retired.clear()
            self._waiting.clear()


def _check_shareable(array: DeviceArray) -> ExportedStorage:
    """The storage of an array that CUDA can use."""
    storage = array.storage
    if not isinstance(storage, ExportedStorage):
        raise ExportError(
            f"the device array of shape {array.shape} is in memory that other libraries cannot "
            "use; make one that they can with gpu.empty_device(shape, dtype, export=True) and copy "
            "to it (made[...] = array), or copy the array to the host with array.numpy()"
        )
    return storage
