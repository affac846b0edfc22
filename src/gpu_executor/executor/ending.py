"""The end of the interpreter: executors run what is in line first."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence

from gpu_executor.executor.line import Line
from gpu_executor.executor.worker import Worker, join_all

_ending: weakref.WeakKeyDictionary[Line, Sequence[Worker]] = weakref.WeakKeyDictionary()


def end_with_interpreter(line: Line, workers: Sequence[Worker]) -> None:
    """Run what is in line before the interpreter ends.

    What is registered last is called first: this is behind the finalizers of `weakref`, which would
    close a device that was opened again before the line that needs it.
    """
    if not _ending:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _ending[line] = workers


def _end_all() -> None:
    lines = list(_ending.items())
    for line, _ in lines:
        line.close()
    for _, workers in lines:
        join_all(workers)
