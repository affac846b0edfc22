"""Threads for tests: started together or in the background, and joined with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

THREADS = 8
PATIENCE = 240
"""Seconds to wait before a test fails: enough for a machine that is busy with other work."""


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start `work` in a daemon thread; the list receives its result, or the exception it raises."""
    results: list[Any] = []

    def guarded() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread, results


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work(number)` in 8 threads at once. Raise the first error; a deadlock fails the test."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def guarded(number: int) -> None:
        try:
            start.wait(PATIENCE)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "the threads deadlocked"
