"""`CpuMemory`: device arrays in host memory, so that programs for device arrays run without a GPU.

An operation on them runs at once. While a graph is recorded it is kept instead, and the graph runs
it later.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest, Shape
from gpu_executor.arrays.dlpack import CPU, export_host_array
from gpu_executor.calls.call import Array
from gpu_executor.calls.dispatch import Algorithms, Dispatch, Step, assign_array, copy_array
from gpu_executor.common.lru import LruCache
from gpu_executor.common.main_memory import read_main_memory
from gpu_executor.device_info import DeviceInfo, Limits, MemoryHeap
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ExportError,
    GpuError,
    NotSupportedError,
)
from gpu_executor.kernel import to_native

MAX_CACHED = 256
"""Values that `CpuMemory.cache` holds, such as encoded integers."""
UNLIMITED = (1 << 63) - 1
ASSUMED_MEMORY = 4 << 30
"""Bytes of a host whose operating system does not say how many it has."""

T = TypeVar("T")
Computation = Callable[[], None]
"""A computation that reads and writes views of device arrays."""


def describe_host() -> DeviceInfo:
    """The description of the host as a device. The limits are those of its memory."""
    total = read_main_memory() or ASSUMED_MEMORY
    three = (UNLIMITED, UNLIMITED, UNLIMITED)
    return DeviceInfo(
        index=0,
        name="NumPy",
        kind="cpu",
        vendor="",
        driver="NumPy",
        driver_version=np.__version__,
        api_version=(0, 0, 0),
        uuid="",
        heaps=(MemoryHeap(total, True, (("device_local", "host_visible"),)),),
        queue_families=(),
        limits=Limits(
            max_storage_buffer_range=UNLIMITED,
            max_uniform_buffer_range=UNLIMITED,
            max_allocation=UNLIMITED,
            max_work_group_invocations=UNLIMITED,
            max_work_group_size=three,
            max_work_group_count=three,
            max_shared_memory=UNLIMITED,
            max_push_constants=UNLIMITED,
            max_bound_buffers=UNLIMITED,
            buffer_offset_alignment=1,
            non_coherent_atom=1,
            subgroup_size=1,
            min_subgroup_size=1,
            timestamp_period_ns=0.0,
            host_import_alignment=1,
        ),
        features=frozenset(),
        extensions=frozenset(),
        pipeline_cache_uuid="",
    )


class CpuStorage:
    """The memory of a device array: a NumPy array of bytes."""

    __slots__ = ("__weakref__", "array", "device", "is_pending")

    def __init__(self, device: CpuMemory, array: Array) -> None:
        self.device = device
        self.array = array
        self.is_pending = False
        """Whether a graph computes the contents and has not run yet."""


class CpuGraph:
    """The operations of a graph, which a replay runs in order."""

    def __init__(self, operations: Sequence[Computation], made: Sequence[CpuStorage]) -> None:
        """`made` are the storages whose contents the operations compute."""
        self._operations, self._made = operations, made

    def replay(self) -> None:
        """Run the operations."""
        for operation in self._operations:
            operation()
        for storage in self._made:
            storage.is_pending = False

    def __len__(self) -> int:
        """The number of recorded operations."""
        return len(self._operations)


class _CpuCapture(threading.local):
    """The graph that a thread records: its operations, and the storages that they make."""

    operations: list[Computation] | None = None
    made: list[CpuStorage]


class CpuMemory:
    """The device arrays of a CPU backend: an `ArrayDevice`. Safe from several threads."""

    backend = "cpu"
    runs_kernels = False
    computes_float64 = True
    f64_limbs = False
    bytes_per_product = 0.0
    closed = False
    """The arrays are ordinary memory: they outlive the backend."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self._storages: weakref.WeakSet[CpuStorage] = weakref.WeakSet()
        self._cache: LruCache[Hashable, Any] = LruCache()
        self._lock = threading.RLock()
        self._capture = _CpuCapture()

    @property
    def nbytes(self) -> int:
        """Bytes of all device arrays."""
        with self._lock:
            return sum(storage.array.nbytes for storage in self._storages)

    @property
    def free_memory(self) -> int:
        """Bytes that new arrays may take: the memory of the host, less that of the arrays."""
        return max(self.info.device_memory - self.nbytes, 0)

    @property
    def is_recording(self) -> bool:
        """Whether this thread records a graph."""
        return self._capture.operations is not None

    # --- arrays ---

    makes_secrets = False

    def secret_arrays(self, secret: bool = True) -> contextlib.nullcontext[None]:
        """Do nothing: arrays are memory of the process, which is not overwritten."""
        return contextlib.nullcontext()

    def overwrite_secrets(self) -> None:
        """Do nothing."""

    def keep_memory(self, nbytes: int) -> None:
        """Do nothing: NumPy keeps no memory."""

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An array of zeros: operations that a graph records compute on it once before the graph
        runs, and zeros are elements of every field."""
        storage = CpuStorage(self, np.zeros(math.prod(shape) * dtype.itemsize, np.uint8))
        with self._lock:
            self._storages.add(storage)
        if self.is_recording:
            storage.is_pending = True
            self._capture.made.append(storage)
        return DeviceArray(shape, dtype, storage)

    def put(self, array: Array, *, borrow: bool = False) -> DeviceArray:
        """A copy of a NumPy array, made before this returns. While a graph is recorded the copy
        runs at once too: it is not part of the graph."""
        with self._pause_capture():
            made = self.empty(array.shape, to_native(array.dtype))
            self.view(made)[...] = array
        return made

    def put_ahead(self, array: Array, *, waits: bool = True) -> DeviceArray:
        """The copy of `put`: nothing runs meanwhile."""
        return self.put(array)

    def view(self, array: DeviceArray) -> Array:
        """The contents of a device array, as a NumPy array over the same memory.

        Results of a graph that has not run are refused, except to a thread that records a graph.
        """
        storage = array.storage
        if not isinstance(storage, CpuStorage) or storage.device is not self:
            raise ArgumentTypeError(
                f"the array of shape {array.shape} is on {storage.device.info.name} as another "
                "backend opened it; copy it with array.copy_to(gpu)"
            )
        if storage.is_pending and not self.is_recording:
            raise GpuError(
                f"the array of shape {array.shape} is a result of a recorded graph that has not "
                "run yet; call the graph first"
            )
        return np.ndarray(array.shape, array.dtype, storage.array, array.offset, array.strides)

    def copy(self, array: DeviceArray) -> DeviceArray:
        """A contiguous copy of an array."""
        return copy_array(array)

    def assign(self, target: DeviceArray, value: Any) -> None:
        """Copy a NumPy array, a number or a device array to an array."""
        assign_array(target, value)

    def empty_result(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """An uninitialized array of the host."""
        return np.empty(shape, dtype)

    def fetch(self, array: DeviceArray, out: Array | None = None) -> Array:
        """A copy of the contents of a device array, in `out` if that is given."""
        if self.is_recording:
            raise GpuError(
                "a graph is being recorded, so there is no result to fetch yet; leave its `with` "
                "block and call the graph first"
            )
        if out is None:
            return np.array(self.view(array), order="C")
        np.copyto(out, self.view(array))
        return out

    def find_dlpack_device(self, array: DeviceArray) -> tuple[int, int]:
        """What `__dlpack_device__` of an array returns."""
        return CPU, 0

    def export_dlpack(self, array: DeviceArray, request: ExportRequest) -> object:
        """What `__dlpack__` of an array returns: the memory of the array."""
        if self.is_recording:
            raise GpuError(
                "a graph is being recorded, so an array cannot be handed to another library; leave "
                "its `with` block first"
            )
        if request.dl_device is not None and request.dl_device[0] != CPU:
            raise ExportError(f"the array is in host memory, not on {request.dl_device}")
        return export_host_array(self.view(array), request)

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, made if there is none; the cache is LRU."""
        with self._lock:
            found: T | None = self._cache.use(key)
            if found is None:
                with self._pause_capture():
                    found = self._cache[key] = make()
                self._cache.evict(MAX_CACHED)
            return found

    def trim(self) -> int:
        """Drop the cached values; return the number of bytes freed."""
        before = self.nbytes
        with self._lock:
            self._cache.clear()
        return max(before - self.nbytes, 0)

    # --- operations ---

    def submit(self, steps: Sequence[Step]) -> None:
        """Run copies between device arrays, in order."""
        for step in steps:
            if isinstance(step, Dispatch):
                asked = f"a dispatch of {step.kernel.name}"
                raise NotSupportedError(asked, self.backend, ("vulkan",))
            source, target = step.source, step.target
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ArgumentShapeError(
                    f"an array of {source.dtype} of shape {source.shape} cannot be copied to one "
                    f"of {target.dtype} of shape {target.shape}"
                )
            self.perform(_make_copy(self.view(source), self.view(target)))

    def perform(self, operation: Computation) -> None:
        """Run an operation, or record it in this thread's graph."""
        if self._capture.operations is None:
            operation()
        else:
            self._capture.operations.append(operation)

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Nothing: there are no kernels here."""

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str | None:
        """None: there are no kernels here."""
        return None

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Nothing: there are no kernels here."""
        return 0

    def run_operation(
        self, operation: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Apply the NumPy algorithm to the memory of the arrays; its results become device arrays.

        Device arrays may be in lists and tuples. While a graph is recorded the algorithm runs too,
        because only it knows the shapes of its results.
        """
        algorithm = operation.host_algorithm
        views: Sequence[Any] = self._replace(arguments)
        named = {name: self._replace(value) for name, value in options.items()}
        targets: list[Array] = []
        wrapped = self._wrap(algorithm(*views, **named), targets)
        if self.is_recording:

            def compute_again() -> None:
                results = _flatten(algorithm(*views, **named))
                for target, result in zip(targets, results, strict=True):
                    np.copyto(target, result)

            self.perform(compute_again)
        return wrapped

    def wait_for(self, array: DeviceArray) -> None:
        """Return at once: every operation has run already."""

    def check(self, array: DeviceArray) -> None:
        """Return at once: every operation has raised its errors already."""

    def synchronize(self) -> None:
        """Return at once: every operation has run already."""

    def begin_capture(self) -> None:
        """Record this thread's operations instead of running them."""
        if self.is_recording:
            raise GpuError("a graph is being recorded already; graphs cannot be nested")
        self._capture.operations, self._capture.made = [], []

    def end_capture(self, *, discard: bool = False, reorders: bool = False) -> CpuGraph | None:
        """Stop recording; return what was recorded, unless it is to be discarded."""
        operations, self._capture.operations = self._capture.operations, None
        made, self._capture.made = self._capture.made, []  # the graph alone keeps them
        assert operations is not None
        return None if discard else CpuGraph(operations, made)

    @contextlib.contextmanager
    def _pause_capture(self) -> Iterator[None]:
        """Run what this thread does at once, also while it records a graph."""
        operations, self._capture.operations = self._capture.operations, None
        try:
            yield
        finally:
            self._capture.operations = operations

    def _replace(self, value: Any) -> Any:
        """The value with views in place of device arrays."""
        if isinstance(value, DeviceArray):
            return self.view(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._replace, value))
        return value

    def _wrap(self, value: Any, views: list[Array]) -> Any:
        """The value with new device arrays in place of NumPy arrays; adds their views to
        `views`."""
        if isinstance(value, tuple):
            return tuple(self._wrap(each, views) for each in value)
        array = self.empty(value.shape, to_native(value.dtype))
        views.append(self.view(array))
        views[-1][...] = value
        return array


def _make_copy(source: Array, target: Array) -> Computation:
    return lambda: np.copyto(target, source)


def _flatten(results: Any) -> Sequence[Array]:
    if isinstance(results, tuple):
        return [array for each in results for array in _flatten(each)]
    return [results]
