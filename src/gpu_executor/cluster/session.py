"""Ray's runtime in this process: the first executor may start it, and then the last executor stops
it."""

from __future__ import annotations

import threading

import ray


class RaySession:
    """Counts the executors that use Ray in this process.

    If Ray was initialized before the first executor, it is never shut down from here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: str | None = None
        """Ray's worker ID of this process, if Ray was initialized here."""
        self._users = 0

    def acquire(self, address: str | None) -> None:
        """Initialize Ray if it is not initialized; each call needs a matching `release`."""
        with self._lock:
            if not ray.is_initialized():
                ray.init(address=address, include_dashboard=False)
                self._started, self._users = _get_worker_id(), 0
            self._users += 1

    def release(self) -> None:
        """Shut Ray down, if `acquire` initialized it and no other executor uses it."""
        with self._lock:
            self._users -= 1
            # The user may have shut Ray down meanwhile, and initialized it again.
            started_here = ray.is_initialized() and self._started == _get_worker_id()
            if started_here and self._users == 0:
                ray.shutdown()


def _get_worker_id() -> str:
    """Return Ray's ID of this process, which changes each time Ray is initialized."""
    worker_id: str = ray.get_runtime_context().get_worker_id()
    return worker_id


RAY_SESSION = RaySession()
