"""GpuExecutor: runs kernels on one or more devices behind `concurrent.futures.Executor`.

This module also holds what `GpuExecutor.explain` prints and what `GpuExecutor.profile` returns.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from gpu_executor.arguments import parse_count
from gpu_executor.errors import ClosedError
from gpu_executor.executor.candidates import (
    BackendName,
    DeviceRanking,
    rank_devices,
    select_candidates,
)
from gpu_executor.executor.device_metrics import DeviceProfile
from gpu_executor.executor.device_pool import (
    CpuFallback,
    DevicePool,
    WebGpuCompanion,
    open_devices,
)
from gpu_executor.executor.futures import CallerRunsFuture
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import (
    CallArguments,
    Job,
    SharedJob,
    check_kernel,
    check_map_options,
    chunk_call,
    collect_calls,
    find_first_error,
    iterate_calls,
    make_batch_job,
    make_job,
    read_submission,
)
from gpu_executor.executor.map_iterator import MapIterator, choose_map_sizes
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.executor.stats import ExecutorStats
from gpu_executor.executor.work_stealing import DeviceRates
from gpu_executor.executor.worker import Worker, join_all, register_atexit
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings, WhenFull, check_positive, resolve_settings
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.families import MetricsEndpoint
from gpu_executor.telemetry.spans import Span, TraceFile

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def explain(ranking: DeviceRanking, pool: DevicePool, kernel: Kernel, count: int) -> str:
    """The ranking of the devices, their shares of large calls, and the plan for a call of `count`
    elements."""
    pool.queue.check_open()
    check_kernel(kernel)
    count = parse_count("explain", count)
    opened = {id(device.candidate) for device in pool.devices}
    lines = ["devices, best first (* is open):"]
    for place, candidate in enumerate(ranking):
        rate = "" if candidate.rate is None else f", {candidate.rate / 1e9:.1f} GB/s as calibrated"
        lines.append(f"  {'*' if id(candidate) in opened else ' '} {place}: {candidate}{rate}")
    lines += [f"    -  {absent}" for absent in ranking.absent]
    if len(pool.devices) > 1:
        lines.append("shares of a large call or a batch, by the measured rates:")
        for index, (device, share) in enumerate(
            zip(pool.devices, pool.rates.compute_shares(kernel), strict=True)
        ):
            state = "" if device.failed is None else f", quarantined: {device.failed}"
            lines.append(f"    {index}: {share:.0%} {device.candidate}{state}")
    first = next((each for each in pool.devices if each.failed is None), pool.devices[0])
    if pool.small_calls is not None:
        cpu_sizes = pool.small_calls.list_cpu_sizes(first.candidate, kernel)
        sizes = ", ".join(f"{size:,}" for size in cpu_sizes)
        measured = f"under {sizes} bytes" if sizes else "none so far"
        lines.append(f"small calls of {kernel.name} measured to be faster on the CPU: {measured}")
    if pool.webgpu is not None and pool.runs_beside(kernel):
        runner = str(pool.webgpu.candidates[0]) if pool.webgpu.candidates else "no device"
        return "\n".join([*lines, f"{kernel.name} has only WGSL: {runner} runs it"])
    try:
        plan = first.explain(kernel, count)
    except ClosedError:
        pool.queue.check_open()  # raises a clearer error if the executor was shut down meanwhile
        raise
    return "\n".join([*lines, "", str(plan)])


class ExecutorProfile:
    """A profile of an executor, recorded inside its `with` block: the jobs of every device, and the
    stages of every piece."""

    def __init__(self, devices: Sequence[OpenDevice], trace: TraceFile) -> None:
        self._devices, self._trace = devices, trace
        self._profiles = [DeviceProfile() for _ in devices]
        self._on_exit = contextlib.ExitStack()

    @property
    def spans(self) -> list[list[Span]]:
        """The spans of each device, in the executor's order, with times of
        `time.perf_counter_ns`."""
        return [each.spans for each in self._profiles]

    def stages(self) -> list[dict[str, float]]:
        """Seconds by stage for each device, summed over all pieces."""
        return [each.stages() for each in self._profiles]

    def save_trace(self, path: str | Path) -> None:
        """Write a trace file for Perfetto or chrome://tracing: one process for each device, in it
        one track for each queue and host thread."""
        names = [f"{number}: {each.candidate}" for number, each in enumerate(self._devices)]
        load_exporter("device traces")(list(zip(names, self.spans, strict=True)), Path(path))

    def __enter__(self) -> ExecutorProfile:
        # New profiles: an active `with` block of this object goes on when a nested one is refused.
        profiles = [DeviceProfile() for _ in self._devices]
        with contextlib.ExitStack() as started:
            for device, profile in zip(self._devices, profiles, strict=True):
                started.callback(profile.stop)
                # Called before `profile.stop`: a device may be reopened at this moment.
                started.callback(device.stop_profile, profile)
                device.start_profile(profile)
            self._profiles, self._on_exit = profiles, started.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._on_exit.close()
        self._trace.save(self.save_trace, error)


TRIES = 3
"""How often a call runs, retries included, before its error is raised."""


class GpuExecutor(Executor):
    """Runs kernels on NumPy arrays, on one or more devices: a `concurrent.futures.Executor`.
    Thread-safe.

    backend       "vulkan", "webgpu", "cpu", or "auto" for the best device of any backend; with
                  "auto", a WebGPU device is opened beside it for kernels that have only WGSL
    device        one device: its place in the ranking, a prefix of its UUID or a part of its name
    devices       several devices: a list, or "all" devices of the best kind
    settings      `Settings`; by default those of the environment
    tries         how often a call runs before its error is raised
    check         the fraction of each result that is recomputed on the CPU, such as 0.01
    small_on_cpu  whether small calls run on the CPU where that is measured to be faster
    memory_limit  the most bytes that each device may hold
    queued_bytes  the most input bytes that queued jobs may have (back-pressure)
    when_full     whether `submit` then waits ("block") or raises `QueueFullError` ("raise")

    The last three override the settings.
    """

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
        self._checker = ResultChecker(check)
        self.ranking = rank_devices(backend, settings)
        """Every device that the executor could have opened, best first."""
        if device is None and devices is None and backend != "cpu":
            device = settings.device
        automatic = backend == "auto" and device is None and devices is None
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
        workers = self._workers = [Worker(self._pool, index) for index in range(len(self._devices))]
        # After garbage collection of the executor, its workers run the queued jobs and close the
        # devices. The interpreter waits for the workers at its exit.
        weakref.finalize(self, self._queue.close)
        register_atexit(self._queue, workers)

    # --- synchronous calls ---

    def run(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel in this thread; returns its output, or a tuple of several outputs.

        The arrays are the kernel's inputs and in-out arguments; the results are its outputs and
        in-out arguments, both in binding order. `out` is the array to write to, or a tuple of
        arrays. `params` are the kernel's parameters, a dict by name or a tuple by position.
        `out_shape` replaces the kernel's.

        With several devices, the least busy one runs the call; a large call of a kernel that works
        element by element is split among all devices. A call with `out=` over an array that it
        reads is not retried after a fault.
        """
        self._check_open()
        call = CallArguments.of(check_kernel(kernel), arrays, out, params, out_shape)
        first, beside = self._devices[0], self._pool.webgpu is not None
        on_first = self._pool.single_device and first.failed is None
        if on_first and (kernel.spirv or not beside):
            return self._run_on(first, kernel, call)
        job = self._chunk(kernel, call)
        if job is not None:
            self._queue.put(job, limited=False)
            return job.wait()
        with self._pool.reserve_device(kernel, call) as device:
            return self._run_on(device, kernel, call)

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Sequence[Any] | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays. Returns their results in order, or
        raises the exception of the first job that failed. `params` serves all jobs; a list has one
        entry for each job. Jobs run concurrently: a job that reads or writes what another one
        writes is refused."""
        calls = collect_calls(check_kernel(kernel), jobs, out, params)
        job = self._make_batch(kernel, calls)
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

    async def run_async(
        self,
        kernel: Kernel,
        *arrays: Any,
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """`run` for `await`. The event loop is not blocked, not even while the queue is full."""
        import asyncio  # loaded already by any caller that awaits this

        call = CallArguments.of(check_kernel(kernel), arrays, out, params, out_shape)
        job = self._make_job(kernel, call.detach())
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
        """Queue a call of a kernel on arrays, and return its future. The keywords are `out=`,
        `params=` and `out_shape=`, as in `run`. No other call may use the arrays of `out` until the
        future is done."""
        kernel = check_kernel(fn)
        job = self._make_job(kernel, read_submission(kernel, args, kwargs))
        self._queue.put(job)
        return job.future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        params: Any = None,
    ) -> Iterator[Any]:
        """Run a kernel on arrays from iterables. Returns an iterator over the results, in order.
        `params` serves all calls; a list has one entry for each call. A kernel without inputs has
        no iterables and is called for each entry.

        At most two batches for each device are in flight, or `buffersize` calls, counted until
        their results are consumed. The iterables are read no further ahead, so they may be
        infinite. `chunksize` is the number of calls in a batch; 1 stands for a suitable size.
        Closing the iterator cancels the queued calls.
        """
        kernel = check_kernel(fn)
        check_map_options(chunksize, buffersize, timeout)
        sizes = choose_map_sizes(chunksize, buffersize, len(self._devices))
        self._check_open()
        calls = iterate_calls(kernel, iterables, params)
        return MapIterator(partial(self._put_batch, kernel), calls, sizes, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more jobs, run or cancel the queued jobs, then close the devices. With
        `wait=False`, or in code that a job itself runs (a callback, a kernel's reference), return
        at once and let the worker threads do so."""
        if self._queue.forked:
            return
        self._queue.close(cancel=cancel_futures)
        for served in self._served:
            served.close()
        if wait and not self._queue.is_running_here():  # the workers wait for the running jobs
            join_all(self._workers)

    # --- inspection ---

    def explain(self, kernel: Kernel, count: int) -> str:
        """The ranking of the devices, and the plan for a call of `count` elements, as text."""
        return explain(self.ranking, self._pool, kernel, count)

    def stats(self) -> ExecutorStats:
        """Statistics of the devices and of the job queue."""
        return ExecutorStats.of(self._pool, self._checker)

    def serve_metrics(
        self,
        port: int | None = None,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
    ) -> MetricsEndpoint:
        """Serve metrics for Prometheus until the executor is shut down.

        They are served over HTTP at `port` (None and 0 select a free port), and by default only to
        this machine. With `registry` and no port, they are added to that registry, which the caller
        serves.
        """
        self._check_open()
        served: MetricsEndpoint = load_exporter("prometheus")(self, port, address, registry)
        self._served.append(served)
        return served

    def profile(self, *, trace: str | Path | None = None) -> ExecutorProfile:
        """Profile every job on every device inside a `with` block; then read `stages()` or write
        `save_trace(path)`.

        `trace` is the file to which the trace is written when the block ends, also after an error.
        A path that cannot be written is refused at once.
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

    def _run_on(
        self,
        device: OpenDevice,
        kernel: Kernel,
        call: CallArguments,
        lost_on: frozenset[int] = frozenset(),
    ) -> Any:
        """Run a call on a device in this thread. If the device fails, run it on another device."""
        begun = perf_counter()
        try:
            result = device.run(kernel, call)
        except BaseException as error:
            device.metrics.count_call(kernel, call, begun, error)
            self._pool.quarantine_if_unstable(device)
            if not self._pool.can_run_elsewhere(device, kernel, call, error, lost_on):
                raise
        else:
            device.metrics.count_call(kernel, call, begun)
            return result
        lost_on |= {index for index, each in enumerate(self._devices) if each is device}
        with self._pool.reserve_device(kernel, call, lost_on) as another:
            return self._run_on(another, kernel, call, lost_on)

    def _make_job(self, kernel: Kernel, call: CallArguments) -> Job:
        chunked = None if self._pool.single_device else self._chunk(kernel, call)
        if chunked is not None:
            return chunked
        future = CallerRunsFuture(self._pool)
        job = future.job = make_job(kernel, call, future)
        return job

    def _chunk(self, kernel: Kernel, call: CallArguments) -> Job | None:
        """Make a job that is split among the devices; None for one device, or a small call."""
        if self._pool.rates.usable < 2:
            return None
        future = CallerRunsFuture(self._pool)
        job = future.job = chunk_call(kernel, call, future)
        return job

    def _make_batch(self, kernel: Kernel, calls: Sequence[CallArguments]) -> SharedJob:
        future = CallerRunsFuture(self._pool)
        job = future.job = make_batch_job(kernel, calls, future)
        return job

    def _put_batch(self, kernel: Kernel, calls: Sequence[CallArguments]) -> SharedJob:
        """Queue a batch of a `map`, without blocking."""
        job = self._make_batch(kernel, calls)
        self._queue.put_nonblocking(job)
        return job
