"""Admission: no more calls without an answer than the actors were allowed."""

from __future__ import annotations

import threading

from gpu_executor.errors import ClosedError, QueueFullError
from gpu_executor.settings import WhenFull


class Admission:
    """Safe from several threads."""

    def __init__(self) -> None:
        self.most_calls = self._most_bytes = 0
        # Reentrant: an executor may be collected, and so closed, in the middle of anything.
        self._room = threading.Condition(threading.RLock())
        self.closed = False
        self.calls = 0
        self.nbytes = 0

    def allow(self, most_calls: int, most_bytes: int) -> None:
        """From now on; who is in already stays."""
        with self._room:
            self.most_calls, self._most_bytes = most_calls, most_bytes
            self._room.notify_all()

    def enter(self, nbytes: int, when_full: WhenFull | None) -> None:
        """Count one call more when there is room for it, or, with None, in any case."""
        with self._room:
            while not (self.closed or when_full is None or self._fits(nbytes)):
                if when_full == "raise":
                    raise QueueFullError(
                        f"{self.calls:,} calls of {self.nbytes:,} bytes have no answer yet, and "
                        f"one more of {nbytes:,} would be over the {self.most_calls:,} calls "
                        f"or {self._most_bytes:,} bytes that may be in flight"
                    )
                self._room.wait()
            if self.closed:
                raise ClosedError("the executor is shut down; open another one")
            self.calls += 1
            self.nbytes += nbytes

    def leave(self, nbytes: int) -> None:
        """A call has its answer."""
        with self._room:
            self.calls -= 1
            self.nbytes -= nbytes
            self._room.notify_all()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._room:
            self.closed = True
            self._room.notify_all()

    def _fits(self, nbytes: int) -> bool:
        """One call may always enter, however large."""
        if self.calls == 0:
            return True
        return self.calls < self.most_calls and self.nbytes + nbytes <= self._most_bytes
