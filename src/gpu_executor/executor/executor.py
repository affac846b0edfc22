"""GpuExecutor: one front door to every device that the machine has."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from gpu_executor.call import Array
from gpu_executor.executor.arguments import calls_in, kernel_in, out_in
from gpu_executor.executor.checking import Checking
from gpu_executor.executor.crew import Crew
from gpu_executor.executor.cutting import cut
from gpu_executor.executor.ending import end_with_interpreter
from gpu_executor.executor.explaining import explain
from gpu_executor.executor.helping import HelpedFuture
from gpu_executor.executor.jobs import Arrays, Job, job_of
from gpu_executor.executor.line import Line
from gpu_executor.executor.mapped import Mapped, sizes_of
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.opening import open_devices
from gpu_executor.executor.profile import ExecutorProfile
from gpu_executor.executor.rates import Rates
from gpu_executor.executor.seats import BackendName, chosen, ranked_seats
from gpu_executor.executor.shared_jobs import SharedJob, batch_of, first_error
from gpu_executor.executor.stand_in import StandIn
from gpu_executor.executor.stats import ExecutorStats
from gpu_executor.executor.worker import Worker, join_all
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings, WhenFull, check_positive

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_executor.telemetry.prometheus import ServedMetrics

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
        self._checking = Checking(check)
        self.ranking = ranked_seats(backend, settings)
        """Every device that it could have opened, best first."""
        if device is None and devices is None and backend != "cpu":
            device = settings.device
        own_choice = backend == "auto" and device is None and devices is None
        seats = None if own_choice else chosen(self.ranking, device, devices)
        self._devices = open_devices(self.ranking, seats, settings, tries, self._checking)
        self._served: list[ServedMetrics] = []
        rates = Rates([each.seat.rate for each in self._devices])
        self._line = Line(rates, settings.queued_bytes, settings.when_full)
        self._crew = Crew(
            self._devices,
            self._line,
            rates,
            StandIn(settings, fell_back=own_choice and self._devices[0].seat.backend == "cpu"),
            may_fall_back=own_choice,
            small_on_cpu=small_on_cpu,
        )
        workers = self._workers = [Worker(self._crew, who) for who in range(len(self._devices))]
        # Collected, it lets its threads run what is in line, and they close the devices. When the
        # interpreter ends it waits for them.
        weakref.finalize(self, self._line.close)
        end_with_interpreter(self._line, workers)

    # --- now ---

    def run(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """Run a kernel in this thread, and return its result. Of several devices the least busy one
        runs it, or all of them where it is large."""
        self._check_open()
        first = self._devices[0]
        if self._crew.simple and first.failed is None:
            return self._run_on(first, kernel_in(kernel), arrays, out)
        job = self._cut(kernel_in(kernel), arrays, out)
        if job is not None:
            self._line.put(job, limited=False)
            return job.wait()
        with self._crew.taken(kernel, arrays) as device:
            return self._run_on(device, kernel, arrays, out)

    def run_batch(
        self, kernel: Kernel, jobs: Iterable[Arrays], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order. The first
        job that fails is the error. What one job writes, no other may read: they overlap."""
        calls = calls_in(jobs, out)
        job = self._batch(kernel_in(kernel), calls, None if out is None else list(out))
        self._line.put(job)
        error: BaseException | None = None
        try:
            results: list[Any] = job.wait()
            return results
        except Exception:
            error = first_error(job.outcomes)
            if error is None:
                raise
            raise error from None
        finally:
            del job, error  # an error leads here, and would lead to itself

    async def run_async(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """The same for `await`: the event loop goes on meanwhile, also while the line is full."""
        import asyncio  # whoever awaits this has loaded it

        job = self._job(kernel_in(kernel), arrays, out)
        try:
            self._line.put_later(job)
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.future.cancel()
            raise
        finally:
            del job  # an error leads here, and would lead to itself

    # --- as an executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A kernel on arrays, run when a device is free; `out=` says where the result goes."""
        job = self._job(kernel_in(fn), args, out_in(kwargs))
        self._line.put(job)
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
        kernel = kernel_in(fn)
        sizes = sizes_of(chunksize, buffersize, len(self._devices))
        self._check_open()
        calls = iter(zip(*iterables, strict=False))
        return Mapped(partial(self._put_batch, kernel), calls, sizes, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; run those in line, or cancel them, and close the devices then. With
        `wait=False`, or in a callback on a device's own thread, it returns at once, and all of that
        is done without it."""
        if self._line.forked:
            return
        self._line.close(cancel=cancel_futures)
        for served in self._served:
            served.close()
        if wait and self._line.taker() is None:  # else the devices' threads would wait for it
            join_all(self._workers)

    # --- what it is ---

    def explain(self, kernel: Kernel, count: int) -> str:
        """The ranking of the devices, and how a call of that many elements would be run."""
        return explain(self.ranking, self._crew, kernel, count)

    def stats(self) -> ExecutorStats:
        """What ran where, and what waits."""
        return ExecutorStats.of(self._crew, self._checking)

    def serve_metrics(
        self,
        port: int | None = None,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
    ) -> ServedMetrics:
        """Its figures for Prometheus, until it is shut down: over HTTP at a port (None, 0: a free
        one), for this machine alone unless told; or in a registry that the caller serves."""
        from gpu_executor.telemetry.prometheus import serve_metrics

        self._check_open()
        served = serve_metrics(self, port, address, registry)
        self._served.append(served)
        return served

    def profile(self) -> ExecutorProfile:
        """Watch every job on every device until its `with` ends: `stages()`, `save_trace(path)`."""
        self._check_open()
        return ExecutorProfile(self._crew.placed_on())

    def __repr__(self) -> str:
        state = "shut down" if self._line.closed else "open"
        return f"<GpuExecutor on {', '.join(str(each.seat) for each in self._devices)}, {state}>"

    def _check_open(self) -> None:
        if self._line.closed:
            self._line.check_open()

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
            device.journal.ran(kernel, arrays, begun, error)
            self._crew.judge(device)
            if not self._crew.is_for_others(device, kernel, arrays, out, error, lost_on):
                raise
        else:
            device.journal.ran(kernel, arrays, begun)
            return result
        lost_on |= {who for who, each in enumerate(self._devices) if each is device}
        with self._crew.taken(kernel, arrays, lost_on) as another:
            return self._run_on(another, kernel, arrays, out, lost_on)

    def _job(self, kernel: Kernel, arrays: Arrays, out: Any) -> Job:
        found = None if self._crew.simple else self._cut(kernel, arrays, out)
        if found is not None:
            return found
        future = HelpedFuture(self._crew)
        job = future.job = job_of(kernel, arrays, out, future)
        return job

    def _cut(self, kernel: Kernel, arrays: Arrays, out: Any) -> Job | None:
        """Something for all devices, where there are several."""
        if self._crew.rates.able < 2:
            return None
        future = HelpedFuture(self._crew)
        job = future.job = cut(kernel, arrays, out, future)
        return job

    def _batch(
        self, kernel: Kernel, calls: Sequence[Arrays], outs: Sequence[Any] | None = None
    ) -> SharedJob:
        future = HelpedFuture(self._crew)
        job = future.job = batch_of(kernel, calls, outs, future)
        return job

    def _put_batch(self, kernel: Kernel, calls: Sequence[Arrays]) -> SharedJob:
        """One of a `map`, which waits for its results and for nothing else."""
        job = self._batch(kernel, calls)
        self._line.put_later(job)
        return job
