"""RayExecutor: the devices of a Ray cluster behind one front door."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Literal

from gpu_executor.cluster.actor import DeviceOptions
from gpu_executor.cluster.dispatcher import Dispatcher
from gpu_executor.cluster.failure import Failure
from gpu_executor.cluster.jobs import Job, job_of
from gpu_executor.cluster.limits import Limits
from gpu_executor.cluster.mapped import Mapped
from gpu_executor.cluster.newcomers import Newcomers
from gpu_executor.cluster.places import Place, find_places
from gpu_executor.cluster.posts import Post
from gpu_executor.cluster.session import SESSION
from gpu_executor.cluster.stats import ClusterStats, PostStats
from gpu_executor.errors import (
    ClosedError,
    GpuError,
    QueueFullError,
    SettingsError,
)
from gpu_executor.executor.arguments import calls_in, check_sizes, kernel_in, out_in
from gpu_executor.executor.seats import BackendName
from gpu_executor.executor.shared_jobs import numbered
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings, WhenFull

TRIES = 3
IN_FLIGHT = 128
IN_FLIGHT_BYTES = 256 << 20
OURS = {"max_concurrency", "max_restarts", "max_task_retries", "scheduling_strategy", "lifetime"}
"""Of an actor's options: messages are run one by one, and resent from here."""


class RayExecutor(Executor):
    """Runs kernels on NumPy arrays, on the devices of a cluster: a `concurrent.futures.Executor`.

    An actor for each of the best devices, or `devices` of them on each node that has such, keeps a
    `GpuExecutor` open; nodes that join later get theirs when all are busy. `in_flight` calls and
    `in_flight_bytes` of what they read and write are under way for each actor; beyond that `submit`
    blocks or raises, as `when_full` says. A call whose actor died is run by another, `tries` times
    in all. `actor_options` are Ray's, such as `{"num_gpus": 1}`. Ray is started, or found at
    `address`, where it is not there yet.

    Arrays may also be references to ones in Ray's object store. Results are read-only: views of
    the object store where they are large. `out=` copies them into arrays of the caller's. Safe
    from several threads.
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
        if min(tries, in_flight, in_flight_bytes) < 1:
            raise SettingsError("tries=, in_flight= and in_flight_bytes= are 1 at least")
        options = dict(actor_options or {})
        if OURS & options.keys():
            raise SettingsError(f"actor_options= may not set {', '.join(OURS & options.keys())}")
        self._when_full = when_full
        SESSION.hold(address)
        try:
            places = find_places(backend, devices)
            device = DeviceOptions(settings, check)

            def post_at(place: Place) -> Post:
                return Post(place, device, options)

            self._dispatcher = Dispatcher(
                list(map(post_at, places)),
                Newcomers(backend, devices, places, post_at),
                Limits(in_flight, in_flight_bytes),
                tries,
            )
            self._dispatcher.start()
        except BaseException:
            SESSION.release()
            raise
        # Nobody waits when it is collected: the dispatcher answers what was asked, and ends.
        self._finalizer = weakref.finalize(self, self._dispatcher.close)
        self._finalizer.atexit = False  # the dispatcher's own comes before Ray's
        if backend == "auto":
            _warn_without_gpu(places)

    # --- now ---

    def run(self, kernel: Kernel, *arrays: Any, out: Any = None) -> Any:
        """Run a kernel somewhere, and return its result."""
        return self.submit(kernel, *arrays, out=out).result()

    def run_batch(
        self, kernel: Kernel, jobs: Sequence[Sequence[Any]], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order. The first
        job that fails is the error. It waits for room by itself, whatever `when_full` says."""
        kernel, calls, futures = _kernel(kernel), calls_in(jobs, out), list[Future[Any]]()
        try:
            for index, arrays in enumerate(calls):
                target = None if out is None else out[index]
                futures.append(self._submitted(kernel, arrays, target, "block"))
            return [_numbered_result(index, future) for index, future in enumerate(futures)]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    async def run_async(self, kernel: Kernel, *arrays: Any, out: Any = None) -> Any:
        """The same for `await`: the event loop goes on meanwhile, also while all is full."""
        kernel = _kernel(kernel)
        try:
            future = self._submitted(kernel, arrays, out, "raise")
        except QueueFullError:
            if self._when_full == "raise":
                raise
            future = await asyncio.to_thread(self._submitted, kernel, arrays, out, "block")
        return await asyncio.wrap_future(future)

    # --- as an executor ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A kernel on arrays, run when a device is free; `out=` says where the result goes."""
        return self._submitted(_kernel(fn), args, out_in(kwargs), self._when_full)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Results of a kernel on arrays from iterables, in order, as they come.

        `buffersize` calls are under way, or as many as may be in flight; the iterables are read no
        further ahead, so they may be endless. Calls travel together as they wait: `chunksize` is
        the least number under way.
        """
        kernel = _kernel(fn)
        self._check_open()
        check_sizes(chunksize, buffersize)
        admission = self._dispatcher.admission

        def ahead() -> int:
            return buffersize or max(admission.most_calls, chunksize)

        def submit(arrays: tuple[Any, ...]) -> Future[Any]:
            return self._submitted(kernel, arrays, None, "block")

        return Mapped(submit, zip(*iterables, strict=False), ahead, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; have those there are answered, or cancel what was not sent yet, and
        end the actors."""
        self._finalizer.detach()
        self._dispatcher.close(cancel=cancel_futures)
        if wait:
            self._dispatcher.join()

    # --- what it is ---

    def stats(self) -> ClusterStats:
        """What ran where, and what has no answer."""
        admission = self._dispatcher.admission
        return ClusterStats(
            unanswered=admission.calls,
            unanswered_bytes=admission.nbytes,
            resent=self._dispatcher.resent,
            posts=tuple(map(PostStats.of, self._dispatcher.posts)),
        )

    def __repr__(self) -> str:
        state = "shut down" if self._dispatcher.admission.closed else "open"
        places = ", ".join(str(post.place) for post in self._dispatcher.posts)
        return f"<RayExecutor on {places}, {state}>"

    def _check_open(self) -> None:
        if self._dispatcher.admission.closed:
            raise ClosedError("the executor is shut down; open another one")

    def _submitted(
        self, kernel: Kernel, arrays: Sequence[Any], out: Any, when_full: WhenFull
    ) -> Future[Any]:
        self._check_open()
        try:
            job: Job = job_of(kernel, arrays, out)
        except GpuError as error:
            refused: Future[Any] = Future()
            refused.set_exception(error)
            return refused
        # A future's callback runs in the dispatcher, and there would wait for itself.
        self._dispatcher.admission.enter(
            job.nbytes, None if self._dispatcher.is_current() else when_full
        )
        self._dispatcher.put(job)
        return job.future


def _numbered_result(index: int, future: Future[Any]) -> Any:
    try:
        return future.result()
    except GpuError as error:
        # The number goes into a copy: where no device is left, many futures have one error.
        raise numbered(Failure.of(error).error(), index) from None
    except Exception as error:
        raise numbered(error, index) from None


def _kernel(fn: Any) -> Kernel:
    return kernel_in(fn, "a RayExecutor", "Ray's own tasks")


def _warn_without_gpu(places: Sequence[Place]) -> None:
    if places[0].seat.backend == "cpu":
        warnings.warn(
            "no node of the cluster has a GPU or a driver for one: kernels run on CPUs by NumPy",
            RuntimeWarning,
            stacklevel=3,
        )
