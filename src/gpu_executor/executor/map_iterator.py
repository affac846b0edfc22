"""Results of a `map`: calls go out in batches, results come back one by one."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import ClosedError, GpuError
from gpu_executor.executor.job_queue import MOST_GATHERED
from gpu_executor.executor.jobs import Arrays, SharedJob, check_map_sizes


@dataclass(frozen=True, slots=True)
class MapSizes:
    """How far a `map` goes ahead."""

    batch: int
    """Calls in a batch."""
    batches: int
    """That are in flight."""
    calls: int
    """That are submitted and not given out."""


def choose_map_sizes(chunksize: int, buffersize: int | None, devices: int) -> MapSizes:
    """Two batches for each device while a third is given out, or as many calls as asked."""
    check_map_sizes(chunksize, buffersize)
    size = MOST_GATHERED if chunksize == 1 else chunksize
    if buffersize is None:
        return MapSizes(size, 2 * devices, (2 * devices + 1) * size)
    size = min(size, max(buffersize // 2, 1) if chunksize == 1 else buffersize)
    return MapSizes(size, buffersize // size, buffersize)


class MapIterator(Iterator[Any]):
    """Reads the iterables no further ahead than its sizes say.

    An error comes where its call's result would; one of the iterables themselves, or a refusal to
    take more calls, when the results before it are given out. After that there are no more.
    """

    def __init__(
        self,
        submit: Callable[[Sequence[Arrays]], SharedJob],
        calls: Iterator[Arrays],
        sizes: MapSizes,
        timeout: float | None,
    ) -> None:
        self._jobs: deque[SharedJob] = deque()
        self._ready: deque[Any] = deque()
        """Outcomes of the batch that is being given out."""
        self._out = 0
        """Calls that were submitted and not given out."""
        self._submit, self._calls = submit, calls
        self._sizes = sizes
        self._end = None if timeout is None else time.monotonic() + timeout
        self._stopped_by: BaseException | None = None
        """What will be raised behind the last result."""
        self._fill()

    def __next__(self) -> Any:
        if not self._ready:
            self._wait()
        outcome = self._ready.popleft()
        self._out -= 1
        if isinstance(outcome, BaseException):
            self.close()
            try:
                raise outcome
            finally:
                del outcome  # it leads here, and would lead to itself
        self._fill()
        return outcome

    def close(self) -> None:
        """Cancel what is in line, and give no more."""
        for job in self._jobs:
            job.future.cancel()
        self._jobs.clear()
        self._ready.clear()
        self._calls, self._stopped_by = iter(()), None

    def __del__(self) -> None:
        self.close()

    def _wait(self) -> None:
        """Until the next batch is done; raises where there is none."""
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
                raise error  # that of the whole: in a child of fork(), nobody has run it
        except BaseException:
            self.close()  # the time is over, or the batch was cancelled
            raise
        finally:
            error = None
        self._jobs.popleft()
        self._ready.extend(job.outcomes)

    def _fill(self) -> None:
        sizes = self._sizes
        while (
            self._stopped_by is None
            and len(self._jobs) < sizes.batches
            and self._out + sizes.batch <= sizes.calls
        ):
            calls: list[Arrays] = []
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
                if type(error) is ClosedError:  # a ForkedError says enough
                    said = "the executor was shut down before the map's end"
                    self._stopped_by = ClosedError(said)
                return
            self._jobs.append(job)
            self._out += len(calls)
