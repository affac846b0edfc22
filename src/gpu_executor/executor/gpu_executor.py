"""GpuExecutor, the front door: runs kernels on NumPy arrays and on device arrays, on one or more
devices, with the interface of a backend and of `concurrent.futures.Executor`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import JobsInFlight
from gpu_executor.arrays.typed_array import Typed, TypedArray
from gpu_executor.backend import ArrayImport, Backend, compile_work, refuse
from gpu_executor.calls.arguments import rename_keywords
from gpu_executor.calls.call import Array, SignatureCache
from gpu_executor.calls.dispatch import ArrayDevice, CopiesToDevice
from gpu_executor.calls.streams import GeneratorStream, StreamJob, iterate_jobs
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, GpuError
from gpu_executor.executor.call_runner import CallRunner, Failure
from gpu_executor.executor.candidates import (
    BackendName,
    rank_devices,
    select_candidates,
)
from gpu_executor.executor.device_pool import (
    CpuFallback,
    DevicePool,
    WebGpuCompanion,
    open_devices,
)
from gpu_executor.executor.executor_stats import ExecutorStats
from gpu_executor.executor.inspection import ExecutorPlan, ExecutorProfile, explain
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import (
    CallArguments,
    SharedJob,
    check_kernel,
    check_map_options,
    collect_calls,
    find_first_error,
    iterate_calls,
    read_submission,
)
from gpu_executor.executor.map_iterator import (
    MapIterator,
    choose_map_sizes,
    choose_stream_sizes,
)
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.executor.work_stealing import DeviceRates
from gpu_executor.executor.worker import Worker, join_all, register_atexit
from gpu_executor.graphs import Graph
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.settings import (
    Settings,
    WhenFull,
    check_positive,
    check_switch,
    resolve_settings,
)
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.families import MetricsEndpoint
from gpu_executor.telemetry.spans import TraceFile
from gpu_executor.vulkan.instance import share_instance

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

T = TypeVar("T")
TRIES = 3
"""How often a call runs, retries included, before its error is raised."""


class GpuExecutor(Backend, Executor):
    """Runs kernels on NumPy arrays and on device arrays, on one or more devices: a `Backend` and a
    `concurrent.futures.Executor`. Thread-safe.

    A device array lives on one device. Calls on device arrays run on the device that holds them:
    they are submitted to it in the caller's order, not waited for, and their results are device
    arrays. `keep=False`, or a NumPy array as `out`, fetches the results.

    Args:
        backend (str): "vulkan", "webgpu", "cpu", or "auto" for the best device of any backend; with
            "auto", a WebGPU device is opened beside it for kernels that have only WGSL.
        device (str | int | None): One device to open: its place in the ranking, a prefix of its
            UUID or a part of its name. (In other calls of the package, `device` is an open executor
            or backend.)
        devices (str | list | None): Several devices: a list, or "all" devices of the best kind.
        settings (Settings | None): None: those of the environment.
        tries (int): How often a call runs before its error is raised.
        check (float): The fraction of each result that is recomputed on the CPU, such as 0.01.
        small_on_cpu (bool): Whether small calls run on the CPU where that is measured to be faster.
        memory_limit (int | None): The most bytes that each device may hold; overrides the settings.
        queued_bytes (int | None): The most input bytes that queued jobs may have (back-pressure);
            overrides the settings.
        when_full (str | None): Whether `submit` then waits ("block") or raises `QueueFullError`
            ("raise"); overrides the settings.

    Raises:
        NoDeviceError: There is no such device.
        SettingsError: An option or an environment variable has an invalid value.
    """

    name = "executor"

    def __init__(
        self,
        backend: BackendName = "auto",
        device: str | int | None = None,
        devices: Literal["all"] | Sequence[str | int] | None = None,
        *,
        settings: Settings | None = None,
        tries: int = TRIES,
        check: float = 0.0,
        small_on_cpu: bool = False,
        memory_limit: int | None = None,
        queued_bytes: int | None = None,
        when_full: WhenFull | None = None,
    ) -> None:
        settings = resolve_settings(settings)
        settings = settings.replace_limits(memory_limit, queued_bytes, when_full)
        check_positive("tries", tries, "it must be a whole number, at least 1")
        check_switch("small_on_cpu", small_on_cpu, (True, False))
        self._checker = ResultChecker(check)
        if device is None and devices is None and backend != "cpu":
            device = settings.device
        automatic = backend == "auto" and device is None and devices is None
        with share_instance(validation=settings.validation):
            self.ranking = rank_devices(backend, settings)
            """The devices that the executor looked at, best first."""
            candidates = None if automatic else select_candidates(self.ranking, device, devices)
            self._devices = open_devices(self.ranking, candidates, settings, tries, self._checker)
        self._served: list[MetricsEndpoint] = []
        rates = DeviceRates([each.candidate.rate for each in self._devices])
        self._queue = JobQueue(rates, settings.queued_bytes, settings.when_full)
        beside = backend == "auto" and any(
            each.candidate.backend == "vulkan" for each in self._devices
        )
        self._pool = DevicePool(
            self._devices,
            self._queue,
            rates,
            CpuFallback(
                settings, fell_back=automatic and self._devices[0].candidate.backend == "cpu"
            ),
            WebGpuCompanion(self.ranking, settings, tries, self._checker) if beside else None,
            may_fall_back=automatic,
            small_on_cpu=small_on_cpu,
        )
        self._runner = CallRunner(self._pool)
        self._direct = self._devices[0] if self._pool.single_device and not check else None
        """The device that runs every call as it is; None if calls are distributed or checked."""
        workers = self._workers = [Worker(self._pool, index) for index in range(len(self._devices))]
        # After garbage collection of the executor, its workers run the queued jobs and close the
        # devices. The interpreter waits for the workers at its exit.
        weakref.finalize(self, self._queue.close)
        register_atexit(self._queue, workers)

    @property
    def device(self) -> DeviceInfo:
        """The first usable device."""
        return self._get_first_usable().backend.device

    # --- synchronous calls ---

    def run(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel in this thread.

        If an array is a device array, its device runs the call. The call is submitted and not
        waited for; NumPy arrays are copied before this returns. With several devices, the least
        busy one runs a call on NumPy arrays; a large call of a kernel that works element by element
        is split among all devices. A call with `out=` over an array that it reads is not retried
        after a fault.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): Its inputs and in-out arguments in binding order: NumPy arrays, or
                device arrays.
            out (array | tuple): The array to write to, or a tuple of one per result; may be an
                input. A NumPy array waits for the call.
            keep (bool | None): True leaves the results on a device, False fetches them; None leaves
                them on the device if any argument is a device array.
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
            WrongResultError: The CPU recomputed a part of the result (`check`), and it differs.
            OutOfMemoryError: The call does not fit into the device's memory.
            DeviceLostError: The device was lost, also in the last try.
        """
        device = self._direct
        if (
            device is None
            or device.failed is not None
            or self._queue.closed
            or type(kernel) is not Kernel
            or not (kernel.spirv or self._pool.webgpu is None)
        ):
            self._check_open()
            check_kernel(kernel)
            call = CallArguments.of(kernel, arrays, out, params, out_shape, keep)
            return self._runner.run(kernel, call)
        # The path of nearly every call: it adds as little as possible to the backend's own.
        begun, backend = perf_counter(), device.backend
        try:
            result = backend.run(
                kernel, *arrays, out=out, keep=keep, params=params, out_shape=out_shape
            )
        except BaseException as error:
            call = CallArguments.of(kernel, arrays, out, params, out_shape, keep)
            return self._runner.run_on(device, kernel, call, failure=Failure(backend, begun, error))
        if device.consecutive_losses:
            device.consecutive_losses = 0
        device.metrics.count_direct_call(kernel, arrays, out_shape, begun)
        return result

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs.

        All jobs are checked before the first one runs: if the arguments of one are invalid, none
        runs. Jobs on NumPy arrays run concurrently: a job that reads or writes what another one
        writes is refused. Jobs on device arrays are submitted in order, before the others run.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            A list of one result per job, in order.

        Raises:
            GpuError: As `run`. The exception of a job that fails is raised after all others have
                run.
        """
        self._check_keep(keep)
        calls = collect_calls(check_kernel(kernel), jobs, out, params, keep)
        self._check_open()
        self._runner.check_batch(kernel, calls)
        job = self._runner.make_batch(kernel, calls)
        if job.calls:
            self._queue.put(job)
        error: BaseException | None = None
        try:
            results: list[Any] = job.wait()
            return results
        except Exception:
            error = find_first_error(job.outcomes)
            if error is None:
                raise
            raise error from None
        finally:
            del job, error  # Break the exception -> traceback -> frame reference cycle.

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> GeneratorStream:
        """Run a kernel on jobs as an iterable yields them. Reads at most twelve jobs ahead, and
        eight more for each further device. Jobs on device arrays are submitted when they are
        read.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to. An array
                may come again after its result was taken; earlier it is refused.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            An iterator over the results, in order. Its `close()` ends the stream.

        Raises:
            GpuError: As `run`, when the result of the job is taken.
        """
        check_kernel(kernel)
        self._check_open()
        self._check_keep(keep)
        given = iterate_jobs(jobs, out, params)
        return GeneratorStream(self._stream_results(kernel, given, keep, has_out=out is not None))

    async def run_async(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """`run` for `await`. The event loop is not blocked, not even while the queue is full.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): As in `run`.
            out (array | tuple): As in `run`.
            keep (bool | None): As in `run`.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.
        """
        import asyncio  # loaded already by any caller that awaits this

        call = CallArguments.of(check_kernel(kernel), arrays, out, params, out_shape, keep)
        if call.touches_device() and self._pool.placement.is_recording():
            self._check_open()
            return self._runner.run(kernel, call)  # another thread would not record it
        job = self._runner.make_job(kernel, call.detach())
        del call
        try:
            self._queue.put_nonblocking(job)
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        finally:
            del job  # Break the exception -> traceback -> frame reference cycle.

    # --- concurrent.futures.Executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call of a kernel on arrays.

        A call on device arrays is submitted to their device at once, in the order of all calls on
        that device, and its NumPy arrays are copied before this returns. Its future is done unless
        the results are fetched.

        Args:
            fn (Kernel): The kernel to run.
            *args (array): Its arrays, as in `run`.
            **kwargs: `out=`, `keep=`, `params=` and `out_shape=`, as in `run`. No other call may
                use the arrays of `out` until the future is done.

        Returns:
            The future of the result.

        Raises:
            QueueFullError: The queue is full, and `when_full` is "raise".
            ClosedError: The executor is shut down.
        """
        kernel = check_kernel(fn)
        call = read_submission(kernel, args, kwargs)
        if call.touches_device():
            self._check_open()
            return self._runner.submit_to_device(kernel, call)
        job = self._runner.make_host_job(kernel, call)
        self._queue.put(job)
        return job.future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> Iterator[Any]:
        """Run a kernel on arrays from iterables.

        At most two batches for each device are in flight, or `buffersize` calls, counted until
        their results are consumed. The iterables are read no further ahead, so they may be
        infinite. Calls on device arrays are submitted when they are read. Closing the iterator
        cancels the queued calls.

        Args:
            fn (Kernel): The kernel to run.
            *iterables (iterable): One for each array of a call. A kernel without inputs has none,
                and is called for each entry of `params`.
            timeout (float | None): The most seconds to wait for a result, from the call of `map`
                on.
            chunksize (int): The number of calls in a batch; 1 stands for a suitable size.
            buffersize (int | None): The most calls whose results are not consumed yet.
            keep (bool | None): As in `run`, for all calls.
            params (dict | tuple | list): Values for all calls; a list has one entry for each call.

        Returns:
            An iterator over the results, in order.

        Raises:
            TimeoutError: A result took longer than `timeout`.
        """
        kernel = check_kernel(fn)
        check_map_options(chunksize, buffersize, timeout)
        sizes = choose_map_sizes(chunksize, buffersize, len(self._devices))
        self._check_open()
        self._check_keep(keep)
        calls = iterate_calls(kernel, iterables, params, keep)
        return MapIterator(partial(self._put_batch, kernel), calls, sizes, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more jobs, run or cancel the queued jobs, then close the devices.

        Args:
            wait (bool): Whether to wait for that. In code that a job itself runs (a callback, a
                kernel's reference) the worker threads always do so alone.
            cancel_futures (bool): Whether the queued jobs are cancelled.
        """
        if self._queue.forked:
            return
        self._queue.close(cancel=cancel_futures)
        for served in self._served:
            served.close()
        if wait and not self._queue.is_running_here():  # the workers wait for the running jobs
            join_all(self._workers)

    def close(self) -> None:
        """`shutdown()`: run the queued jobs, then close the devices, and with them all device
        arrays."""
        self.shutdown()

    # --- arrays ---

    @rename_keywords(device="index")
    def empty(
        self,
        shape: int | Shape,
        dtype: npt.DTypeLike = np.float64,
        *,
        index: int | None = None,
    ) -> Array:
        """Make a NumPy array with undefined contents. It is in mapped memory, which one device
        accesses in place (Vulkan), or a plain array (WebGPU, CPU). Other devices use the array like
        any NumPy array.

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.
            index (int | None): The device's index in this executor; None: the first usable one.
        """
        return self._use(index, lambda backend: backend.empty(shape, dtype))

    @rename_keywords(device="index")
    def zeros(
        self,
        shape: int | Shape,
        dtype: npt.DTypeLike = np.float64,
        *,
        index: int | None = None,
    ) -> Array:
        """Make a NumPy array of zeros in memory as `empty` has it.

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.
            index (int | None): The device's index in this executor; None: the first usable one.
        """
        return self._use(index, lambda backend: backend.zeros(shape, dtype))

    @overload
    def asarray(self, array: Typed, *, index: int | None = None) -> Typed: ...

    @overload
    def asarray(self, array: npt.ArrayLike, *, index: int | None = None) -> Array: ...

    @rename_keywords(device="index")
    def asarray(self, array: Any, *, index: int | None = None) -> Any:
        """Copy an array into memory as `empty` has it, unless it is in that of the same device.

        Args:
            array (array): An array, or what NumPy makes one of. A `FieldArray` on the host stays a
                `FieldArray`.
            index (int | None): The device's index in this executor; None: the first usable one.
        """
        return self._use(index, lambda backend: backend.asarray(array))

    @rename_keywords(device="index")
    def import_array(self, array: Array, *, index: int | None = None) -> ArrayImport:
        """Let a device use an array's own memory until the import is closed.

        Args:
            array (array): A NumPy array.
            index (int | None): The device's index in this executor; None: the first usable one.

        Returns:
            The import, a context manager; its `.array` is the array to pass to calls.

        Raises:
            NotSupportedError: The backend cannot import memory.
            DeviceLacksError: The device cannot.
        """
        return self._use(index, lambda backend: backend.import_array(array))

    def empty_device(
        self,
        shape: int | Shape,
        dtype: npt.DTypeLike = np.float64,
        *,
        export: bool = False,
        index: int | None = None,
    ) -> DeviceArray:
        """Make a device array with undefined contents.

        Args:
            shape (int | tuple): The lengths of its axes.
            dtype (dtype): The type of its elements, a numeric one; `float64` as in NumPy.
            export (bool): Whether other libraries, such as PyTorch and CuPy, can use its memory
                without a copy, by DLPack.
            index (int | None): The device's index in this executor; None: the first usable one.

        Raises:
            NotSupportedError: The device has no device arrays, or cannot share their memory.
            ExportError: The device cannot share memory, or is no CUDA device of this process.
            OutOfMemoryError: The device has no memory for it.
        """
        return self._use(index, lambda backend: backend.empty_device(shape, dtype, export=export))

    def from_dlpack(self, tensor: Any, *, index: int | None = None) -> DeviceArray:
        """Copy an array of another library to device memory, by DLPack: one copy on the device for
        an array in CUDA memory of the same GPU, an upload for an array of the host.

        Args:
            tensor (array): An object with `__dlpack__`, such as a tensor of PyTorch or an array of
                CuPy. In CUDA memory it must be C-contiguous. What was submitted to its library's
                current stream is waited for on the device.
            index (int | None): The device's index in this executor; None: the first usable one.

        Raises:
            NotSupportedError: The device has no device arrays.
            ExportError: The array is on another device, or has a dtype that NumPy does not have.
            OutOfMemoryError: The device has no memory for it.
        """
        return self._use(index, lambda backend: backend.from_dlpack(tensor))

    def wait_for_stream(self, stream: Any, *, index: int | None = None) -> None:
        """Let operations on device arrays that are submitted later wait for what is on a CUDA
        stream now. The host does not wait.

        Args:
            stream (int | stream): The handle of a stream, or a stream of PyTorch or CuPy; 0: the
                legacy default stream.
            index (int | None): The index in this executor of the device that waits; an executor
                with several devices needs it.

        Raises:
            NotSupportedError: The device has no device arrays that CUDA can use.
            ExportError: The device is no CUDA device of this process.
        """
        device = self._select_for_stream("wait_for_stream", index)
        device.use_arrays(lambda backend: backend.wait_for_stream(stream))

    def make_stream_wait(self, stream: Any, *, index: int | None = None) -> None:
        """Let a CUDA stream wait for the operations on device arrays that were submitted before.
        The host does not wait.

        Args:
            stream (int | stream): As in `wait_for_stream`.
            index (int | None): The index in this executor of the device that is waited for; an
                executor with several devices needs it.

        Raises:
            NotSupportedError: The device has no device arrays that CUDA can use.
            ExportError: The device is no CUDA device of this process.
        """
        device = self._select_for_stream("make_stream_wait", index)
        device.use_arrays(lambda backend: backend.make_stream_wait(stream))

    @overload
    def to_device(self, array: CopiesToDevice[T], index: int | None = None) -> T: ...

    @overload
    def to_device(
        self, array: npt.ArrayLike | DeviceArray, index: int | None = None
    ) -> DeviceArray: ...

    @rename_keywords(device="index")
    def to_device(self, array: Any, index: int | None = None) -> Any:
        """Copy an array to a device's memory. An array that is on the device already is returned as
        it is. From another device it is copied, through the host.

        Args:
            array (array): A NumPy array, a device array, a `FieldArray` or a `PointArray`.
            index (int | None): The device's index in this executor. None: the array's own if it is
                on one of the executor's devices, else the first usable one.

        Returns:
            A `DeviceArray`; a `FieldArray` or a `PointArray` on the device for such an array.

        Raises:
            NotSupportedError: The device has no device arrays.
            OutOfMemoryError: The device has no memory for it.
        """
        self._check_open()
        data = array.data if isinstance(array, TypedArray) else array
        if not isinstance(data, DeviceArray):
            return self._use(index, lambda backend: backend.to_device(array))
        placement = self._pool.placement
        placement.check_not_lost("to_device", data)
        holder = placement.find_holder(data)
        target = holder if index is None and holder is not None else placement.select(index)
        if target is holder:
            return array
        # Fetched first: if this fails, it is not the target's fault.
        fetched = data.numpy() if holder is None else holder.fetch("to_device", [data])[0]
        copied = target.use(lambda backend: backend.to_device(fetched))
        return array.wrap_like(copied) if isinstance(array, TypedArray) else copied

    @property
    def array_device(self) -> ArrayDevice | None:
        """What holds the device arrays of the first usable device."""
        return self._get_first_usable().array_device

    @property
    def array_devices(self) -> tuple[ArrayDevice, ...]:
        """What holds the device arrays of each usable device, the first one first."""
        found = (each.array_device for each in self._devices if each.failed is None)
        return tuple(each for each in found if each is not None)

    def warm_up(
        self,
        work: str,
        subject: Any,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        self._check_open()
        devices = self.array_devices
        if not devices:
            raise refuse("warm_up", self._devices[0].backend.name)
        return compile_work(devices, work, subject, progress)

    def synchronize(self) -> None:
        """Wait for the operations on device arrays of all devices, and raise the first error that
        one of them found."""
        self._check_open()
        able = [each for each in self._devices if each.array_device is not None]
        errors: list[GpuError] = []
        for device in able or self._devices[:1]:
            if device.has_lost_all_arrays():
                continue
            try:
                device.synchronize()
            except GpuError as error:
                errors.append(error)
        try:
            if errors:
                raise errors[0]
        finally:
            errors.clear()  # Break the exception -> traceback -> frame reference cycle.

    def graph(self, *inputs: Any) -> Graph:
        """Record the operations on device arrays of one device inside its `with`, to run them again
        with other inputs.

        Args:
            *inputs (DeviceArray): The arrays that a call of the graph replaces. Their device
                records; without inputs it is the first usable one.
        """
        self._check_open()
        labelled = (
            (f"input {index}", each.data if isinstance(each, TypedArray) else each)
            for index, each in enumerate(inputs)
        )
        arrays = (each for each in labelled if isinstance(each[1], DeviceArray))
        return self._pool.placement.find_device("graph", arrays).backend.graph(*inputs)

    # --- inspection ---

    def explain(
        self, kernel: Kernel, *arrays: Any, params: Any = None, out_shape: Any = None
    ) -> ExecutorPlan:
        """Say how `run` would run a call, without running it.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.

        Returns:
            A `Plan` to print: the ranking of the devices, and how one of them would run the call.
            Its `plan` is that of the device.
        """
        return explain(self.ranking, self._pool, kernel, arrays, params, out_shape)

    def stats(self) -> ExecutorStats:
        """Statistics of the devices and of the job queue."""
        return ExecutorStats.of(self._pool, self._checker)

    def trim(self) -> int:
        """Free memory of the devices that no running call needs; returns the number of bytes
        freed."""
        self._check_open()
        usable = [each for each in self._pool.list_open_devices() if each.failed is None]
        return sum(device.use(lambda backend: backend.trim()) for device in usable)

    def serve_metrics(
        self,
        port: int | None = None,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
    ) -> MetricsEndpoint:
        """Serve metrics for Prometheus until the executor is shut down.

        Args:
            port (int | None): The port of HTTP; None and 0 select a free one.
            address (str): The address to listen at; by default only this machine is served.
            registry (CollectorRegistry | None): Without a port: the registry to which the metrics
                are added, and which the caller serves.

        Returns:
            The endpoint, with its port; its `close()` ends it.

        Raises:
            MissingExtraError: `prometheus_client` is not installed.
        """
        self._check_open()
        served: MetricsEndpoint = load_exporter("prometheus")(self, port, address, registry)
        self._served.append(served)
        return served

    def profile(self, *, trace: str | Path | None = None) -> ExecutorProfile:
        """Profile every job on every device inside a `with` block; then read `stages()` or write
        `save_trace(path)`.

        Args:
            trace (str | Path): The file to which the trace is written when the block ends, also
                after an error. A path that cannot be written is refused at once.
        """
        self._check_open()
        return ExecutorProfile(self._pool.list_profiled_devices(), TraceFile(trace))

    def __repr__(self) -> str:
        state = "shut down" if self._queue.closed else "open"
        return (
            f"<GpuExecutor on {', '.join(str(each.candidate) for each in self._devices)}, {state}>"
        )

    def _check_open(self) -> None:
        if self._queue.closed:
            self._queue.check_open()

    def _select_for_stream(self, caller: str, index: int | None) -> OpenDevice:
        """The device whose order with a CUDA stream is asked for."""
        self._check_open()
        if index is None and len(self._devices) > 1:
            raise ArgumentTypeError(
                f"{caller}: the executor has {len(self._devices)} devices; name one by index="
            )
        return self._pool.placement.select(index)

    def _check_keep(self, keep: bool | None) -> None:
        """Refuse `keep=True` before a job is read, where the devices have no device arrays."""
        if keep and self._devices[0].array_device is None:
            raise refuse("keep=True", self._devices[0].backend.name)

    def _get_first_usable(self) -> OpenDevice:
        """The first usable device; the first one if none is."""
        return next((each for each in self._devices if each.failed is None), self._devices[0])

    def _use(self, index: int | None, operation: Callable[[Backend], T]) -> T:
        """The result of an operation on the backend of a device that the caller chooses."""
        self._check_open()
        return self._pool.placement.select(index).use(operation)

    def _put_batch(self, kernel: Kernel, calls: Sequence[CallArguments]) -> SharedJob:
        """Queue a batch of a `map` or a `stream`, without blocking."""
        self._check_open()
        job = self._runner.make_batch(kernel, calls)
        if job.calls:
            self._queue.put_nonblocking(job)
        return job

    def _stream_results(
        self, kernel: Kernel, jobs: Iterator[StreamJob], keep: bool | None, *, has_out: bool
    ) -> Generator[Any, None, None]:
        """The results of a stream. Its jobs are checked when they are read."""
        in_flight, signatures = JobsInFlight(), SignatureCache()

        def make_call(job: StreamJob) -> CallArguments:
            self._check_open()  # the iterables may shut the executor down
            signatures.make_job_call(kernel, job.arrays, job.number, job.out, job.params, keep=keep)
            call = CallArguments.of(kernel, job.arrays, job.out, job.params, None, keep)
            if has_out:
                in_flight.add(job.number, call.arrays, call.out)
            return call

        put, sizes = partial(self._put_batch, kernel), choose_stream_sizes(len(self._devices))
        with closing(
            MapIterator(put, map(make_call, jobs), sizes, None, is_stream=True)
        ) as results:
            for result in results:
                if has_out:
                    in_flight.remove_oldest()
                yield result
