"""Calls under way: closing waits for them, and turns later ones away."""

from __future__ import annotations

import threading

from gpu_executor.errors import ClosedError


class InUse:
    """A call is a `with` around its work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            if self._closed:
                raise ClosedError("the executor is closed; open another one")
            self._calls += 1

    def __exit__(self, *_exception: object) -> None:
        with self._changed:
            self._calls -= 1
            self._changed.notify_all()

    def end(self) -> bool:
        """Return when no call is under way; whether this was the first to end it."""
        with self._changed:
            first, self._closed = not self._closed, True
            while self._calls:
                self._changed.wait()
        return first
