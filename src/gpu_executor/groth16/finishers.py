"""Threads that finish what devices have computed, and the futures of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Finishers(Generic[Result]):
    """Threads that make calls, all of which are made: a call gives back what it holds of a device,
    so its future cannot be cancelled.

    Results are set by a thread of their own. A callback of a future may therefore wait for another
    call to be made, or close what it was made for.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._own = threading.local()
        # A method of this object here would keep it as long as the thread, which ends with it.
        self._results = ThreadPoolExecutor(
            1, f"{name}-results", initializer=setattr, initargs=(self._own, "sets_results", True)
        )

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """The future of a call, which a thread makes."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        _run(self._threads, lambda: self._finish(call, future))
        return future

    def shutdown(self) -> None:
        """Wait until all calls are made, and their results set. In a callback of a future, those of
        later futures are set after it."""
        self._threads.shutdown()
        self._results.shutdown(wait=not getattr(self._own, "sets_results", False))

    def _finish(self, call: Callable[[], Result], future: Future[Result]) -> None:
        try:
            result = call()
        except BaseException as error:
            failure = error
            _run(self._results, lambda: future.set_exception(failure))
        else:
            _run(self._results, lambda: future.set_result(result))


def _run(threads: ThreadPoolExecutor, call: Callable[[], None]) -> None:
    """Make a call in one of the threads, or in this one where no thread can be started, such as
    while Python ends."""
    left = [call]  # a pool that could not start a thread has the call in its queue nevertheless

    def make_once() -> None:
        try:
            own = left.pop()
        except IndexError:
            return
        own()

    try:
        threads.submit(make_once)
    except RuntimeError:
        make_once()
