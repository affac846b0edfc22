"""Processes of benchmarks: Ctrl-C in a terminal reaches the parent alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_executor.bench.child_process import hide_interrupts_from_children, run_python

SEND_TO_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"


def test_a_process_is_outside_the_group_of_the_terminal() -> None:
    done = run_python(
        ["-c", "import os; print(os.getpgrp(), os.environ['X'])"], environment={"X": "y"}
    )
    group, value = done.stdout.split()
    assert int(group) != os.getpgrp()
    assert (value, done.returncode) == ("y", 0)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Interrupts raise `KeyboardInterrupt`, also where the tests run in the background and ignore
    them, as a process and its children do under nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_processes_started_meanwhile_get_no_interrupt() -> None:
    with hide_interrupts_from_children():
        hidden = subprocess.run(
            [sys.executable, "-c", SEND_TO_ITSELF], capture_output=True, text=True, check=False
        )
    assert (hidden.stdout, hidden.returncode) == ("alive\n", 0)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    plain = subprocess.run(
        [sys.executable, "-c", SEND_TO_ITSELF], capture_output=True, text=True, check=False
    )
    assert plain.returncode != 0 and "KeyboardInterrupt" in plain.stderr
