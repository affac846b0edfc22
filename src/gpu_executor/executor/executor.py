"""GpuExecutor: one front door to every device that the machine has."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from gpu_executor.call import Array
from gpu_executor.errors import ArgumentTypeError, ClosedError
from gpu_executor.executor.checking import Checking
from gpu_executor.executor.jobs import Arrays, Job, batch_of, job_of
from gpu_executor.executor.line import MOST_GATHERED, Line, WhenFull
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.profile import ExecutorProfile
from gpu_executor.executor.seats import BackendName, Seat, chosen, ranked_seats
from gpu_executor.executor.stats import DeviceStats, ExecutorStats
from gpu_executor.executor.worker import Worker
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_executor.telemetry.prometheus import ServedMetrics

log = logging.getLogger("gpu_executor.executor")

NO_GPU = "no GPU and no driver for one was found: kernels run on the CPU by NumPy"
TRIES = 3
"""Times that a call is run before its error is its answer."""


class GpuExecutor(Executor):
    """Runs kernels on NumPy arrays, on one device or several: a `concurrent.futures.Executor`.

    `backend` is "vulkan", "webgpu", "cpu", or "auto" for the best there is; `device` is an index in
    the ranking or a part of a name, `devices` "all" of the best kind or a list. `check=0.01`
    computes a hundredth of each result again on the CPU. `queued_bytes` is the most that jobs in
    line may read, over which `submit` blocks or raises, as `when_full` says. Safe from several
    threads.
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
        queued_bytes: int | None = None,
        when_full: WhenFull = "block",
    ) -> None:
        settings = settings or Settings.from_environment()
        self.ranking = ranked_seats(backend)
        """Every device that it could have opened, best first."""
        wanted = settings.device if device is None and devices is None else device
        seats = chosen(self.ranking, wanted, devices)
        self._fell_back = backend == "auto" and self.ranking[0].backend == "cpu"
        if self._fell_back:
            log.warning(NO_GPU)
            warnings.warn(NO_GPU, RuntimeWarning, stacklevel=2)
        self._checking = Checking(check)
        self._line = Line(queued_bytes, when_full)
        self._devices = _opened(seats, settings, tries, self._checking)
        self._served: list[ServedMetrics] = []
        self._workers = [Worker(self._line, each, self._share()) for each in self._devices]
        self._finalizer = weakref.finalize(
            self, _end, self._line, self._workers, self._devices, cancel=False
        )

    # --- now ---

    def run(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """Run a kernel in this thread, and return its result."""
        self._check_open()
        device, begun = self._first(), perf_counter()
        try:
            result = device.run(kernel, arrays, out)
        except BaseException as error:
            device.journal.ran(kernel, arrays, begun, error)
            raise
        device.journal.ran(kernel, arrays, begun)
        return result

    def run_batch(
        self, kernel: Kernel, jobs: Sequence[Arrays], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order."""
        futures = []
        for index, arrays in enumerate(jobs):
            job = job_of(kernel, tuple(arrays), None if out is None else out[index])
            self._line.put(job)
            futures.append(job.future)
        return [future.result() for future in futures]

    async def run_async(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """The same for `await`: the event loop goes on meanwhile."""
        return await asyncio.wrap_future(self.submit(kernel, *arrays, out=out))

    # --- as an executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A kernel on arrays, run when a device is free; `out=` says where the result goes."""
        job = job_of(_kernel(fn), args, _out(kwargs))
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

        Two batches are in flight, or `buffersize` calls; the iterables are read no further ahead,
        so they may be endless. `chunksize` is the least number of calls in a batch.
        """
        kernel = _kernel(fn)
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize is 1 at least, or None")
        in_flight = buffersize or 2 * max(MOST_GATHERED, chunksize)
        size = max(in_flight // 2, 1)
        end = None if timeout is None else time.monotonic() + timeout
        calls = iter(zip(*iterables, strict=False))
        return _Mapped(self._line, kernel, calls, size, in_flight, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; run those in line, or cancel them, and close the devices."""
        self._line.close(cancel=cancel_futures)
        for served in self._served:
            served.close()
        if wait:
            self._finalizer()

    # --- what it is ---

    def explain(self, kernel: Kernel, count: int) -> str:
        """The ranking of the devices, and how a call of that many elements would be run."""
        lines = ["devices, best first:"]
        opened = {id(each.seat) for each in self._devices}
        for index, seat in enumerate(self.ranking):
            lines.append(f"  {'*' if id(seat) in opened else ' '} {index}: {seat}")
        explain = getattr(self._devices[0].backend, "explain", None)
        if explain is not None:
            lines += ["", str(explain(kernel, count))]
        return "\n".join(lines)

    def stats(self) -> ExecutorStats:
        """What ran where, and what waits."""
        return ExecutorStats(
            waiting=len(self._line),
            waiting_bytes=self._line.nbytes,
            checked=self._checking.checked,
            fell_back=self._fell_back,
            devices=tuple(
                DeviceStats.of(
                    each.seat, each.counts, each.failed, each.backend.stats(), each.journal
                )
                for each in self._devices
            ),
        )

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
        return ExecutorProfile(self._devices)

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "shut down"
        return f"<GpuExecutor on {', '.join(str(each.seat) for each in self._devices)}, {state}>"

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ClosedError("the executor is shut down; open another one")

    def _first(self) -> OpenDevice:
        """The best device that has not failed."""
        for each in self._devices:
            if each.failed is None:
                return each
        failed = self._devices[0].failed
        assert failed is not None
        raise failed

    def _share(self) -> Callable[[OpenDevice], float]:
        """How much of what waits a device takes at once."""
        devices = self._devices

        def share(device: OpenDevice) -> float:
            able = [each for each in devices if each.failed is None]
            return 1.0 if device in able and len(able) == 1 else 1 / max(len(able), 1)

        return share


class _Mapped(Iterator[Any]):
    """Results of a `map`: batches in flight, and the one that is given out."""

    def __init__(
        self,
        line: Line,
        kernel: Kernel,
        calls: Iterator[Arrays],
        size: int,
        in_flight: int,
        end: float | None,
    ) -> None:
        self._line, self._kernel, self._calls = line, kernel, calls
        self._size, self._most, self._end = size, max(in_flight // size, 1), end
        self._jobs: deque[Job] = deque()
        self._ready: Iterator[Any] = iter(())
        self._fill()

    def __next__(self) -> Any:
        for result in self._ready:
            return result
        if not self._jobs:
            raise StopIteration
        left = None if self._end is None else self._end - time.monotonic()
        try:
            results = self._jobs[0].future.result(left)
        except BaseException:
            self.close()
            raise
        self._jobs.popleft()
        self._ready = iter(results)
        self._fill()
        return next(self)

    def close(self) -> None:
        """Cancel what is in line, and give no more."""
        for job in self._jobs:
            job.future.cancel()
        self._jobs.clear()
        self._calls = iter(())

    def __del__(self) -> None:
        self.close()

    def _fill(self) -> None:
        while len(self._jobs) < self._most:
            calls = list(itertools.islice(self._calls, self._size))
            if not calls:
                return
            job = batch_of(self._kernel, calls)
            self._line.put(job)
            self._jobs.append(job)


def _opened(
    seats: Sequence[Seat], settings: Settings, tries: int, checking: Checking
) -> list[OpenDevice]:
    """All of them, or none."""
    devices: list[OpenDevice] = []
    try:
        for seat in seats:
            devices.append(OpenDevice(seat, settings, tries, checking))
    except BaseException:
        for device in devices:
            device.close()
        raise
    return devices


def _end(
    line: Line, workers: Sequence[Worker], devices: Sequence[OpenDevice], *, cancel: bool
) -> None:
    line.close(cancel=cancel)
    for worker in workers:
        worker.join()
    for device in devices:
        device.close()


def _kernel(fn: Any) -> Kernel:
    if not isinstance(fn, Kernel):
        name = getattr(fn, "__name__", type(fn).__name__)
        raise ArgumentTypeError(
            f"a GpuExecutor runs kernels, and {name!r} is none; functions are for a "
            "ThreadPoolExecutor"
        )
    return fn


def _out(options: dict[str, Any]) -> Any:
    out = options.pop("out", None)
    if options:
        raise ArgumentTypeError(f"submit takes out=, not {', '.join(options)}")
    return out
