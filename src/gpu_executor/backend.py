"""The interface of a backend, and the names of all backends.

A backend runs kernels on arrays with one technology. Each backend is a package of its own and is
imported when it is opened, so a missing driver or library affects no other backend. Every backend
has every method of `Backend`. A method that a backend cannot have by nature raises
`NotSupportedError`; `SUPPORTED_BY` lists these methods.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.dlpack import view_host_tensor
from gpu_executor.arrays.idle_memory import MemoryUse
from gpu_executor.arrays.typed_array import Typed, is_typed_host_array, wrap_words
from gpu_executor.calls.arguments import as_numbers, describe, parse_dtype, parse_shape
from gpu_executor.calls.call import Array
from gpu_executor.calls.dispatch import ArrayDevice, CopiesToDevice, upload
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, ExportError, NotSupportedError, SettingsError
from gpu_executor.graphs import Graph
from gpu_executor.kernel import Kernel, Shape, to_native
from gpu_executor.kernels import load
from gpu_executor.plan import Plan
from gpu_executor.telemetry.families import MetricValue
from gpu_executor.telemetry.spans import Span

T = TypeVar("T")
BACKENDS = {
    "vulkan": "gpu_executor.vulkan.persistent:PersistentVulkanBackend",
    "vulkan-one-shot": "gpu_executor.vulkan.one_shot:VulkanSpirvBackend",
    "webgpu": "gpu_executor.webgpu.wgpu_executor:WgpuExecutor",
    "cpu": "gpu_executor.cpu.backend:CpuBackend",
}

SUPPORTED_BY: dict[str, tuple[str, ...]] = {
    "profile": ("vulkan", "webgpu", "cpu"),
    "empty": ("vulkan", "webgpu", "cpu"),
    "zeros": ("vulkan", "webgpu", "cpu"),
    "asarray": ("vulkan", "webgpu", "cpu"),
    "import_array": ("vulkan", "cpu"),
    "empty_device": ("vulkan", "webgpu", "cpu"),
    "export=True": ("vulkan", "cpu"),
    "to_device": ("vulkan", "webgpu", "cpu"),
    "from_dlpack": ("vulkan", "webgpu", "cpu"),
    "wait_for_stream": ("vulkan",),
    "make_stream_wait": ("vulkan",),
    "synchronize": ("vulkan", "webgpu", "cpu"),
    "graph": ("vulkan", "webgpu", "cpu"),
    "warm_up": ("vulkan", "webgpu", "cpu"),
    "keep=True": ("vulkan", "webgpu", "cpu"),
}
"""The backends that support a method, `keep=True` of `run`, `run_batch` and `stream`, or
`export=True` of `empty_device`. All backends support the methods that are not here."""


WORKS = "gpu_executor.warm_up.works"
"""The module that knows what works submit. It is imported when it is needed: it imports fields,
curves and provers, which know nothing of backends."""


@dataclass(frozen=True, slots=True)
class BackendStats:
    """The counters that every backend has. Each backend adds counters of its own."""

    device: str
    """The name of the device."""
    calls: int
    elements: int
    chunks: int
    """Parts of calls that ran: one per call, or several if the call was split."""
    dispatches: int
    """Kernels that ran on device arrays, in calls, operations of fields and curves and graphs; 0
    for a backend that has no device arrays or computes on the host."""
    seconds_by_stage: dict[str, float]
    """Seconds by stage, with the names of `telemetry.stages`."""
    bytes_held: int
    """Bytes of device memory, in use and idle."""
    memory_use: MemoryUse
    """What holds the memory."""

    def read_metrics(self) -> Iterator[MetricValue]:
        """The counters as values of metric families: the common ones, then the backend's own."""
        yield "backend_calls_total", (), self.calls
        yield "elements_total", (), self.elements
        yield "chunks_total", (), self.chunks
        yield "dispatches_total", (), self.dispatches
        for stage, seconds in self.seconds_by_stage.items():
            yield "stage_seconds_total", (stage,), seconds
        use = self.memory_use
        for holder, nbytes in use.in_use.items():
            yield "memory_bytes", ("in use", holder), nbytes
        for holder, nbytes in use.idle.items():
            yield "memory_bytes", ("idle", holder), nbytes
        yield "memory_bytes", ("fragments", ""), use.fragments
        yield "idle_limit_bytes", (), use.idle_limit
        yield from self.read_own_metrics()

    def read_own_metrics(self) -> Iterator[MetricValue]:
        """The counters that only this backend has."""
        return iter(())


class ResultStream(Iterator[Any], Protocol):
    """The results of a stream of jobs, in order."""

    def close(self) -> None:
        """End the stream: results that were not taken yet are discarded."""


class ArrayImport(Protocol):
    """An array whose memory the device uses, until `close()` or the end of a `with`."""

    array: Array

    def close(self) -> None:
        """End the import."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class BackendProfile(Protocol):
    """The spans recorded until its `with` ends."""

    @property
    def spans(self) -> list[Span]:
        """The spans, with times of `time.perf_counter_ns`."""

    def stages(self) -> dict[str, float]:
        """Seconds by stage, summed over all chunks."""

    def save_trace(self, path: str | Path) -> None:
        """Write the spans for Perfetto or chrome://tracing.

        Args:
            path (str | Path): The file to write.
        """

    def stop(self) -> None:
        """Record nothing more. Stopping twice does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any, /
    ) -> None: ...


class Backend(ByIdentity, ABC):
    """An open device that runs kernels on arrays. Use it with `with`, or `close()` it."""

    name: ClassVar[str]
    """The name of the backend in `BACKENDS`; "executor" for a `GpuExecutor`."""

    @property
    @abstractmethod
    def device(self) -> DeviceInfo:
        """The description of the device."""

    # --- calls ---

    @abstractmethod
    def run(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel on its inputs and in-out arguments.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): Its inputs and in-out arguments in binding order: NumPy arrays, or
                device arrays.
            out (array | tuple): The array to write to, or a tuple of one per result; may be an
                input.
            keep (bool | None): True keeps the results on the device, False gives NumPy arrays; None
                keeps them on the device if any argument is a device array.
            params (dict | tuple): Values of the kernel's parameters, by name or by position.
            out_shape (tuple | list): Replaces the kernel's `out_shape`.

        Returns:
            The output or in-out argument, or a tuple of several in binding order. For arrays of a
            field, a field kernel of the catalogue returns an array of that field.

        Raises:
            ArgumentTypeError: An argument has the wrong dtype, or a parameter has no or a wrong
                value.
            ArgumentShapeError: An argument has a shape that does not fit.
            ElementRangeError: The kernel found an element that it cannot accept.
            NotSupportedError: `keep` is True, and the backend has no device arrays.
            OutOfMemoryError: The call does not fit into the device's memory.
            DeviceLostError: The device was lost, and the call with it.
        """

    @abstractmethod
    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs. An invalid job is refused, by its index, before any job runs.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            A list of one result per job, in order.

        Raises:
            GpuError: As `run`; an error of a job names the job.
        """

    @abstractmethod
    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> ResultStream:
        """Run a kernel on jobs as an iterable yields them, and read only a bounded number of jobs
        ahead.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to. An array
                may come again after its result was taken.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            An iterator over the results, in order. Its `close()` ends the stream.

        Raises:
            GpuError: As `run`, when the result of the job is taken.
        """

    def run_field_add(self, a: Array, b: Array) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus.

        Args:
            a (array): The first elements.
            b (array): The second elements, of the same shape.

        Raises:
            ElementRangeError: An element is not below the modulus.
        """
        result: Array = self.run(load("bls12_381_fq_add"), a, b)
        return result

    # --- arrays ---

    @abstractmethod
    def empty(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        """Make a NumPy array with undefined contents. It is in mapped memory, which the device
        accesses in place (Vulkan), or a plain array (WebGPU, CPU).

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.

        Raises:
            NotSupportedError: The backend makes no arrays.
        """

    @abstractmethod
    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        """Make a NumPy array of zeros in memory as `empty` has it.

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.
        """

    @overload
    def asarray(self, array: Typed) -> Typed: ...

    @overload
    def asarray(self, array: npt.ArrayLike) -> Array: ...

    @abstractmethod
    def asarray(self, array: Any) -> Any:
        """Copy an array into memory as `empty` has it, unless it is there already.

        Args:
            array (array): An array, or what NumPy makes one of.

        Returns:
            A NumPy array; a `FieldArray` for a `FieldArray` on the host.
        """

    @abstractmethod
    def import_array(self, array: Array) -> ArrayImport:
        """Let the device use an array's own memory until the import is closed.

        Args:
            array (array): A NumPy array.

        Returns:
            The import, a context manager; its `.array` is the array to pass to calls.

        Raises:
            NotSupportedError: The backend cannot import memory.
            DeviceLacksError: The device cannot.
        """

    @abstractmethod
    def to_device(self, array: Any) -> Any:
        """Copy an array to device memory.

        Args:
            array (array): A NumPy array, a `FieldArray` or a `PointArray`. An array of this device
                is returned as it is; one of another device is copied.

        Returns:
            A `DeviceArray`; a `FieldArray` or a `PointArray` on the device for such an array.

        Raises:
            NotSupportedError: The backend has no device arrays.
            OutOfMemoryError: The device has no memory for it.
        """

    @abstractmethod
    def empty_device(
        self, shape: int | Shape, dtype: npt.DTypeLike = np.float64, *, export: bool = False
    ) -> DeviceArray:
        """Make a device array with undefined contents.

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.
            export (bool): Whether other libraries, such as PyTorch and CuPy, can use its memory
                without a copy, by DLPack.

        Raises:
            NotSupportedError: The backend has no device arrays, or cannot share their memory.
            ExportError: The device cannot share memory, or is no CUDA device of this process.
            OutOfMemoryError: The device has no memory for it.
        """

    @abstractmethod
    def from_dlpack(self, tensor: Any) -> DeviceArray:
        """Copy an array of another library to device memory, by DLPack: one copy on the device for
        an array in CUDA memory of the same GPU, an upload for an array of the host.

        Args:
            tensor (array): An object with `__dlpack__`, such as a tensor of PyTorch or an array of
                CuPy. In CUDA memory it must be C-contiguous. What was submitted to its library's
                current stream is waited for on the device.

        Raises:
            NotSupportedError: The backend has no device arrays.
            ExportError: The array is on another device, or has a dtype that NumPy does not have.
            OutOfMemoryError: The device has no memory for it.
        """

    @abstractmethod
    def wait_for_stream(self, stream: Any) -> None:
        """Let operations on device arrays that are submitted later wait for what is on a CUDA
        stream now. The host does not wait.

        Args:
            stream (int | stream): The handle of a stream, or a stream of PyTorch or CuPy; 0: the
                legacy default stream.

        Raises:
            NotSupportedError: The backend has no device arrays that CUDA can use.
            ExportError: The device is no CUDA device of this process.
        """

    @abstractmethod
    def make_stream_wait(self, stream: Any) -> None:
        """Let a CUDA stream wait for the operations on device arrays that were submitted before.
        The host does not wait.

        Args:
            stream (int | stream): As in `wait_for_stream`.

        Raises:
            NotSupportedError: The backend has no device arrays that CUDA can use.
            ExportError: The device is no CUDA device of this process.
        """

    @property
    @abstractmethod
    def array_device(self) -> ArrayDevice | None:
        """What holds the device arrays of this backend; None if it has no device arrays."""

    @property
    def array_devices(self) -> tuple[ArrayDevice, ...]:
        """What holds the device arrays of each usable device, the first one first."""
        return () if self.array_device is None else (self.array_device,)

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for every operation on device arrays that was submitted before. Raises their
        errors."""

    @abstractmethod
    def graph(self, *inputs: Any) -> Graph:
        """Record the operations on device arrays inside its `with`, to run them again with other
        inputs.

        Args:
            *inputs (DeviceArray): The arrays that a call of the graph replaces.
        """

    @abstractmethod
    def warm_up(
        self,
        work: str,
        subject: Any,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Compile the pipelines of a work on every device, in the form that runs fastest, and wait
        for them. A call that comes first needs most of them too, and begins with forms that compile
        fast; this is for programs whose first call must be as fast as the others.

        Args:
            work (str): "field", "transform", "curve", "msm", "hash" or "groth16".
            subject (Field or Curve or ByteHash or FieldHash or ProofCurve): What the work is done
                with: a field, a curve, a hash function, the curve of a proof.
            progress (callable): Gets how many pipelines of a device are ready, and their number.

        Returns:
            The number of pipelines that the work uses on all devices; 0 without kernels (CPU).

        Raises:
            ArgumentValueError: There is no such work.
            ArgumentTypeError: The work is not done with `subject`.
            NotSupportedError: The backend has no device arrays.
        """

    # --- inspection and lifetime ---

    @abstractmethod
    def explain(
        self, kernel: Kernel, *arrays: Any, params: Any = None, out_shape: Any = None
    ) -> Plan:
        """Say how `run` would run a call, without running it.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.

        Returns:
            A `Plan` to print: what was decided, and the reasons.
        """

    @abstractmethod
    def stats(self) -> BackendStats:
        """Counters of the backend's calls and of the resources that it holds."""

    @abstractmethod
    def profile(self, *, trace: str | Path | None = None) -> BackendProfile:
        """Record the stages of all calls until its `with` ends; then read `stages()` or write
        `save_trace(path)`.

        Args:
            trace (str | Path): The file to which the trace is written when the `with` ends, also
                after an error. A path that cannot be written is refused at once.
        """

    @abstractmethod
    def trim(self) -> int:
        """Free memory that no running call needs; returns the number of bytes freed."""

    @abstractmethod
    def close(self) -> None:
        """Free all of the backend's resources. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class HostArraysOnly(Backend):
    """A backend without device arrays: it refuses the methods that need them."""

    def import_array(self, array: Array) -> ArrayImport:
        raise refuse("import_array", self.name)

    def to_device(self, array: Any) -> Any:
        raise refuse("to_device", self.name)

    def empty_device(
        self, shape: int | Shape, dtype: npt.DTypeLike = np.float64, *, export: bool = False
    ) -> DeviceArray:
        raise refuse("export=True" if export else "empty_device", self.name)

    def from_dlpack(self, tensor: Any) -> DeviceArray:
        raise refuse("from_dlpack", self.name)

    def wait_for_stream(self, stream: Any) -> None:
        raise refuse("wait_for_stream", self.name)

    def make_stream_wait(self, stream: Any) -> None:
        raise refuse("make_stream_wait", self.name)

    @property
    def array_device(self) -> None:
        return None

    def synchronize(self) -> None:
        raise refuse("synchronize", self.name)

    def graph(self, *inputs: Any) -> Graph:
        raise refuse("graph", self.name)

    def warm_up(
        self,
        work: str,
        subject: Any,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        raise refuse("warm_up", self.name)

    def _check_keep(self, keep: bool | None) -> None:
        """Refuse `keep=True`: there is no device array for a result."""
        if keep:
            raise refuse("keep=True", self.name)


class DeviceArrays(Backend):
    """A backend with device arrays, which its `array_device` holds."""

    @property
    @abstractmethod
    def array_device(self) -> ArrayDevice:
        """What holds the device arrays."""

    @overload
    def to_device(self, array: CopiesToDevice[T]) -> T: ...

    @overload
    def to_device(self, array: npt.ArrayLike) -> DeviceArray: ...

    def to_device(self, array: Any) -> Any:
        """Copy an array to device memory, so that kernels use it without transfers.

        Args:
            array (array): A NumPy array, a `FieldArray` or a `PointArray`. An array of this device
                is returned as it is; one of another device is copied.

        Returns:
            A `DeviceArray`. A `FieldArray` stays one, in the representation that its field computes
            with.
        """
        self._check_open()
        return upload(self.array_device, array)

    def empty_device(
        self, shape: int | Shape, dtype: npt.DTypeLike = np.float64, *, export: bool = False
    ) -> DeviceArray:
        self._check_open()
        kind = parse_dtype(dtype)
        lengths = parse_shape(shape, kind.itemsize)
        if export:
            return self._empty_exportable(lengths, kind)
        return self.array_device.empty(lengths, kind)

    def from_dlpack(self, tensor: Any) -> DeviceArray:
        self._check_open()
        found = view_host_tensor(tensor)
        if found is None:
            return self._copy_tensor(tensor)
        return self.array_device.put(as_numbers("from_dlpack", found))

    @abstractmethod
    def _empty_exportable(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array in memory that other libraries can use."""

    def _copy_tensor(self, tensor: Any) -> DeviceArray:
        """A copy of an array of another library that is not in host memory."""
        raise ExportError(
            f"from_dlpack: the array is on DLPack's device {tuple(tensor.__dlpack_device__())}, "
            f"and the backend {self.name!r} takes arrays of the host; copy it to the host first"
        )

    def synchronize(self) -> None:
        """Wait for all calls on device arrays; raises the first error that one of them found."""
        self._check_open()
        self.array_device.synchronize()

    def graph(self, *inputs: Any) -> Graph:
        self._check_open()
        return Graph(self.array_device, inputs)

    def warm_up(
        self,
        work: str,
        subject: Any,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        self._check_open()
        return compile_work(self.array_devices, work, subject, progress)

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` if the backend is closed."""


class PlainArrays(Backend):
    """A backend that uses every NumPy array in the same way, so it makes ordinary arrays."""

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        self._check_open()
        kind = parse_dtype(dtype)
        return np.empty(parse_shape(shape, kind.itemsize), kind)

    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        self._check_open()
        kind = parse_dtype(dtype)
        return np.zeros(parse_shape(shape, kind.itemsize), kind)

    @overload
    def asarray(self, array: Typed) -> Typed: ...

    @overload
    def asarray(self, array: npt.ArrayLike) -> Array: ...

    def asarray(self, array: Any) -> Any:
        """The array as a contiguous NumPy array of native byte order; an array that is one is
        returned unchanged.

        Args:
            array (array): An array, or what NumPy makes one of. A `FieldArray` stays a
                `FieldArray`.
        """
        self._check_open()
        if is_typed_host_array(array):
            return wrap_words(array, self.asarray(array.data))
        source = as_numbers("asarray", array)
        if source.flags.c_contiguous and source.dtype.isnative:
            return source
        return np.array(source, to_native(source.dtype), order="C")

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` if the backend is closed."""


def compile_work(
    devices: Iterable[ArrayDevice],
    work: str,
    subject: Any,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Compile the pipelines of a work on devices, and wait for them; returns their number."""
    if progress is not None and not callable(progress):
        raise ArgumentTypeError(f"warm_up: progress= is {describe(progress)}; it takes a function")
    works = importlib.import_module(WORKS)
    return sum(
        each.compile_all(works.list_dispatches(each, work, subject), progress or _ignore_progress)
        for each in devices
    )


def _ignore_progress(_done: int, _total: int) -> None: ...


def refuse(method: str, backend: str) -> NotSupportedError:
    """The error of a backend that does not support a method of `SUPPORTED_BY`."""
    return NotSupportedError(method, backend, SUPPORTED_BY[method])


def require_array_device(backend: Backend) -> ArrayDevice:
    """The backend's `array_device`; raises `NotSupportedError` if there is none."""
    if backend.array_device is None:
        backend.to_device(np.empty(0))  # raises; an executor names the backend of its device
        raise refuse("to_device", backend.name)
    return backend.array_device


def open_backend(name: str, **options: Any) -> Backend:
    """Open a backend by its name.

    Args:
        name (str): "vulkan", "vulkan-one-shot", "webgpu" or "cpu".
        **options: The arguments of its constructor.

    Raises:
        SettingsError: There is no backend of this name.
        NoDeviceError: The backend found no device.
        MissingExtraError: The backend needs a package that is not installed.
    """
    if name not in BACKENDS:
        raise SettingsError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)(**options)
    return backend
