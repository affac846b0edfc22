"""The one place that depends on private attributes of `concurrent.futures.Future`.

fork() copies a future's lock in the state that it has. Where another thread of the parent holds the
lock at that moment, nobody in the child ever releases it: `done`, `result` and
`concurrent.futures.wait` would block for ever. No public call gives a future a new lock, so its
condition is replaced. CPython 3.11 to 3.14 keep it in `_condition`; a test fails where a release
does not.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any


def renew_lock(future: Future[Any]) -> None:
    """Give a future a lock that is free. Only for a child of fork(), before other threads run."""
    future._condition = threading.Condition()
