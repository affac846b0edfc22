"""RayExecutor: the devices of a Ray cluster behind one `concurrent.futures.Executor`."""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import ray
from ray import cloudpickle

from gpu_executor.arrays.overlaps import JobsInFlight
from gpu_executor.backend import refuse
from gpu_executor.calls.arguments import describe
from gpu_executor.calls.call import as_arrays, check
from gpu_executor.calls.streams import GeneratorStream, StreamJob, iterate_jobs
from gpu_executor.cluster.actor import ArrayLayout, DeviceOptions
from gpu_executor.cluster.actor_slots import ActorClient, ActorSlot, InFlightLimits
from gpu_executor.cluster.cluster_stats import ActorStats, ClusterStats
from gpu_executor.cluster.dispatcher import Dispatcher
from gpu_executor.cluster.jobs import create_job
from gpu_executor.cluster.node_watcher import NodeWatcher
from gpu_executor.cluster.nodes import DevicePlacement, find_placements
from gpu_executor.cluster.serialization import RemoteFailure
from gpu_executor.cluster.session import RAY_SESSION
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.errors import (
    ArgumentTypeError,
    ClosedError,
    GpuError,
    QueueFullError,
    SettingsError,
)
from gpu_executor.executor.candidates import BackendName
from gpu_executor.executor.jobs import (
    CallArguments,
    add_index,
    check_kernel,
    check_map_options,
    collect_calls,
    iterate_calls,
    read_submission,
)
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Plan
from gpu_executor.settings import (
    Settings,
    WhenFull,
    check_positive,
    check_when_full,
    resolve_settings,
)

TRIES = 3
IN_FLIGHT = 128
IN_FLIGHT_BYTES = 256 << 20
STREAM_READ_AHEAD = 16
"""Jobs that a stream reads ahead, for each device."""
NAME = "ray"
"""The name of the executor in `NotSupportedError`."""
RESERVED_ACTOR_OPTIONS = {
    "max_concurrency",
    "max_restarts",
    "max_task_retries",
    "scheduling_strategy",
    "lifetime",
}
"""Ray's actor options that users may not set: the dispatcher relies on actors that run one message
at a time, and it places, restarts and ends actors and resends calls itself."""


@dataclass(frozen=True, slots=True)
class ClusterPlan(Plan):
    """How each device of a cluster would run a call."""

    devices: tuple[tuple[str, str], ...]
    """The name of each device whose actor is ready, and its plan as text."""

    def __str__(self) -> str:
        return "\n\n".join(f"{name}:\n{plan}" for name, plan in self.devices) or (
            "no device of the cluster is ready yet"
        )


class RayExecutor(ByIdentity, Executor):
    """Runs kernels on NumPy arrays, on the devices of a Ray cluster. Thread-safe.

    Each of the best devices in the cluster gets an actor: a process that keeps a `GpuExecutor`
    open. Nodes that join later get actors when all others are busy. If an actor dies, its calls are
    sent to another one.

    Arguments may also be Ray references to arrays in the object store. Results are read-only; large
    ones are views of the object store. `out=` copies a result into the caller's array.

    Args:
        backend (str): "vulkan", "webgpu", "cpu", or "auto" for the best devices of any backend.
        devices (str | int): "all" of the best devices, or the number of actors on each node that
            has such a device.
        settings (Settings | None): Of the actors; None: those of the actor's environment.
        check (float): The fraction of each result that is recomputed on the CPU, such as 0.01.
        tries (int): How often a call is sent before its error is raised.
        in_flight (int): The most pending calls of an actor.
        in_flight_bytes (int): The most bytes that the pending calls of an actor read and write.
        when_full (str): Whether `submit` then waits ("block") or raises `QueueFullError` ("raise").
        address (str | None): The cluster to connect to if this process has not initialized Ray;
            None: Ray is started on this machine.
        actor_options (dict): Ray's options for the actors, such as `{"num_gpus": 1}`.

    Raises:
        NoDeviceError: No node has such a device.
        SettingsError: An option has an invalid value.
    """

    def __init__(
        self,
        backend: BackendName = "auto",
        devices: Literal["all"] | int = "all",
        *,
        settings: Settings | None = None,
        check: float = 0.0,
        tries: int = TRIES,
        in_flight: int = IN_FLIGHT,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        when_full: WhenFull = "block",
        address: str | None = None,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        limits = {"tries": tries, "in_flight": in_flight, "in_flight_bytes": in_flight_bytes}
        for name, value in limits.items():
            check_positive(name, value, "it must be a whole number, at least 1")
        check_when_full("when_full", when_full)
        ResultChecker(check)  # the actors make their own; an invalid fraction raises here
        if settings is not None:
            resolve_settings(settings)  # the same for settings of another type
        options = dict(actor_options or {})
        reserved = sorted(RESERVED_ACTOR_OPTIONS & options.keys())
        if reserved:
            raise SettingsError(
                f"actor_options= may not set {', '.join(reserved)}: RayExecutor places its actors "
                "and restarts them itself"
            )
        self._when_full = when_full
        RAY_SESSION.acquire(address)
        try:
            placements = find_placements(backend, devices)
            device_options = DeviceOptions(settings, check)

            def create_slot(placement: DevicePlacement) -> ActorSlot:
                return ActorSlot(placement, device_options, options)

            self._dispatcher = Dispatcher(
                list(map(create_slot, placements)),
                NodeWatcher(backend, devices, placements, create_slot),
                InFlightLimits(in_flight, in_flight_bytes),
                tries,
            )
            self._dispatcher.start()
        except BaseException:
            RAY_SESSION.release()
            raise
        # When the executor is garbage-collected, nothing waits for the dispatcher: it answers the
        # pending jobs and then ends.
        self._finalizer = weakref.finalize(self, self._dispatcher.close)
        self._finalizer.atexit = (
            False  # the dispatcher has an atexit handler, which runs before Ray's
        )
        if backend == "auto":
            _warn_without_gpu(placements)

    # --- blocking calls and asyncio ---

    def run(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel on one of the devices.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): Its inputs and in-out arguments in binding order: NumPy arrays, or Ray
                references to them.
            out (array | tuple): The array to write to, or a tuple of one per result.
            keep (bool | None): True raises `NotSupportedError`: there are no device arrays here.
            params (dict | tuple): Values of the kernel's parameters, by name or by position.
            out_shape (tuple | list): Replaces the kernel's `out_shape`.

        Returns:
            The output or in-out argument, or a tuple of several in binding order.

        Raises:
            GpuError: As `GpuExecutor.run`.
        """
        options = {"out": out, "keep": keep, "params": params, "out_shape": out_shape}
        return self.submit(kernel, *arrays, **options).result()

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Sequence[Sequence[Any]],
        *,
        out: Sequence[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs. Blocks while the executor is full, even with
        `when_full="raise"`.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (list of tuples): The arrays of each job.
            out (list): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            A list of one result per job, in order.

        Raises:
            GpuError: The exception of the first job that fails.
        """
        _check_keep(keep)
        calls = collect_calls(_check_kernel(kernel), jobs, out, params)
        futures: list[Future[Any]] = []
        try:
            for call in calls:
                futures.append(self._submit(kernel, call, "block"))
            return [_wait_for_job(index, future) for index, future in enumerate(futures)]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> GeneratorStream:
        """Run a kernel on jobs as an iterable yields them. Reads sixteen jobs ahead for each
        device.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to. An array
                may come again after its result was taken; earlier it is refused.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            An iterator over the results, in order. Its `close()` ends the stream.
        """
        _check_keep(keep)
        _check_kernel(kernel)
        self._check_open()
        given = iterate_jobs(jobs, out, params)
        return GeneratorStream(self._stream_results(kernel, given, has_out=out is not None))

    async def run_async(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel and await its result. The event loop is never blocked, even when the
        executor is full.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): As in `run`.
            out (array | tuple): As in `run`.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.
        """
        _check_keep(keep)
        call = CallArguments.of(_check_kernel(kernel), arrays, out, params, out_shape).detach()
        try:
            future = self._submit(kernel, call, "raise")
        except QueueFullError:
            if self._when_full == "raise":
                raise
            future = await asyncio.to_thread(self._submit, kernel, call, "block")
        return await asyncio.wrap_future(future)

    # --- concurrent.futures.Executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a kernel on arrays.

        Args:
            fn (Kernel): The kernel to run.
            *args (array): Its arrays, as in `run`.
            **kwargs: `out=`, `keep=`, `params=` and `out_shape=`, as in `run`.

        Returns:
            The future of the result.

        Raises:
            QueueFullError: The executor is full, and `when_full` is "raise".
            ClosedError: The executor is shut down.
        """
        kernel = _check_kernel(fn)
        call = read_submission(kernel, args, kwargs)
        _check_keep(call.keep)
        return self._submit(kernel, call, self._when_full)

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

        Args:
            fn (Kernel): The kernel to run.
            *iterables (iterable): One for each array of a call; they may be infinite. A kernel
                without inputs has none, and is called for each entry of `params`.
            timeout (float | None): The most seconds to wait for a result, from the call of `map`
                on.
            chunksize (int): Raises the default of `buffersize` where that would be smaller. Calls
                that wait share messages whatever it is.
            buffersize (int | None): How many calls the iterables are read ahead of the results;
                None: the number of calls that may be in flight.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            params (dict | tuple | list): Values for all calls; a list has one entry for each call.

        Returns:
            An iterator over the results, in order.

        Raises:
            TimeoutError: A result took longer than `timeout`.
        """
        kernel = _check_kernel(fn)
        _check_keep(keep)
        self._check_open()
        check_map_options(chunksize, buffersize, timeout)
        admission = self._dispatcher.admission

        def get_read_ahead() -> int:
            return buffersize or max(admission.max_calls, chunksize)

        def submit(call: CallArguments) -> Future[Any]:
            return self._submit(kernel, call, "block")

        calls = iterate_calls(kernel, iterables, params)
        return ClusterMapIterator(submit, calls, get_read_ahead, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more jobs, and end the actors when the pending jobs are answered.

        Args:
            wait (bool): Whether to wait for that.
            cancel_futures (bool): Whether jobs that were not sent to an actor yet are cancelled.
        """
        self._finalizer.detach()
        self._dispatcher.close(cancel=cancel_futures)
        if wait:
            self._dispatcher.join()

    def close(self) -> None:
        """`shutdown()`: end the actors when the pending jobs are answered."""
        self.shutdown()

    # --- state ---

    def explain(
        self, kernel: Kernel, *arrays: Any, params: Any = None, out_shape: Any = None
    ) -> ClusterPlan:
        """Say how each device would run a call. The actors answer after the calls that they have.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.

        Returns:
            A `Plan` to print: the plan of each device.
        """
        _check_kernel(kernel)
        given: list[ArrayLayout | int]
        if len(arrays) == 1 and isinstance(arrays[0], Integral):
            given = [int(arrays[0])]
        else:
            converted = as_arrays(kernel, arrays)
            check(kernel, converted, on_device=False, out_shape=out_shape)
            given = [ArrayLayout(each.dtype, each.shape) for each in converted]
        question = cloudpickle.dumps(kernel), given, params, out_shape
        answers = self._ask_actors(lambda actor: actor.explain(*question))
        return ClusterPlan(tuple((str(slot.placement), answer) for slot, answer in answers))

    def trim(self) -> int:
        """Free memory of the devices that no running call needs; returns the number of bytes freed.
        The actors do so after the calls that they have."""
        return sum(answer for _, answer in self._ask_actors(lambda actor: actor.trim()))

    def stats(self) -> ClusterStats:
        """Return counters for each device, and the number of calls that have no answer yet."""
        admission = self._dispatcher.admission
        return ClusterStats(
            unanswered=admission.calls,
            unanswered_bytes=admission.nbytes,
            resent=self._dispatcher.resent,
            actors=tuple(map(ActorStats.of, self._dispatcher.slots)),
        )

    def __repr__(self) -> str:
        state = "shut down" if self._dispatcher.admission.closed else "open"
        placements = ", ".join(str(slot.placement) for slot in self._dispatcher.slots)
        return f"<RayExecutor on {placements}, {state}>"

    # --- what a cluster has not: device arrays, memory that a device shares with the caller ---

    def to_device(self, array: Any) -> Any:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("to_device", NAME)

    def empty(self, shape: Any, dtype: Any = None) -> Any:
        """Raise `NotSupportedError`: a cluster shares no memory with a device."""
        raise refuse("empty", NAME)

    def zeros(self, shape: Any, dtype: Any = None) -> Any:
        """Raise `NotSupportedError`: a cluster shares no memory with a device."""
        raise refuse("zeros", NAME)

    def asarray(self, array: Any) -> Any:
        """Raise `NotSupportedError`: a cluster shares no memory with a device."""
        raise refuse("asarray", NAME)

    def empty_device(self, shape: Any, dtype: Any = None, *, export: bool = False) -> Any:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("export=True" if export else "empty_device", NAME)

    def from_dlpack(self, tensor: Any) -> Any:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("from_dlpack", NAME)

    def wait_for_stream(self, stream: Any) -> None:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("wait_for_stream", NAME)

    def make_stream_wait(self, stream: Any) -> None:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("make_stream_wait", NAME)

    def import_array(self, array: Any) -> Any:
        """Raise `NotSupportedError`: a cluster shares no memory with a device."""
        raise refuse("import_array", NAME)

    def graph(self, *inputs: Any) -> Any:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("graph", NAME)

    def warm_up(self, work: Any, subject: Any, *, progress: Any = None) -> int:
        """Raise `NotSupportedError`: run `gpu-executor warm` on the nodes instead."""
        raise refuse("warm_up", NAME)

    def synchronize(self) -> None:
        """Raise `NotSupportedError`: a cluster has no device arrays."""
        raise refuse("synchronize", NAME)

    def profile(self, *, trace: Any = None) -> Any:
        """Raise `NotSupportedError`: profile a `GpuExecutor` instead."""
        raise refuse("profile", NAME)

    def _ask_actors(self, ask: Callable[[ActorClient], Any]) -> list[tuple[ActorSlot, Any]]:
        """The answers of the actors that are ready. The first failure is raised; an actor that dies
        meanwhile has no answer."""
        self._check_open()
        ready = [
            (slot, slot.actor)
            for slot in self._dispatcher.slots
            if slot.actor is not None and slot.actor.ready
        ]
        asked = [(slot, ask(actor)) for slot, actor in ready]
        answers = []
        for slot, reference in asked:
            try:
                answer = ray.get(reference)
            except ray.exceptions.RayActorError:
                continue
            if isinstance(answer, RemoteFailure):
                raise answer.to_exception()
            answers.append((slot, answer))
        return answers

    def _stream_results(
        self, kernel: Kernel, jobs: Iterator[StreamJob], *, has_out: bool
    ) -> Generator[Any, None, None]:
        """The results of a stream, in order."""
        in_flight = JobsInFlight()

        def make_call(job: StreamJob) -> CallArguments:
            if not isinstance(job.arrays, tuple | list):
                raise ArgumentTypeError(
                    f"job {job.number}: a job is a tuple of arrays, not {describe(job.arrays)}"
                )
            call = CallArguments.of(kernel, job.arrays, job.out, job.params).detach()
            if has_out:
                in_flight.add(job.number, call.arrays, call.out)
            return call

        def submit(call: CallArguments) -> Future[Any]:
            return self._submit(kernel, call, "block")

        def get_read_ahead() -> int:
            return STREAM_READ_AHEAD * len(self._dispatcher.slots)

        calls = map(make_call, jobs)
        with closing(
            ClusterMapIterator(submit, calls, get_read_ahead, None, numbered=True)
        ) as each:
            for result in each:
                if has_out:
                    in_flight.remove_oldest()
                yield result

    def _check_open(self) -> None:
        if self._dispatcher.admission.closed:
            raise ClosedError("the executor is shut down; open another one")

    def _submit(self, kernel: Kernel, call: CallArguments, when_full: WhenFull) -> Future[Any]:
        self._check_open()
        try:
            job = create_job(kernel, call)
        except GpuError as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed
        # The callback of a future runs on the dispatcher's thread. If it waited to be admitted, it
        # would wait for its own thread, so its jobs are admitted beyond the limits.
        self._dispatcher.admission.acquire(
            job.nbytes, None if self._dispatcher.is_current_thread() else when_full
        )
        self._dispatcher.put(job)
        return job.future


class ClusterMapIterator(Iterator[Any]):
    """The results of `map`, in order, with a bounded number of calls submitted ahead.

    The exception of a call is raised in place of its result. An exception of the iterables or of
    `submit` is raised after the results of the calls before it. After an exception the iterator is
    exhausted.
    """

    def __init__(
        self,
        submit: Callable[[CallArguments], Future[Any]],
        calls: Iterator[CallArguments],
        get_read_ahead: Callable[[], int],
        timeout: float | None,
        *,
        numbered: bool = False,
    ) -> None:
        """`numbered`: whether the exception of a call names the index of the call."""
        self._numbered, self._consumed = numbered, 0
        self._submit, self._calls, self._get_read_ahead = submit, calls, get_read_ahead
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._futures: deque[Future[Any]] = deque()
        self._final_error: BaseException | None = None
        """The exception to raise after the last result."""
        self._fill()

    def __next__(self) -> Any:
        if not self._futures:
            final_error, self._final_error = self._final_error, None
            raise final_error or StopIteration
        timeout = None if self._deadline is None else self._deadline - time.monotonic()
        try:
            result = (
                _wait_for_job(self._consumed, self._futures[0])
                if self._numbered
                else self._futures[0].result(timeout)
            )
        except BaseException:
            self.close()
            raise
        self._futures.popleft()
        self._consumed += 1
        self._fill()
        return result

    def close(self) -> None:
        """Cancel the calls that were not sent yet; the iterator is exhausted."""
        for future in self._futures:
            future.cancel()
        self._futures.clear()
        self._calls, self._final_error = iter(()), None

    def __del__(self) -> None:
        self.close()

    def _fill(self) -> None:
        """Submit calls up to the read-ahead, which changes as actors join and fail."""
        read_ahead = self._get_read_ahead()
        try:
            for call in itertools.islice(self._calls, max(read_ahead - len(self._futures), 0)):
                self._futures.append(self._submit(call))
        except Exception as error:
            self._final_error = error
        if len(self._futures) < read_ahead:
            # Do not call next() on an exhausted zip(): it would go on reading the longer iterables.
            self._calls = iter(())


def _wait_for_job(index: int, future: Future[Any]) -> Any:
    """Return the result of a batch's job; an exception names the job's index."""
    try:
        return future.result()
    except GpuError as error:
        # The index goes into a copy: when no device is left, many futures share one exception.
        raise add_index(RemoteFailure.from_exception(error).to_exception(), index) from None
    except Exception as error:
        raise add_index(error, index) from None


def _check_keep(keep: bool | None) -> None:
    """Refuse `keep=True`: there are no device arrays in a cluster."""
    if keep:
        raise refuse("keep=True", NAME)


def _check_kernel(fn: Any) -> Kernel:
    return check_kernel(fn, "a RayExecutor", "Ray's own tasks")


def _warn_without_gpu(placements: Sequence[DevicePlacement]) -> None:
    if placements[0].candidate.backend == "cpu":
        warnings.warn(
            "no node of the cluster has a GPU with a driver: NumPy runs the kernels on the CPUs",
            RuntimeWarning,
            stacklevel=3,
        )
