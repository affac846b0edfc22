"""`WebGpuMemory`: the device arrays of a WebGPU executor. It makes and fills them, runs steps on
them and fetches results; `ops` and graphs know it as an `ArrayDevice`.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest
from gpu_executor.arrays.dlpack import CPU, export_host_array
from gpu_executor.backend import SUPPORTED_BY
from gpu_executor.calls.call import Array
from gpu_executor.calls.dispatch import Dispatch, copy_array
from gpu_executor.common.fork import DISOWNED, raise_forked
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import ClosedError, GpuError, NotSupportedError, OutOfMemoryError
from gpu_executor.kernel import Shape, to_native
from gpu_executor.steps.graph_dependencies import GraphDependencies
from gpu_executor.steps.status import STATUS_BYTES, STATUS_CLEAR, StatusCheck
from gpu_executor.steps.step_binder import CopyRules, StorageStep
from gpu_executor.steps.step_device import StepDevice
from gpu_executor.steps.storage import DeviceStorage
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import BufferCopy, BufferReader, DeviceQueue, copy_out
from gpu_executor.webgpu.parameters import WebGpuForms
from gpu_executor.webgpu.step_stream import StepStream

MAX_CACHED = 256
"""Values that `WebGpuMemory.cache` holds, such as tables of twiddles."""
MAX_UNREAD_CHECKS = 256
"""Checked calls that may be submitted before the status words of all are read together."""
MIN_READ_BYTES = 1024
"""An array is read in no smaller pieces."""
SHARING = "__dlpack__ of a device array"
UNLIMITED = 1 << 40
"""WebGPU does not tell how much memory a device has."""

T = TypeVar("T")


class WebGpuStorage(DeviceStorage):
    """The memory of one device array: a buffer of its own, which returns to the pool with this
    object. What is submitted later comes after everything that uses the buffer now."""

    __slots__ = ()

    def __init__(self, device: WebGpuMemory, buffer: Any, nbytes: int) -> None:
        super().__init__(device, buffer, buffer, 0, nbytes)

    def __del__(self) -> None:
        self.device.release(self.buffer)


class BufferStatusWord:
    """A status word in a buffer, which returns to the pool with this object."""

    __slots__ = ("_memory", "buffer", "handle", "offset")

    def __init__(self, memory: WebGpuMemory) -> None:
        self._memory = memory
        self.buffer = self.handle = memory.allocate(STATUS_BYTES)
        self.offset = 0
        self.clear()

    def clear(self) -> None:
        """Let the word say that there is no error; no submission in flight may use it."""
        self._memory.stream.write(self.buffer, 0, STATUS_CLEAR.to_bytes(STATUS_BYTES, "little"))

    def read(self) -> int:
        """The word as the device has left it."""
        word = np.empty(1, np.uint32)
        self._memory.read(self.buffer, 0, word)
        return int(word[0])

    def __del__(self) -> None:
        self._memory.release(self.buffer)


class WebGpuGraph:
    """Steps that are encoded again at each replay: WebGPU has no commands that run twice."""

    def __init__(
        self,
        submit: Callable[[Sequence[StorageStep]], None],
        settle_checks: Callable[[], None],
        steps: Sequence[StorageStep],
        made: Sequence[DeviceStorage],
        count: int,
    ) -> None:
        """`made` are the storages whose contents the steps compute; `count` is the number of steps
        before they were bound."""
        self._submit, self._settle_checks = submit, settle_checks
        self._steps, self._count = list(steps), count
        self._pending = list(made)
        self._dependencies = GraphDependencies(steps, made)

    def replay(self) -> None:
        """Run the steps, after everything submitted before; returns at once, or when the run before
        is complete if steps have checks."""
        self._dependencies.begin_run(self._renew_checks())
        self._submit(self._steps)
        while self._pending:
            self._pending.pop().is_pending = False

    def _renew_checks(self) -> Mapping[StatusCheck, StatusCheck]:
        """New checks for this run, by those of the run before."""
        checks = [step.check for step in self._steps if step.check is not None]
        if checks:
            self._settle_checks()
        renewed = {check: check.renew() for check in checks}
        if renewed:
            self._steps = [
                step if step.check is None else step._replace(check=renewed[step.check])
                for step in self._steps
            ]
        return renewed

    def __len__(self) -> int:
        """The number of recorded steps."""
        return self._count


class WebGpuMemory(StepDevice):
    """The device arrays of an executor: an `ArrayDevice`. Safe from several threads."""

    backend = "webgpu"
    f64_limbs = False
    """wgpu ignores that operations on floats must not be contracted, which f64 limbs rely on."""
    bytes_per_product = 0.0
    computes_float64 = False
    """Naga has no form for the instructions that make a float64 of words."""

    def __init__(
        self,
        device: WebGpuDevice,
        queue: DeviceQueue,
        pool: BufferPool,
        stream: StepStream,
        active: AbstractContextManager[None],
        note_call: Callable[[int], None],
    ) -> None:
        """Whatever uses the device does so inside of `active`, which refuses it when the device is
        closed or lost."""
        super().__init__(
            device.info,
            lambda: BufferStatusWord(self),
            note_call,
            CopyRules(unit=4, within_buffers=False, words_only=True),
            WebGpuForms(),
        )
        self.stream = stream
        self._queue, self._pool, self._note_call = queue, pool, note_call
        self._active = active
        usage = device.wgpu.BufferUsage
        self._usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self._staging_usage = usage.MAP_READ | usage.COPY_DST
        self._cache: LruCache[Hashable, Any] = LruCache()
        self._cache_lock = threading.RLock()
        self._released: deque[Any] = deque()
        """Buffers of arrays that are gone. The garbage collector may find an array while this
        thread holds the pool's lock, so the next allocation gives them back."""
        self._discarded: list[BufferReader] = []
        """Readers that an interrupt left: the callbacks of their mappings may still run."""
        self._lent: set[Any] = set()
        """The buffers of arrays. wgpu-py frees a buffer that nothing else refers to when the
        garbage collector finds its array in a cycle, even though the array gives it back here."""
        self._secrets: set[Any] = set()
        """Buffers with secrets, which are overwritten before they go back to the pool."""
        self._released_secrets: deque[Any] = deque()
        """Buffers of secret arrays that are gone."""
        self._is_lost = device.is_lost
        self._counting = threading.Lock()
        self._settling = threading.Lock()
        """Held while status words are read for good."""
        self.bytes_in_use = 0
        """Bytes of the buffers of arrays."""
        self.closed = False
        """Whether the executor is closed, and every array gone."""

    @property
    def free_memory(self) -> int:
        """Bytes that new arrays may take: `GPU_MEMORY_LIMIT`, or no limit that WebGPU tells."""
        self.give_back()
        stats = self._pool.stats()
        limit = UNLIMITED if self._pool.limit is None else self._pool.limit
        return max(limit - stats.bytes_in_use, 0)

    def keep_memory(self, nbytes: int) -> None:
        """Expect calls that need so many bytes at once: keep as much when they end."""
        self._note_call(nbytes)

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Nothing: WebGPU compiles pipelines where they are used, most of the time in Python."""

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile what dispatches need; returns the number of pipelines."""
        with self._active:
            return self.stream.compile_all(dispatches, progress)

    # --- memory ---

    def allocate(self, nbytes: int) -> Any:
        """A buffer that kernels bind, of at least so many bytes."""
        with self._active:
            self.give_back()
            (buffer,) = self._pool.acquire([(max(nbytes, 4), self._usage)], wait=False)
        with self._counting:
            self._lent.add(buffer)
            self.bytes_in_use += buffer.size
        return buffer

    def release(self, buffer: Any) -> None:
        """Take a buffer back."""
        released = self._released_secrets if buffer in self._secrets else self._released
        released.append(buffer)

    def give_back(self) -> bool:
        """Give the buffers of arrays that are gone back to the pool; returns whether there were
        any."""
        if self._released_secrets:
            self.overwrite_secrets()
        found = False
        while self._released:
            try:
                buffer = self._released.popleft()
            except IndexError:  # another thread was faster
                break
            with self._counting:
                self._lent.discard(buffer)
                self.bytes_in_use -= buffer.size
            self._pool.release(buffer)
            found = True
        return found

    def overwrite_secrets(self) -> None:
        """Overwrite the buffers of secret arrays that are gone now, after everything submitted
        before. Those of a lost device are never used again."""
        buffers: list[Any] = []
        try:
            while self._released_secrets:
                buffers.append(self._released_secrets.popleft())
        except IndexError:  # another thread was faster
            pass
        if self.closed or not buffers:  # closing has overwritten all
            return
        try:
            with self._active:
                self.stream.overwrite(buffers)
        except BaseException as error:
            self._released_secrets.extend(buffers)
            if not isinstance(error, GpuError):
                raise
            return
        self._secrets.difference_update(buffers)
        self._released.extend(buffers)

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self.allocate(nbytes)
        if self.makes_secrets:
            self._secrets.add(buffer)
        storage = WebGpuStorage(self, buffer, nbytes)
        self._note_made(storage)
        return DeviceArray(shape, dtype, storage)

    def put(self, array: Array, *, borrow: bool = False) -> DeviceArray:
        """A copy of a NumPy array on the device, made before this returns. It runs at once even
        while a graph is recorded: it is not part of the graph."""
        with self.pause_capture():
            made = self.empty(array.shape, to_native(array.dtype))
        if array.nbytes:
            flat = np.ascontiguousarray(array, made.dtype).reshape(-1).view(np.uint8)
            if flat.nbytes % 4:
                flat = np.append(flat, np.zeros(-flat.nbytes % 4, np.uint8))
            with self._active:
                self.stream.write(self._binder.find_storage(made).buffer, 0, flat)
        return made

    def put_ahead(self, array: Array, *, waits: bool = True) -> DeviceArray:
        """As `put`: WebGPU has one queue."""
        return self.put(array)

    def empty_result(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """An uninitialized array of the host."""
        return np.empty(shape, dtype)

    def find_dlpack_device(self, array: DeviceArray) -> tuple[int, int]:
        """Refuse: WebGPU shares no memory with other libraries."""
        raise NotSupportedError(SHARING, self.backend, SUPPORTED_BY["export=True"])

    def export_dlpack(self, array: DeviceArray, request: ExportRequest) -> object:
        """A copy on the host, where that is asked for; other libraries get nothing else."""
        if request.dl_device is None or request.dl_device[0] != CPU or request.copy is False:
            raise NotSupportedError(SHARING, self.backend, SUPPORTED_BY["export=True"])
        return export_host_array(array.numpy(), ExportRequest(max_version=request.max_version))

    def fetch(self, array: DeviceArray, out: Array | None = None) -> Array:
        """A copy of an array in host memory, in `out` if that is given; raises the error of a call
        that the array depends on."""
        if self.is_recording:
            raise GpuError(
                "a graph is being recorded, so there is no result to fetch yet; leave its `with` "
                "block and call the graph first"
            )
        if self._active is DISOWNED:
            raise_forked()
        if self.closed:
            raise ClosedError(
                f"the array of shape {array.shape} and dtype {array.dtype} was on "
                f"{self.info.name}, which was closed or lost; its elements are gone with it"
            )
        if not array.is_contiguous or array.offset % 4:
            array = copy_array(array)
        storage = self._binder.find_storage(array)
        storage.check_computed()
        fetched = np.empty(array.shape, array.dtype) if out is None else out
        if array.nbytes:
            self.read(storage.buffer, array.offset, fetched)
        self._raise_errors(storage)
        return fetched

    def read(self, buffer: Any, offset: int, target: Array) -> None:
        """Copy bytes of a buffer from a multiple of 4 on to an array; waits for the device. It goes
        in halves where the memory limit leaves no room for the whole."""
        nbytes = -(-target.nbytes // 4) * 4
        try:
            self._read_ranges([(buffer, offset, nbytes)], target)
        except OutOfMemoryError:
            half = nbytes // 8 * 4
            if half < MIN_READ_BYTES or not target.flags.c_contiguous:
                raise
            flat = target.reshape(-1).view(np.uint8)
            self.read(buffer, offset, flat[:half])
            self.read(buffer, offset + half, flat[half:])

    def _read_ranges(self, ranges: Sequence[tuple[Any, int, int]], target: Array) -> None:
        """Copy ranges of buffers, each an offset and a size, to an array, one behind the other."""
        nbytes = sum(size for _, _, size in ranges)
        is_secret = any(buffer in self._secrets for buffer, _, _ in ranges)
        with self._active:
            (staging,) = self._pool.acquire([(nbytes, self._staging_usage)], wait=False)
            reader = self._queue.make_reader(staging)
            try:
                copies, at = [], 0
                for buffer, offset, size in ranges:
                    copies.append(BufferCopy(buffer, offset, staging, at, size))
                    at += size
                reader.begin_map(nbytes, self.stream.copy(copies))
                copy_out(reader.wait(), 0, target)
                reader.unmap()
                if is_secret:
                    self.stream.overwrite([staging])
            except BaseException:
                self._discarded.append(reader)
                self._pool.destroy(staging)
                raise
            self._pool.release(staging)

    # --- status words ---

    def settle_checks(self) -> None:
        """Read the status words of all calls that were submitted, in one copy; waits for them."""
        with self._settling:  # no graph clears a word before it is read
            checks = self.stream.list_unread_checks()
            if checks:
                codes = np.empty(len(checks), np.uint32)
                words = [(check.word.buffer, check.word.offset, STATUS_BYTES) for check in checks]
                self._read_ranges(words, codes)
                self.stream.settle_checks(dict(zip(checks, codes.tolist(), strict=True)))

    def _raise_errors(self, storage: DeviceStorage) -> None:
        """Raise the error of a call that the contents of a storage depend on, if there is one."""
        if any(not check.passed for check in storage.checks):
            self.settle_checks()
        for check in storage.checks:
            check.raise_error()

    # --- order ---

    def wait_for(self, array: DeviceArray) -> None:
        """Wait for everything submitted before."""
        self._binder.find_storage(array)
        with self._active:
            self.stream.wait()

    def check(self, array: DeviceArray) -> None:
        """Wait as `wait_for` does, and raise the error of a call that the array depends on."""
        self.wait_for(array)
        self._raise_errors(self._binder.find_storage(array))

    def synchronize(self) -> None:
        """Wait for everything submitted before; raises the first error that a call found."""
        with self._active:
            self.stream.wait()
            self.give_back()
        self.settle_checks()
        for check in self.stream.take_failed_checks():
            if not check.was_raised:
                check.raise_error()

    def _submit_bound(self, steps: Sequence[StorageStep]) -> None:
        with self._active:
            self.stream.submit(steps)
        if len(self.stream.unread_checks) >= MAX_UNREAD_CHECKS:
            self.settle_checks()

    def _record_bound(
        self, steps: Sequence[StorageStep], made: Sequence[DeviceStorage], count: int
    ) -> WebGpuGraph:
        return WebGpuGraph(self._submit_bound, self.settle_checks, steps, made, count)

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, made if there is none; the cache is LRU."""
        with self._cache_lock:
            found: T | None = self._cache.use(key)
            if found is None:
                with self.pause_capture(), self.secret_arrays(False):
                    found = self._cache[key] = make()
                self._cache.evict(MAX_CACHED)
            return found

    def trim(self) -> None:
        """Drop what is cached, and give back the buffers of arrays that are gone."""
        with self._cache_lock:
            self._cache.clear()
        self.stream.clear()
        self.give_back()

    def disown(self) -> None:
        """After a fork: the arrays are the parent's."""
        self._active, self.closed = DISOWNED, True

    def close(self) -> None:
        """Drop what is cached, and overwrite secrets; arrays that exist are gone."""
        with self._cache_lock:
            self._cache.clear()
        if self._secrets and not self._is_lost():
            self.stream.overwrite(self._secrets)
            self.stream.wait()
        self._secrets.clear()
        self.stream.clear()
        self.closed = True
