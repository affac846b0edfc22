"""Results of a `map`: in order, as they come, with so many calls ahead of the reader."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

Submit = Callable[[tuple[Any, ...]], "Future[Any]"]


class Mapped(Iterator[Any]):
    """An error comes where its call's result would; one of the iterables themselves, or a refusal
    to take more calls, behind the results before it. After that there are no more."""

    def __init__(
        self,
        submit: Submit,
        calls: Iterator[tuple[Any, ...]],
        ahead: Callable[[], int],
        timeout: float | None,
    ) -> None:
        self._submit, self._calls, self._ahead = submit, calls, ahead
        self._end = None if timeout is None else time.monotonic() + timeout
        self._futures: deque[Future[Any]] = deque()
        self._stopped_by: BaseException | None = None
        """What will be raised behind the last result."""
        self._fill()

    def __next__(self) -> Any:
        if not self._futures:
            stopped_by, self._stopped_by = self._stopped_by, None
            raise stopped_by or StopIteration
        left = None if self._end is None else self._end - time.monotonic()
        try:
            result = self._futures[0].result(left)
        except BaseException:
            self.close()
            raise
        self._futures.popleft()
        self._fill()
        return result

    def close(self) -> None:
        """Cancel what was not sent yet, and give no more."""
        for future in self._futures:
            future.cancel()
        self._futures.clear()
        self._calls, self._stopped_by = iter(()), None

    def __del__(self) -> None:
        self.close()

    def _fill(self) -> None:
        ahead = self._ahead()  # other devices may have come, or some gone
        try:
            for arrays in itertools.islice(self._calls, max(ahead - len(self._futures), 0)):
                self._futures.append(self._submit(arrays))
        except Exception as error:
            self._stopped_by = error
        if len(self._futures) < ahead:
            self._calls = iter(())  # asked again, the longer of two would be read on
