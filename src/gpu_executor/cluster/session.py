"""Ray in this process: started by the first executor that finds none, ended by the last one."""

from __future__ import annotations

import threading

import ray


class Session:
    """Whose Ray it is. One that was there already is left as it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: str | None = None
        """What Ray calls this process, if it came into the cluster here."""
        self._holders = 0

    def hold(self, address: str | None) -> None:
        """Make sure that Ray is there, until `release`."""
        with self._lock:
            if not ray.is_initialized():
                ray.init(address=address, include_dashboard=False)
                self._started, self._holders = _process(), 0
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            # The caller may have ended it meanwhile, and begun another.
            ours = ray.is_initialized() and self._started == _process()
            if ours and self._holders == 0:
                ray.shutdown()


def _process() -> str:
    """Another one each time that Ray is initialised."""
    number: str = ray.get_runtime_context().get_worker_id()
    return number


SESSION = Session()
