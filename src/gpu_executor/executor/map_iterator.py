"""The iterator that `map` returns: calls are submitted in batches, results come one by one."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ClosedError, GpuError
from gpu_executor.executor.job_queue import MAX_BATCH_CALLS
from gpu_executor.executor.jobs import CallArguments, SharedJob, add_index


@dataclass(frozen=True, slots=True)
class MapSizes:
    """How far a `map` reads ahead."""

    batch: int
    """Calls in a batch."""
    batches: int
    """Batches in flight."""
    calls: int
    """Calls that are submitted and whose results are not consumed."""


def choose_map_sizes(chunksize: int, buffersize: int | None, devices: int) -> MapSizes:
    """Two batches for each device while a third is consumed, or `buffersize` calls."""
    size = MAX_BATCH_CALLS if chunksize == 1 else chunksize
    if buffersize is None:
        return MapSizes(size, 2 * devices, (2 * devices + 1) * size)
    size = min(size, max(buffersize // 2, 1) if chunksize == 1 else buffersize)
    return MapSizes(size, buffersize // size, buffersize)


STREAM_BATCH = 4
"""Jobs in a batch of a stream. With one device, a stream reads at most twelve jobs ahead, so that
`out` may yield the same arrays again soon."""


def choose_stream_sizes(devices: int) -> MapSizes:
    """Two batches for each device while a third is consumed."""
    return MapSizes(STREAM_BATCH, 2 * devices, (2 * devices + 1) * STREAM_BATCH)


class MapIterator(Iterator[Any]):
    """An iterator over results that reads its iterables ahead as far as its sizes say.

    The exception of a call is raised in place of its result, and names the index of the call. An
    exception of the iterables, or of the submission, is raised after the results of all earlier
    calls. Either ends the iteration.
    """

    def __init__(
        self,
        submit: Callable[[Sequence[CallArguments]], SharedJob],
        calls: Iterator[CallArguments],
        sizes: MapSizes,
        timeout: float | None,
        *,
        is_stream: bool = False,
    ) -> None:
        self._jobs: deque[SharedJob] = deque()
        self._ready: deque[Any] = deque()
        """Outcomes of the batch that is being consumed."""
        self._unconsumed = 0
        """Calls that are submitted and whose results are not consumed."""
        self._submit, self._calls = submit, calls
        self._sizes = sizes
        self._is_stream, self._consumed = is_stream, 0
        self._end = None if timeout is None else time.monotonic() + timeout
        self._stopped_by: BaseException | None = None
        """The exception that is raised after the last result."""
        self._fill()

    def __next__(self) -> Any:
        if not self._ready:
            self._wait()
        outcome = self._ready.popleft()
        self._unconsumed -= 1
        self._consumed += 1
        if isinstance(outcome, BaseException):
            self.close()
            try:
                raise add_index(outcome, self._consumed - 1)
            finally:
                del outcome  # Break the exception -> traceback -> frame reference cycle.
        self._fill()
        return outcome

    def close(self) -> None:
        """Cancel the queued calls and end the iteration."""
        for job in self._jobs:
            job.future.cancel()
        self._jobs.clear()
        self._ready.clear()
        self._calls, self._stopped_by = iter(()), None

    def __del__(self) -> None:
        self.close()

    def _wait(self) -> None:
        """Wait for the next batch. Without one, raise the final exception or `StopIteration`."""
        if not self._jobs:
            stopped_by = self._stopped_by
            self.close()
            try:
                raise stopped_by or StopIteration
            finally:
                del stopped_by
        job = self._jobs[0]
        try:
            error = job.future.exception(
                None if self._end is None else self._end - time.monotonic()
            )
            if error is not None and not job.outcomes:
                raise error  # of the whole batch: in a child of fork() no thread runs it
        except BaseException:
            self.close()  # after the timeout, or after the batch was cancelled
            raise
        finally:
            error = None
        self._jobs.popleft()
        self._ready.extend(job.outcomes)

    def _fill(self) -> None:
        """Submit batches until enough calls are in flight."""
        sizes = self._sizes
        while (
            self._stopped_by is None
            and len(self._jobs) < sizes.batches
            and self._unconsumed + sizes.batch <= sizes.calls
        ):
            calls: list[CallArguments] = []
            try:
                calls.extend(itertools.islice(self._calls, sizes.batch))
            except Exception as error:
                self._stopped_by = error
            if len(calls) < sizes.batch:
                self._calls = iter(())
            if not calls:
                return
            try:
                job = self._submit(calls)
            except GpuError as error:
                self._stopped_by = error
                # Not of a stream, and not a ForkedError, whose message is specific.
                if type(error) is ClosedError and not self._is_stream:
                    self._stopped_by = ClosedError("the executor was shut down during a map")
                return
            self._jobs.append(job)
            self._unconsumed += len(calls)
