"""CallRunner: runs the calls of an executor in their callers' threads, and makes the jobs of those
that workers run.

A call on NumPy arrays runs on the least busy device, or is split among all of them. A call on
device arrays is submitted to the device that holds them, in its caller's thread: so the order of
the calls on a device is the program's order. Only its results may be fetched by a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import list_outputs
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.backend import Backend
from gpu_executor.calls.call import SignatureCache, as_arrays, check_keep, copy_elements
from gpu_executor.errors import KernelError
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.futures import CallerRunsFuture
from gpu_executor.executor.jobs import (
    CallArguments,
    DeviceJob,
    Job,
    SharedJob,
    add_index,
    chunk_call,
    make_batch_job,
    make_job,
)
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.kernel import Kernel


class Failure(NamedTuple):
    """The first try of a call, which has failed."""

    backend: Backend
    begun: float
    error: BaseException


class CallRunner:
    """Runs the calls of an executor on the devices of its pool. Thread-safe."""

    def __init__(self, pool: DevicePool) -> None:
        self._pool = pool
        self._signatures = SignatureCache()

    # --- in the caller's thread ---

    def run(self, kernel: Kernel, call: CallArguments) -> Any:
        """Run a call in this thread, on the device or devices that it belongs to."""
        if call.touches_device():
            return self.run_where_arrays_are(kernel, call)
        first, beside = self._pool.devices[0], self._pool.webgpu is not None
        on_first = self._pool.single_device and first.failed is None
        if on_first and (kernel.spirv or not beside):
            return self.run_on(first, kernel, call)
        job = self._chunk(kernel, call)
        if job is not None:
            self._pool.queue.put(job, limited=False)
            return job.wait()
        with self._pool.reserve_device(kernel, call) as device:
            return self.run_on(device, kernel, call)

    def run_where_arrays_are(self, kernel: Kernel, call: CallArguments) -> Any:
        """Run a call that takes or returns device arrays."""
        device = self._find_device(kernel, call)
        return self.run_on(device, kernel, call)

    def run_on(
        self,
        device: OpenDevice,
        kernel: Kernel,
        call: CallArguments,
        lost_on: frozenset[int] = frozenset(),
        failure: Failure | None = None,
    ) -> Any:
        """Run a call on a device in this thread. If the device fails, run it on another device.
        `failure`: the first try, which has failed already."""
        begun = perf_counter() if failure is None else failure.begun
        try:
            if failure is None:
                result = device.run(kernel, call)
            else:
                if isinstance(failure.error, Exception) and call.touches_device():
                    self._find_device(kernel, call)  # a clearer error if an array is elsewhere
                result = device.finish_failed(failure.backend, kernel, call, failure.error)
        except BaseException as error:
            device.metrics.count_call(kernel, call, begun, error)
            self._pool.quarantine_if_unstable(device)
            if not self._pool.can_run_elsewhere(device, kernel, call, error, lost_on):
                raise
        else:
            device.metrics.count_call(kernel, call, begun)
            return result
        finally:
            del failure  # Break the exception -> traceback -> frame reference cycle.
        lost_on |= {index for index, each in enumerate(self._pool.devices) if each is device}
        with self._pool.reserve_device(kernel, call, lost_on) as another:
            return self.run_on(another, kernel, call, lost_on)

    def submit_to_device(self, kernel: Kernel, call: CallArguments) -> Future[Any]:
        """Run a call that takes or returns device arrays, in this thread. If its results go to the
        host, a worker fetches them; otherwise the future is done."""
        done: Future[Any] = Future()
        fetches = call.keep is False or not (call.out is None or call.writes_to_device())
        try:
            if not fetches or self._pool.placement.is_recording():
                done.set_result(self.run_where_arrays_are(kernel, call))
                return done
            if call.out is not None:
                self._check_arguments(kernel, call)
            kept = self.run_where_arrays_are(kernel, call._replace(out=None, keep=True))
        except Exception as error:
            done.set_exception(error)
            return done
        # The arguments are held only if the result gets its type from them.
        fetched = call if isinstance(kept, TypedArray) else CallArguments((), call.out)
        perform = partial(self._fetch, kernel, list_outputs(kept), fetched)
        job = self._make_device_job(kernel, CallArguments(()), perform)
        self._pool.queue.put(job, limited=False)
        return job.future

    # --- jobs ---

    def make_job(self, kernel: Kernel, call: CallArguments) -> Job:
        """Make the job of one call."""
        if call.touches_device():
            perform = partial(self.run_where_arrays_are, kernel, call)
            return self._make_device_job(kernel, call, perform)
        return self.make_host_job(kernel, call)

    def make_host_job(self, kernel: Kernel, call: CallArguments) -> Job:
        """Make the job of a call whose arrays and results are on the host."""
        chunked = None if self._pool.single_device else self._chunk(kernel, call)
        if chunked is not None:
            return chunked
        future = CallerRunsFuture(self._pool)
        job = future.job = make_job(kernel, call, future)
        return job

    def check_batch(self, kernel: Kernel, calls: Sequence[CallArguments]) -> None:
        """Raise the error of the first call of a batch whose arguments are invalid, with the index
        of its job."""
        for index, call in enumerate(calls):
            try:
                self._check_arguments(kernel, call)
                if call.touches_device():
                    self._find_device(kernel, call)
            except Exception as error:
                add_index(error, index)
                raise

    def make_batch(self, kernel: Kernel, calls: Sequence[CallArguments]) -> SharedJob:
        """Make the job of a batch, and run its calls on device arrays now, in this thread. The job
        is done if there are no others."""
        known = {
            index: self._run_to_outcome(kernel, call)
            for index, call in enumerate(calls)
            if call.touches_device()
        }
        future = CallerRunsFuture(self._pool)
        job = future.job = make_batch_job(kernel, calls, future, known)
        if not job.calls:
            job.resolve([])
        return job

    def _check_arguments(self, kernel: Kernel, call: CallArguments) -> None:
        """Raise as a backend would before it runs the call. The data is not read."""
        check_keep(kernel, call.keep, call.out)
        arrays = as_arrays(kernel, call.arrays)
        signature = self._signatures.get(kernel, arrays, call.out_shape)
        checked = signature.make_call(arrays, call.params)
        if call.out is not None:
            checked.use_outputs(call.out, on_device=True)

    def _chunk(self, kernel: Kernel, call: CallArguments) -> Job | None:
        """Make a job that is split among the devices; None for one device, or a small call."""
        if self._pool.rates.usable < 2:
            return None
        future = CallerRunsFuture(self._pool)
        job = future.job = chunk_call(kernel, call, future)
        return job

    def _make_device_job(
        self, kernel: Kernel, call: CallArguments, perform: Callable[[], Any]
    ) -> DeviceJob:
        future = CallerRunsFuture(self._pool)
        nbytes = call.count_input_bytes()
        job = future.job = DeviceJob(kernel, [call], True, future, nbytes, perform=perform)
        return job

    # --- calls on device arrays ---

    def _find_device(self, kernel: Kernel, call: CallArguments) -> OpenDevice:
        """The device of a call that takes or returns device arrays."""
        device = self._pool.placement.find_device(kernel.name, call.label_arrays())
        if device.candidate.backend == "vulkan" and not kernel.spirv:
            raise KernelError(
                f"kernel {kernel.name!r} has only WGSL, and {device.candidate}, which has the "
                "device arrays, runs SPIR-V; pass NumPy arrays (array.numpy()), or give the kernel "
                "SPIR-V with Kernel.from_spirv"
            )
        return device

    def _run_to_outcome(self, kernel: Kernel, call: CallArguments) -> Any:
        """The result or the exception of a call on device arrays."""
        try:
            return self.run_where_arrays_are(kernel, call)
        except Exception as error:
            return error

    def _fetch(self, kernel: Kernel, kept: Sequence[DeviceArray], call: CallArguments) -> Any:
        """Copy the results of a call to the host, to the arrays of the caller if there are any."""
        labelled = ((f"result {index}", each) for index, each in enumerate(kept))
        holder = self._pool.placement.find_device(kernel.name, labelled)
        fetched, targets = holder.fetch(kernel.name, kept), list_outputs(call.out)
        for target, array in zip(targets, fetched, strict=False):
            copy_elements(array, target)
        results = targets or fetched
        return call.wrap(results[0] if len(results) == 1 else tuple(results))
