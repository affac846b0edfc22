"""Private attributes of `concurrent.futures.Future`, used nowhere else.

fork() copies a future's lock in its current state. If another thread of the parent holds the lock
at that moment, no thread in the child ever releases it: `done`, `result` and
`concurrent.futures.wait` would block for ever. No public call gives a future a new lock, so its
condition is replaced. CPython 3.11 to 3.14 keep the condition in `_condition`; a test fails on a
release that does not.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any


def renew_lock(future: Future[Any]) -> None:
    """Give a future a new, free lock. Only for a child of fork(), before other threads run."""
    future._condition = threading.Condition()
