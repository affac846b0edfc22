"""Callbacks of futures that are answered together: called when all of them have their answers, so
that one may wait for another; and what they raise is for the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

log = logging.getLogger("gpu_executor.executor")
as_the_base_class = logging.getLogger("concurrent.futures")
Callback = Callable[[Future[Any]], object]
Waiting = list[tuple[Future[Any], Sequence[Callback]]]


class _Held(threading.local):
    """Where this thread's callbacks wait, while it gives answers."""

    waiting: Waiting | None = None


_held = _Held()


def hold() -> tuple[Waiting, Waiting | None]:
    """From now on this thread's callbacks wait; what `let_go` is given then."""
    before = _held.waiting
    waiting = _held.waiting = []
    return waiting, before


def let_go(waiting: Waiting, before: Waiting | None) -> None:
    """All answers are given."""
    _held.waiting = before
    interrupted: KeyboardInterrupt | None = None
    for future, callbacks in waiting:
        for callback in callbacks:
            try:
                callback(future)
            except KeyboardInterrupt as error:  # the others have theirs first
                interrupted = error
            except Exception:
                as_the_base_class.exception("exception calling callback for %r", future)
            except BaseException:  # sys.exit(), perhaps: it is not for the thread that ran the job
                log.critical("a job was answered, and its callback raised this", exc_info=True)
    if interrupted is not None:
        try:
            raise interrupted
        finally:
            del interrupted


def call(future: Future[Any], callbacks: Sequence[Callback]) -> None:
    """Those of a future that has its answer, now or later."""
    if not callbacks:
        return
    if _held.waiting is None:
        let_go([(future, callbacks)], None)
    else:
        _held.waiting.append((future, callbacks))
