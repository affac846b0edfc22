"""PersistentVulkanBackend: opens a device once and caches what is expensive to create."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.typed_array import Typed, is_typed_host_array, wrap_words
from gpu_executor.backend import DeviceArrays
from gpu_executor.calls.arguments import as_numbers
from gpu_executor.calls.call import Array, arrays_to_explain
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel, Shape, to_native
from gpu_executor.kernels import load
from gpu_executor.plan import CallPlan, RunOptions
from gpu_executor.plan.calibration import Calibration
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.telemetry.spans import TraceFile
from gpu_executor.vulkan.batch import Job, Stream, run_batch
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.mapped_arrays import ImportedArray
from gpu_executor.vulkan.profile import Profile
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.vulkan_stats import Stats

T = TypeVar("T")


class PersistentVulkanBackend(DeviceArrays):
    """An open GPU. Use it with `with`, or `close()` it. Thread-safe.

    Args:
        device (str | int | None): An index, a prefix of the UUID or a part of the name; None: that
            of the settings, or the best device.
        settings (Settings | None): None: those of the environment.

    Raises:
        NoDeviceError: There is no such device.
    """

    name = "vulkan"

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._session = Session(resolve_settings(settings), device)
        # Also frees everything when the backend is garbage-collected, or when the interpreter exits
        # without close().
        self._finalizer = weakref.finalize(self, self._session.close)

    @property
    def device(self) -> DeviceInfo:
        """The open device."""
        return self._session.info

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike | DeviceArray,
        device_local: bool | None = None,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel on arrays.

        If an array is a device array, the call is submitted and not waited for, and its results are
        device arrays. NumPy arrays are copied before this returns.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): Its inputs and in-out arguments in binding order: NumPy arrays, or
                device arrays.
            device_local (bool | None): True stages the data through device memory, False lets the
                kernel work on mapped host memory; None: as the settings, the size and the device
                suggest.
            out (array | tuple): The array to write to, or a tuple of one per result; may be an
                input. A NumPy array waits for the call.
            keep (bool | None): True leaves the results on the device, False fetches them; None
                leaves them on the device if any argument is a device array.
            params (dict | tuple): Values of the kernel's parameters, by name or by position.
            out_shape (tuple | list): Replaces the kernel's `out_shape`.

        Returns:
            The output or in-out argument, or a tuple of several in binding order.

        Raises:
            GpuError: As `Backend.run`.
        """
        return self._session.run(
            kernel, arrays, device_local, out, keep=keep, params=params, out_shape=out_shape
        )

    def run_field_add(
        self, a: Array, b: Array, device_local: bool | None = None, out: Array | None = None
    ) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus.

        Args:
            a (array): The first elements.
            b (array): The second elements, of the same shape.
            device_local (bool | None): As in `run`.
            out (array): The array to write to.
        """
        add = load("bls12_381_fq_add")
        result: Array = self.run(add, a, b, device_local=device_local, out=out)
        return result

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Job],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        device_local: bool | None = None,
        pipelined: bool | None = None,
        depth: int | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs. Do not change the arrays before the batch returns. An invalid
        job is refused, by its index, before anything is submitted, and so is a job that reads or
        writes the `out` of another one.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`, for all jobs.
            device_local (bool | None): As in `run`.
            pipelined (bool | None): False runs one job after the other, True overlaps copies and
                dispatches; None: as the plan chooses.
            depth (int | None): The number of slots in which they overlap, two or more.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            A list of one result per job, in order.
        """
        options = RunOptions(device_local, pipelined, depth)
        return run_batch(self._session, kernel, jobs, out, options, params, keep)

    def run_field_add_batch(
        self,
        jobs: Sequence[Job],
        device_local: bool | None = None,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`run_field_add` for many jobs, one after the other.

        Args:
            jobs (list of pairs): The arrays of each job.
            device_local (bool | None): As in `run`.
            out (list of arrays): The array to write each job's result to.
        """
        add = load("bls12_381_fq_add")
        return self.run_batch(add, jobs, out=out, device_local=device_local, pipelined=False)

    def run_field_add_batch_pipelined(
        self,
        jobs: Sequence[Job],
        device_local: bool | None = None,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`run_field_add` for many jobs, with copies and dispatches overlapped.

        Args:
            jobs (list of pairs): The arrays of each job.
            device_local (bool | None): As in `run`.
            out (list of arrays): The array to write each job's result to.
        """
        add = load("bls12_381_fq_add")
        return self.run_batch(add, jobs, out=out, device_local=device_local, pipelined=True)

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Job],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        device_local: bool | None = None,
        depth: int | None = None,
        params: Any = None,
    ) -> Stream:
        """Run a kernel on a stream of jobs, with a bounded number in flight.

        An exception in the iterable of jobs ends the stream, and so does leaving it early. Jobs
        that are in flight then are waited for and discarded, and the backend can still be used.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to. An array
                may come again after its result was taken; earlier it is refused.
            keep (bool | None): As in `run`, for all jobs.
            device_local (bool | None): As in `run`.
            depth (int | None): The number of slots in which copies and dispatches overlap, two or
                more.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            An iterator over the results, in order. Its `close()` ends the stream.
        """
        options = RunOptions(device_local, True, depth)
        self._check_open()
        return Stream(self._session, kernel, jobs, out, options, params, keep)

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        return self._session.empty(shape, dtype)

    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    @overload
    def asarray(self, array: Typed) -> Typed: ...

    @overload
    def asarray(self, array: npt.ArrayLike) -> Array: ...

    def asarray(self, array: Any) -> Any:
        self._check_open()
        if is_typed_host_array(array):
            return wrap_words(array, self.asarray(array.data))
        source = as_numbers("asarray", array)
        if self._session.mapped.any and self._session.mapped.find(source) is not None:
            return source
        copy = self.empty(source.shape, to_native(source.dtype))
        copy[...] = source
        return copy

    @property
    def array_device(self) -> DeviceMemory:
        """What holds the device arrays."""
        return self._session.device_memory

    def import_array(self, array: Array) -> ImportedArray:
        """Let the device use an array's own memory. Importing costs about as much as a copy, so it
        pays for an array that is used several times.

        Args:
            array (array): A NumPy array.

        Returns:
            The import, a context manager; its `.array` is the array to pass to calls.

        Raises:
            DeviceLacksError: The device does not support VK_EXT_external_memory_host.
        """
        self._check_open()
        return ImportedArray(self._session.resources.device, self._session.mapped, array)

    def _empty_exportable(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        return self.array_device.empty_exportable(shape, dtype)

    def _copy_tensor(self, tensor: Any) -> DeviceArray:
        return self.array_device.copy_tensor(tensor)

    def wait_for_stream(self, stream: Any) -> None:
        self._check_open()
        self.array_device.wait_for_stream(stream)

    def make_stream_wait(self, stream: Any) -> None:
        self._check_open()
        self.array_device.make_stream_wait(stream)

    def explain(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike | DeviceArray,
        device_local: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> CallPlan:
        """Return the plan that `run` would follow. Print it for its reasons.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            device_local (bool | None): As in `run`.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.
        """
        given = arrays_to_explain(kernel, arrays)
        return self._session.explain(
            kernel, given, device_local, params=params, out_shape=out_shape
        )

    @property
    def calibration(self) -> Calibration | None:
        """The measured performance of the device; None if plans use fixed thresholds.

        If the settings name a cache folder, the first batch or large call measures a new device
        once, and later processes read the stored calibration.
        """
        return self._session.call_preparer.calibration

    def calibrate(self) -> Calibration:
        """Measure the device again, in about half a second, and plan with the result."""
        self._check_open()
        return self._session.calibrate()

    def profile(self, *, trace: str | Path | None = None) -> Profile:
        self._check_open()
        return self._session.start_profile(TraceFile(trace))

    def trim(self) -> int:
        """Free memory that no running call needs; returns the number of bytes freed."""
        self._check_open()
        return self._session.trim()

    def stats(self) -> Stats:
        """Return counters of calls, caches and memory, and seconds by stage."""
        if self._session.forked:
            self._check_open()
        return self._session.stats()

    def validation_messages(self) -> list[str]:
        """Return the messages of the validation layer, if the settings enable it."""
        return list(self._session.instance.messages)

    def close(self) -> None:
        """Wait for running calls and free everything.

        Closing twice does nothing.
        """
        self._finalizer()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<PersistentVulkanBackend on {self.device.name}, {state}>"

    def _check_open(self) -> None:
        self._session.check_open()
