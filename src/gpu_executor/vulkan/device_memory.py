"""`DeviceMemory`: the device arrays of a backend. It makes and fills them, runs steps on them and
fetches results; `ops` and graphs know it as an `ArrayDevice`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest
from gpu_executor.arrays.idle_memory import IdleItem, IdleMemory
from gpu_executor.arrays.result_memory import MIN_RECYCLED_BYTES
from gpu_executor.calls.call import Array
from gpu_executor.calls.dispatch import Dispatch, copy_array
from gpu_executor.common.fork import DISOWNED, register_fork_handler
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import ClosedError, DeviceLostError, GpuError, OutOfMemoryError
from gpu_executor.kernel import Shape, to_native
from gpu_executor.plan import round_up_to_class
from gpu_executor.steps.bound_steps import Copy
from gpu_executor.steps.call_binder import CallForms
from gpu_executor.steps.graph_dependencies import GraphDependencies
from gpu_executor.steps.step_binder import CopyRules, StorageStep
from gpu_executor.steps.step_device import StepDevice
from gpu_executor.steps.storage import DeviceStorage
from gpu_executor.vulkan.command_stream import CommandStream
from gpu_executor.vulkan.cuda_exchange import CudaExchange
from gpu_executor.vulkan.device_storage import MappedStatusWord, VulkanStorage
from gpu_executor.vulkan.device_trials import TrialFile, measure_bytes_per_product, try_f64_limbs
from gpu_executor.vulkan.mapped_arrays import (
    BufferRange,
    MappedArrays,
    RecycledResults,
    is_imported,
)
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.transfers import MAX_STAGING_BYTES, ConcurrentUpload, Readback, Upload

MIN_CONCURRENT_BYTES = 1 << 20
"""Smaller arrays are copied by the compute queue, which costs less than the wait for another
queue."""
MAX_CACHED = 256
"""Values that `DeviceMemory.cache` holds, such as tables of twiddles."""
SMALL_STORAGE = frozenset(
    {"storageBuffer8BitAccess", "storageBuffer16BitAccess", "shaderInt8", "shaderInt16"}
)
"""What kernels need to copy bytes and pairs of bytes one by one."""

T = TypeVar("T")


class _TableMemory(threading.local):
    """The memory that a thread allocates while it makes a value for the cache."""

    allocations: list[Allocation] | None = None


@dataclass(slots=True, eq=False)
class _CachedValue:
    """A value of `DeviceMemory.cache`, such as tables of twiddles."""

    value: Any
    allocations: list[Allocation]
    """The memory of its device arrays."""
    last_used: int
    """In nanoseconds of `time.monotonic_ns`."""


class VulkanGraph:
    """A command buffer in the command stream, freed with this object once the device is done."""

    def __init__(
        self,
        stream: CommandStream,
        steps: Sequence[StorageStep],
        made: Sequence[DeviceStorage],
        count: int,
    ) -> None:
        """`made` are the storages whose contents the steps compute; `count` is the number of steps
        before they were bound."""
        self._stream, self._count = stream, count
        self._pending = list(made)
        self._graph = stream.record(steps)
        self._dependencies = GraphDependencies(steps, made)
        weakref.finalize(self, stream.release_when_possible, self._graph).atexit = False

    def replay(self) -> None:
        """Run the steps, after everything submitted before; returns at once, or when the run before
        is complete if steps have checks."""
        self._dependencies.begin_run(self._stream.renew_checks(self._graph))
        self._stream.replay(self._graph)
        while self._pending:
            self._pending.pop().is_pending = False

    def __len__(self) -> int:
        """The number of recorded steps."""
        return self._count


class DeviceMemory(StepDevice):
    """The device arrays of a backend: an `ArrayDevice`. Safe from several threads."""

    backend = "vulkan"

    def __init__(
        self,
        resources: Resources,
        mapped: MappedArrays,
        recycled: RecycledResults,
        idle_memory: IdleMemory,
        trials: TrialFile,
    ) -> None:
        super().__init__(
            resources.device.info,
            lambda: MappedStatusWord(resources.memory),
            self._note_call,
            CopyRules(words_only=not resources.device.info.features >= SMALL_STORAGE),
            CallForms(),
        )
        self.stream = CommandStream(resources)
        self.release = self.stream.release
        self.exchange = CudaExchange(resources, self.stream, idle_memory)
        self.retire = self.exchange.retire
        self._memory = resources.memory
        self._mapped, self._recycled, self._idle_memory = mapped, recycled, idle_memory
        self._readback = Readback(resources, self.stream)
        self._upload = Upload(resources, mapped, self.stream, self._readback)
        self._concurrent: ConcurrentUpload | None = None
        """Where the device has a transfer queue."""
        if resources.upload is not None:
            self._concurrent = ConcurrentUpload(resources, mapped, self.stream, resources.upload)
        self._cache: LruCache[Hashable, _CachedValue] = LruCache()
        self._cache_lock = threading.RLock()
        self._tables = _TableMemory()
        self._trials = trials
        register_fork_handler(self._disown_after_fork)

    @functools.cached_property
    def f64_limbs(self) -> bool:
        """Whether products of large primes use f64 limbs, because they are faster here."""
        return try_f64_limbs(self)

    @functools.cached_property
    def bytes_per_product(self) -> float:
        """The bytes that kernels move in the time of a 255-bit product on integer limbs; 0 if there
        was no memory to measure it."""
        found = self._trials.find("bytes_per_product", lambda: measure_bytes_per_product(self))
        return found or 0.0

    @property
    def closed(self) -> bool:
        """Whether the backend is closed, and every array gone."""
        return self.stream is DISOWNED or self.stream.closed

    @property
    def dispatches(self) -> int:
        """Kernels that the device was given so far."""
        return 0 if self.stream is DISOWNED else self.stream.dispatches

    @property
    def free_memory(self) -> int:
        """Bytes that new arrays may take: device memory, or `GPU_MEMORY_LIMIT` if that is less,
        without the memory that this process uses."""
        return self._memory.count_free() + self.stream.count_reusable()

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Let several threads compile what dispatches need that will be submitted soon; returns at
        once."""
        self.stream.compile_ahead(dispatches)

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str | None:
        return self.stream.describe_pipelines(dispatches)

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Let several threads compile what dispatches need, in the usual form, and wait for them;
        returns the number of pipelines."""
        return self.stream.compile_all(dispatches, progress)

    def keep_memory(self, nbytes: int) -> None:
        """Expect calls that need so many bytes at once: keep as much when they end."""
        self._note_call(nbytes)

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""
        self._idle_memory.settle_if_exceeded()
        nbytes, tables = math.prod(shape) * dtype.itemsize, self._tables.allocations
        is_secret = self._secrecy.is_on
        if tables is None:
            last_use, allocation = self._allocate_array(max(nbytes, 1), is_secret=is_secret)
        else:
            last_use = 0
            allocation = self.stream.allocate(Purpose.DEVICE, max(nbytes, 1), "table")
            tables.append(allocation)
        if is_secret:
            self._memory.mark_secret(allocation)
        storage = VulkanStorage(self, allocation, nbytes, last_use)
        self._note_made(storage)
        return DeviceArray(shape, dtype, storage)

    def _allocate_array(self, nbytes: int, *, is_secret: bool) -> tuple[int, Allocation]:
        try:
            return self.stream.allocate_array(nbytes, is_secret=is_secret)
        except OutOfMemoryError:
            if not self.exchange.collect():
                raise
            return self.stream.allocate_array(nbytes, is_secret=is_secret)

    def empty_exportable(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array in memory that other libraries can use through CUDA."""
        self._idle_memory.settle_if_exceeded()
        storage = self.exchange.empty(self, math.prod(shape) * dtype.itemsize)
        self._note_made(storage)
        return DeviceArray(shape, dtype, storage)

    def find_dlpack_device(self, array: DeviceArray) -> tuple[int, int]:
        """What `__dlpack_device__` of an array returns."""
        return self.exchange.find_device(array)

    def export_dlpack(self, array: DeviceArray, request: ExportRequest) -> object:
        """What `__dlpack__` of an array returns; raises the error of a call that the array depends
        on."""
        self._check_not_recording("an array cannot be handed to another library")
        storage = self._find_storage(array)
        storage.check_computed()
        if storage.checks:
            self.check(array)
        return self.exchange.export(array, request)

    def copy_tensor(self, tensor: Any) -> DeviceArray:
        """An array with the elements of a CUDA array of another library, copied on the device."""
        with self.pause_capture():
            return self.exchange.copy_tensor(self, tensor)

    def make_stream_wait(self, stream: Any) -> None:
        """Let a CUDA stream wait for everything submitted before."""
        self._check_not_recording("a CUDA stream cannot wait for it")
        self.exchange.make_stream_wait(stream)

    def wait_for_stream(self, stream: Any) -> None:
        """Let everything submitted later wait for what is on a CUDA stream now."""
        self._check_not_recording("it cannot wait for a CUDA stream")
        self.exchange.wait_for_stream(stream)

    def _check_not_recording(self, consequence: str) -> None:
        if self._capture.steps is not None:
            raise GpuError(
                f"a graph is being recorded, so {consequence}; leave its `with` block first"
            )

    def put(self, array: Array, *, borrow: bool = False) -> DeviceArray:
        """A copy of a NumPy array on the device. With `borrow` the caller waits for the device
        before it changes the array.

        The copy runs at once even while a graph is recorded: it is not part of the graph, and an
        array that is cached for later operations has its contents before the graph ever runs.
        """
        nbytes = round_up_to_class(array.nbytes)
        self._note_call(nbytes + min(nbytes, MAX_STAGING_BYTES))
        with self.pause_capture():
            made = self.empty(array.shape, to_native(array.dtype))
        storage = self._find_storage(made)
        self._upload.copy(array, storage, borrow=borrow)
        return made

    def put_ahead(self, array: Array, *, waits: bool = True) -> DeviceArray:
        """A copy of a NumPy array on the device, made while the device computes what was submitted
        before: by the host, or on a transfer queue, whose copy is waited for. `put` makes the copy
        where neither is possible, and instead of that queue with `waits=False`."""
        if array.nbytes < MIN_CONCURRENT_BYTES:
            return self.put(array)
        if self.closed:
            raise ClosedError("the backend is closed; open another one")
        fills = self._upload.can_fill(array)
        if not fills and (self._concurrent is None or not waits):
            return self.put(array)
        self._note_call(round_up_to_class(array.nbytes) + (0 if fills else MAX_STAGING_BYTES))
        self.stream.release_completed()
        purpose = Purpose.INPUT if fills else Purpose.DEVICE
        try:
            # Not memory of the command stream, which the device may still use.
            allocation = self._memory.allocate(purpose, array.nbytes, "device array")
        except OutOfMemoryError:
            return self.put(array)
        if allocation.block.purpose is not purpose:  # it is not device memory
            self._memory.release(allocation)
            return self.put(array)
        if self.makes_secrets:
            self._memory.mark_secret(allocation)
        made = DeviceArray(
            array.shape, to_native(array.dtype), VulkanStorage(self, allocation, array.nbytes)
        )
        if fills:
            self._upload.fill(array, allocation)
        elif self._concurrent is not None:
            self._concurrent.copy(array, allocation)
        return made

    def fetch(self, array: DeviceArray, out: Array | None = None) -> Array:
        """A copy of an array in host memory, in `out` if that is given; raises the error of a call
        that the array depends on."""
        if self._capture.steps is not None:
            raise GpuError(
                "a graph is being recorded, so there is no result to fetch yet; leave its `with` "
                "block and call the graph first"
            )
        if self.stream is not DISOWNED and self.stream.closed:
            raise ClosedError(
                f"the array of shape {array.shape} and dtype {array.dtype} was on "
                f"{self.info.name}, which was closed or lost; its elements are gone with it"
            )
        if not array.is_contiguous:
            array = copy_array(array)
        storage = self._find_storage(array)
        storage.check_computed()
        with self.stream.naming_calls():
            fetched = self._fetch(storage, array, out)
        for check in storage.checks:
            check.raise_error()
        return fetched

    def _fetch(self, storage: VulkanStorage, array: DeviceArray, out: Array | None) -> Array:
        source, nbytes = storage.allocation, array.nbytes
        # The steps that computed the array, its copy, and the upload of the next arguments.
        result = round_up_to_class(nbytes)
        self._note_call(
            max(self._binder.bytes_bound, result) + result + min(result, MAX_STAGING_BYTES)
        )
        offset = source.offset + array.offset
        found: tuple[Array, BufferRange] | None = None
        keep_alive: tuple[object, ...] = (storage,)
        if out is not None and nbytes:
            target = self._mapped.find(out) if self._mapped.any else None
            if target is not None and is_imported(target):
                imported = self._mapped.get_import(target.serial)
                keep_alive = storage, imported
                target = None if imported is None else target
            found = None if target is None else (out, target)
        elif nbytes >= MIN_RECYCLED_BYTES and not source.is_secret:
            found = self._recycled.make_one(array.shape, array.dtype, nbytes)
        if found is not None:  # the device writes to the host's array
            fetched, target = found
            copy = Copy(source.buffer, offset, target.buffer, target.offset, nbytes)
            self._readback.copy(copy, (fetched, *keep_alive))
            return fetched
        direct = out is not None and out.flags.c_contiguous and out.dtype.isnative
        fetched = out if out is not None and direct else np.empty(array.shape, array.dtype)
        self._readback.fetch(source, offset, fetched.reshape(-1).view(np.uint8), storage)
        if out is not None and not direct:
            np.copyto(out, fetched)
            return out
        return fetched

    def empty_result(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """An uninitialized array of the host, in recycled mapped memory unless that is short: the
        device writes what is fetched to parts of it."""
        nbytes = math.prod(shape) * dtype.itemsize
        made = None
        if nbytes >= MIN_RECYCLED_BYTES and not self.closed:
            made = self._recycled.make_one(shape, dtype, nbytes)
        return np.empty(shape, dtype) if made is None else made[0]

    def find_range(self, array: DeviceArray) -> BufferRange:
        """The buffer range of a contiguous array, for commands that are recorded elsewhere."""
        assert array.is_contiguous
        self.stream.wait()  # earlier submissions may still use the memory
        storage = self._find_storage(array)
        block = storage.allocation.block
        return BufferRange(block.buffer, storage.offset + array.offset, True, block.serial)

    def wait_for(self, array: DeviceArray) -> None:
        """Wait for everything submitted before that uses the array."""
        self.stream.wait_until(self._binder.find_storage(array).last_use)

    def check(self, array: DeviceArray) -> None:
        """Wait as `wait_for` does, and raise the error of a call that the array depends on."""
        storage = self._binder.find_storage(array)
        with self.stream.naming_calls():
            self.stream.wait_until(storage.last_use)
        for check in storage.checks:
            check.raise_error()

    def overwrite_secrets(self) -> None:
        """Overwrite the memory of secret arrays that are gone now, after everything submitted
        before."""
        if self.stream is not DISOWNED:
            self.stream.overwrite_secrets()

    def synchronize(self) -> None:
        """Wait for everything submitted before; raises the first error that a call found."""
        self.stream.synchronize()
        self.exchange.return_borrowed()

    def _note_call(self, nbytes: int) -> None:
        if nbytes > self._idle_memory.largest_call:
            self._idle_memory.note_call(nbytes)

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, made if there is none; the cache is LRU."""
        with self._cache_lock:
            found = self._cache.use(key)
            if found is None:
                with (
                    self.pause_capture(),
                    self.secret_arrays(False),
                    self._collect_tables() as allocations,
                ):
                    found = self._cache[key] = _CachedValue(make(), allocations, 0)
                self._lend(self._cache.evict(MAX_CACHED))
            found.last_used = time.monotonic_ns()
            value: T = found.value
            return value

    def list_idle(self) -> list[IdleItem]:
        """List the cached values that hold memory; none while another thread makes one."""
        self.release_completed()
        if not self._cache_lock.acquire(blocking=False):
            return []
        try:
            return [
                IdleItem(found.last_used, functools.partial(self._evict, key, found))
                for key, found in self._cache.items()
                if found.allocations
            ]
        finally:
            self._cache_lock.release()

    def _evict(self, key: Hashable, cached: _CachedValue) -> None:
        """Remove a value from the cache, unless it is gone or another thread makes one."""
        if self._cache_lock.acquire(blocking=False):
            try:
                if self._cache.get(key) is cached:
                    del self._cache[key]
                    self._lend([cached])
            finally:
                self._cache_lock.release()

    def _lend(self, removed: Iterable[_CachedValue]) -> None:
        """Drop values that left the cache. Whoever still uses one, such as a graph, holds it."""
        for cached in removed:
            for allocation in cached.allocations:
                self._memory.lend(allocation, "device array")
            cached.value = None

    @contextlib.contextmanager
    def _collect_tables(self) -> Iterator[list[Allocation]]:
        """Collect what this thread allocates; inside another collection, for the inner one only."""
        collected: list[Allocation] = []
        before, self._tables.allocations = self._tables.allocations, collected
        try:
            yield collected
        finally:
            self._tables.allocations = before

    def _find_storage(self, array: DeviceArray) -> VulkanStorage:
        storage = self._binder.find_storage(array)
        assert isinstance(storage, VulkanStorage)
        return storage

    def _submit_bound(self, steps: Sequence[StorageStep]) -> None:
        self.stream.submit(steps)

    def _record_bound(
        self, steps: Sequence[StorageStep], made: Sequence[DeviceStorage], count: int
    ) -> VulkanGraph:
        return VulkanGraph(self.stream, steps, made, count)

    def release_completed(self) -> None:
        """Free arrays that only completed submissions still referred to."""
        with contextlib.suppress(DeviceLostError):
            self._readback.release_completed()
            self.stream.release_completed()

    def close(self) -> None:
        with contextlib.ExitStack() as closing:  # a Ctrl-C in one of them does not skip the others
            closing.callback(self._clear_cache)
            closing.callback(self.exchange.close)
            closing.callback(self.stream.close)
            closing.callback(self.exchange.end_waits)
            closing.callback(self._readback.close)
            if self._concurrent is not None:
                closing.callback(self._concurrent.close)

    def _clear_cache(self) -> None:
        with self._cache_lock:
            self._cache.clear()

    def _disown_after_fork(self) -> None:
        self.stream = self._readback = self._upload = self._concurrent = DISOWNED
        self.exchange = DISOWNED
        self._recycled = self._cache_lock = self._memory = DISOWNED
