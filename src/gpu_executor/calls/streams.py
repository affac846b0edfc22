"""Streams of jobs: what the streams of all backends share, and the stream of a backend that runs
one job after the other."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from gpu_executor.calls.arguments import iterate
from gpu_executor.calls.call import iterate_params
from gpu_executor.errors import ArgumentTypeError, GpuError

_END = object()


class StreamJob(NamedTuple):
    """One job of a stream, as the caller's iterables yield it."""

    number: int
    """Its place in the stream, from 0."""
    arrays: Any
    out: Any
    """The array or tuple of arrays for the result; None for new arrays."""
    params: Any


def iterate_jobs(
    jobs: Iterable[Any], out: Iterable[Any] | None, params: Any
) -> Iterator[StreamJob]:
    """The jobs of a stream, read one at a time. Refuses at once what cannot be iterated, and a job
    without an `out` or an entry of `params` when it comes."""
    arrays = iterate("jobs", jobs)
    outs = itertools.repeat(None) if out is None else iterate("out", out)
    return _combine(arrays, outs, iterate_params(params))


def _combine(
    jobs: Iterator[Any], outs: Iterator[Any], params: Iterator[Any]
) -> Iterator[StreamJob]:
    for index, arrays in enumerate(jobs):
        target, own = next(outs, _END), next(params, _END)
        if own is _END:
            raise ArgumentTypeError(
                f"job {index}: params has no entry for it; a list has one for each job"
            )
        if target is _END:
            raise ArgumentTypeError(
                f"job {index}: out has no array for it; out must yield one for each job"
            )
        yield StreamJob(index, arrays, target, own)


def check_not_running(results: Generator[Any, None, None]) -> None:
    """Raise `GpuError` if a thread is inside a stream's generator. Python raises `ValueError` then,
    which may come from a user's iterable too."""
    if inspect.getgeneratorstate(results) == inspect.GEN_RUNNING:
        raise GpuError(
            "the stream is being read, in another thread or by a call inside the iterable of "
            "its jobs or of out; read and close it in one place"
        ) from None


class GeneratorStream(Iterator[Any]):
    """An iterator over the results that a generator yields, in order."""

    def __init__(self, results: Generator[Any, None, None]) -> None:
        self._results = results

    def __next__(self) -> Any:
        try:
            return next(self._results)
        except ValueError:
            check_not_running(self._results)
            raise

    def close(self) -> None:
        """End the stream."""
        try:
            self._results.close()
        except ValueError:
            check_not_running(self._results)
            raise


class SequentialStream(GeneratorStream):
    """The stream of a backend that reads a job when its result is asked for: none runs ahead, and
    an open stream holds nothing of the backend."""

    def __init__(
        self,
        run: Callable[[StreamJob], Any],
        jobs: Iterable[Any],
        out: Iterable[Any] | None,
        params: Any,
    ) -> None:
        """`run` checks and runs one job."""
        super().__init__(_run_each(run, iterate_jobs(jobs, out, params)))


def _run_each(
    run: Callable[[StreamJob], Any], jobs: Iterator[StreamJob]
) -> Generator[Any, None, None]:
    for job in jobs:
        yield run(job)
