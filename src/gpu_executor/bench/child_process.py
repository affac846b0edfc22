"""Processes that benchmarks start: Ctrl-C in a terminal is a matter of the parent alone.

A terminal sends the signal to children too, which would print tracebacks of their own.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence


def run_python(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and return what it printed. If the parent is interrupted, the
    process is killed."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )


@contextlib.contextmanager
def hide_interrupts_from_children() -> Iterator[None]:
    """Processes that are started meanwhile never get the signal; this process gets it later."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
