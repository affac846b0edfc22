"""What an executor would do with a call, and why, in words.

ExecutorProfile: where the time of jobs goes, on all devices of an executor and on one clock.

GpuExecutor: one front door to every device that the machine has.
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

from gpu_executor.call import Array
from gpu_executor.errors import ClosedError
from gpu_executor.executor.candidates import (
    BackendName,
    DeviceRanking,
    rank_devices,
    select_candidates,
)
from gpu_executor.executor.device_metrics import DeviceProfile
from gpu_executor.executor.device_pool import CpuFallback, DevicePool, open_devices
from gpu_executor.executor.futures import CallerRunsFuture
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import (
    Arrays,
    Job,
    SharedJob,
    check_kernel,
    chunk_call,
    collect_calls,
    find_first_error,
    make_batch_job,
    make_job,
    take_out,
)
from gpu_executor.executor.map_iterator import MapIterator, choose_map_sizes
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.executor.stats import ExecutorStats
from gpu_executor.executor.work_stealing import DeviceRates
from gpu_executor.executor.worker import Worker, end_with_interpreter, join_all
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings, WhenFull, check_positive
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.families import MetricsEndpoint
from gpu_executor.telemetry.spans import Span

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def explain(ranking: DeviceRanking, pool: DevicePool, kernel: Kernel, count: int) -> str:
    """The ranking, who would run a call of that many elements, and the plan for it."""
    pool.queue.check_open()
    check_kernel(kernel)
    opened = {id(device.candidate) for device in pool.devices}
    lines = ["devices, best first (* is open):"]
    for place, candidate in enumerate(ranking):
        rate = "" if candidate.rate is None else f", {candidate.rate / 1e9:.1f} GB/s as calibrated"
        lines.append(f"  {'*' if id(candidate) in opened else ' '} {place}: {candidate}{rate}")
    lines += [f"    -  {absent}" for absent in ranking.absent]
    if len(pool.devices) > 1:
        lines.append("shares of a large call or a batch, by what the devices were seen to do:")
        for who, (device, share) in enumerate(
            zip(pool.devices, pool.rates.compute_shares(kernel), strict=True)
        ):
            left = "" if device.failed is None else f", left alone: {device.failed}"
            lines.append(f"    {who}: {share:.0%} {device.candidate}{left}")
    first = next((each for each in pool.devices if each.failed is None), pool.devices[0])
    if pool.small is not None:
        sizes = [f"{size:,}" for size in pool.small.sizes(first.candidate, kernel)]
        found = f"under {', '.join(sizes)} bytes" if sizes else "none so far"
        lines.append(f"small calls of {kernel.name} found to be faster on the CPU: {found}")
    try:
        plan = first.explain(kernel, count)
    except ClosedError:
        pool.queue.check_open()  # it was shut down meanwhile, and that is what is said
        raise
    return "\n".join(lines if plan is None else [*lines, "", str(plan)])


class ExecutorProfile:
    """What was recorded within its `with`: the jobs of every device, and on those that Vulkan
    drives the stages of every piece."""

    def __init__(self, devices: Sequence[OpenDevice]) -> None:
        self._devices = devices
        self._profiles = [DeviceProfile() for _ in devices]
        self._ending = contextlib.ExitStack()

    @property
    def spans(self) -> list[list[Span]]:
        """Of each device, in the executor's order: times are those of `time.perf_counter_ns`."""
        return [each.spans for each in self._profiles]

    def stages(self) -> list[dict[str, float]]:
        """Seconds by stage of each device, summed over all pieces; none where there are no
        stages."""
        return [each.stages() for each in self._profiles]

    def save_trace(self, path: str | Path) -> None:
        """Write the spans for Perfetto or chrome://tracing: a process for each device, in it one
        track a queue and host thread."""
        names = [f"{number}: {each.candidate}" for number, each in enumerate(self._devices)]
        load_exporter("device traces")(list(zip(names, self.spans, strict=True)), Path(path))

    def __enter__(self) -> ExecutorProfile:
        # Others than those of a `with` around this one, which goes on when this one is refused.
        profiles = [DeviceProfile() for _ in self._devices]
        with contextlib.ExitStack() as begun:
            for device, profile in zip(self._devices, profiles, strict=True):
                begun.callback(profile.end)
                # Before that: it may be opened again now.
                begun.callback(device.watch_no_more_by, profile)
                device.watch_by(profile)
            self._profiles, self._ending = profiles, begun.pop_all()
        return self

    def __exit__(self, *_exception: Any) -> None:
        self._ending.close()


TRIES = 3
"""Times that a call is run before its error is its answer."""


class GpuExecutor(Executor):
    """Runs kernels on NumPy arrays, on one device or several: a `concurrent.futures.Executor`.

    `backend` is "vulkan", "webgpu", "cpu", or "auto" for the best there is; `device` is a place in
    the ranking, a UUID's beginning or a part of a name, `devices` "all" of the best kind or a list.
    `small_on_cpu=True` lets the CPU run calls that it is faster with. `check=0.01` computes a
    hundredth of each result again on the CPU. `memory_limit` is the most that each device may hold,
    `queued_bytes` the most that jobs in line may read, over which `submit` blocks or raises, as
    `when_full` says; what is not given is as in the settings. Safe from several threads.
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
        settings = settings or Settings.from_environment()
        settings = settings.limited(memory_limit, queued_bytes, when_full)
        check_positive("tries", tries, "it is a whole number, 1 at least")
        self._checker = ResultChecker(check)
        self.ranking = rank_devices(backend, settings)
        """Every device that it could have opened, best first."""
        if device is None and devices is None and backend != "cpu":
            device = settings.device
        own_choice = backend == "auto" and device is None and devices is None
        candidates = None if own_choice else select_candidates(self.ranking, device, devices)
        self._devices = open_devices(self.ranking, candidates, settings, tries, self._checker)
        self._served: list[MetricsEndpoint] = []
        rates = DeviceRates([each.candidate.rate for each in self._devices])
        self._queue = JobQueue(rates, settings.queued_bytes, settings.when_full)
        self._pool = DevicePool(
            self._devices,
            self._queue,
            rates,
            CpuFallback(
                settings, fell_back=own_choice and self._devices[0].candidate.backend == "cpu"
            ),
            may_fall_back=own_choice,
            small_on_cpu=small_on_cpu,
        )
        workers = self._workers = [Worker(self._pool, who) for who in range(len(self._devices))]
        # Collected, it lets its threads run what is in line, and they close the devices. When the
        # interpreter ends it waits for them.
        weakref.finalize(self, self._queue.close)
        end_with_interpreter(self._queue, workers)

    # --- now ---

    def run(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """Run a kernel in this thread, and return its result. Of several devices the least busy one
        runs it, or all of them where it is large."""
        self._check_open()
        first = self._devices[0]
        if self._pool.simple and first.failed is None:
            return self._run_on(first, check_kernel(kernel), arrays, out)
        job = self._cut(check_kernel(kernel), arrays, out)
        if job is not None:
            self._queue.put(job, limited=False)
            return job.wait()
        with self._pool.taken(kernel, arrays) as device:
            return self._run_on(device, kernel, arrays, out)

    def run_batch(
        self, kernel: Kernel, jobs: Iterable[Arrays], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order. The first
        job that fails is the error. What one job writes, no other may read: they overlap."""
        calls = collect_calls(jobs, out)
        job = self._batch(check_kernel(kernel), calls, None if out is None else list(out))
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
            del job, error  # an error leads here, and would lead to itself

    async def run_async(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """The same for `await`: the event loop goes on meanwhile, also while the line is full."""
        import asyncio  # whoever awaits this has loaded it

        job = self._job(check_kernel(kernel), arrays, out)
        try:
            self._queue.put_later(job)
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        finally:
            del job  # an error leads here, and would lead to itself

    # --- as an executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A kernel on arrays, run when a device is free; `out=` says where the result goes."""
        job = self._job(check_kernel(fn), args, take_out(kwargs))
        self._queue.put(job)
        return job.future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Results of a kernel on arrays from iterables, in order, as they come.

        Two batches are in flight for each device, or `buffersize` calls in all, those among them
        whose results are not taken; the iterables are read no further ahead, so they may be
        endless. `chunksize` is the number of calls in a batch, 1: what suits. Leaving early cancels
        what is in line.
        """
        kernel = check_kernel(fn)
        sizes = choose_map_sizes(chunksize, buffersize, len(self._devices))
        self._check_open()
        calls = iter(zip(*iterables, strict=False))
        return MapIterator(partial(self._put_batch, kernel), calls, sizes, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; run those in line, or cancel them, and close the devices then. With
        `wait=False`, or in a callback on a device's own thread, it returns at once, and all of that
        is done without it."""
        if self._queue.forked:
            return
        self._queue.close(cancel=cancel_futures)
        for served in self._served:
            served.close()
        if wait and self._queue.taker() is None:  # else the devices' threads would wait for it
            join_all(self._workers)

    # --- what it is ---

    def explain(self, kernel: Kernel, count: int) -> str:
        """The ranking of the devices, and how a call of that many elements would be run."""
        return explain(self.ranking, self._pool, kernel, count)

    def stats(self) -> ExecutorStats:
        """What ran where, and what waits."""
        return ExecutorStats.of(self._pool, self._checker)

    def serve_metrics(
        self,
        port: int | None = None,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
    ) -> MetricsEndpoint:
        """Its figures for Prometheus, until it is shut down: over HTTP at a port (None, 0: a free
        one), for this machine alone unless told; or in a registry that the caller serves."""
        self._check_open()
        served: MetricsEndpoint = load_exporter("prometheus")(self, port, address, registry)
        self._served.append(served)
        return served

    def profile(self) -> ExecutorProfile:
        """Watch every job on every device until its `with` ends: `stages()`, `save_trace(path)`."""
        self._check_open()
        return ExecutorProfile(self._pool.placed_on())

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
        arrays: Arrays,
        out: Any,
        lost_on: frozenset[int] = frozenset(),
    ) -> Any:
        begun = perf_counter()
        try:
            result = device.run(kernel, arrays, out)
        except BaseException as error:
            device.metrics.ran(kernel, arrays, begun, error)
            self._pool.judge(device)
            if not self._pool.is_for_others(device, kernel, arrays, out, error, lost_on):
                raise
        else:
            device.metrics.ran(kernel, arrays, begun)
            return result
        lost_on |= {who for who, each in enumerate(self._devices) if each is device}
        with self._pool.taken(kernel, arrays, lost_on) as another:
            return self._run_on(another, kernel, arrays, out, lost_on)

    def _job(self, kernel: Kernel, arrays: Arrays, out: Any) -> Job:
        found = None if self._pool.simple else self._cut(kernel, arrays, out)
        if found is not None:
            return found
        future = CallerRunsFuture(self._pool)
        job = future.job = make_job(kernel, arrays, out, future)
        return job

    def _cut(self, kernel: Kernel, arrays: Arrays, out: Any) -> Job | None:
        """Something for all devices, where there are several."""
        if self._pool.rates.able < 2:
            return None
        future = CallerRunsFuture(self._pool)
        job = future.job = chunk_call(kernel, arrays, out, future)
        return job

    def _batch(
        self, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any] | None = None
    ) -> SharedJob:
        future = CallerRunsFuture(self._pool)
        job = future.job = make_batch_job(kernel, calls, outs, future)
        return job

    def _put_batch(self, kernel: Kernel, calls: Sequence[Arrays]) -> SharedJob:
        """One of a `map`, which waits for its results and for nothing else."""
        job = self._batch(kernel, calls)
        self._queue.put_later(job)
        return job
