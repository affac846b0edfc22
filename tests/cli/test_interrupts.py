"""Ctrl-C ends every command with exit code 130 and without a traceback."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gpu_executor.cli import doctor, smoke
from gpu_executor.cli.commands import OnceHandler, commands

INTERRUPTED_IMPORT = """
import sys
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "gpu_executor.cli.commands":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from gpu_executor.cli import main
main()
"""


def test_an_interrupt_while_modules_load_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupt_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(size: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(smoke, "check_every_path", interrupt)
    monkeypatch.setattr(doctor, "check_every_path", interrupt)
    for command in ("smoke", "doctor"):
        shown = CliRunner().invoke(commands, [command])
        assert shown.exit_code == 130
        assert shown.stderr.splitlines()[-1] == "gpu-executor: interrupted"


@pytest.mark.usefixtures("sigint_handler")
@pytest.mark.parametrize("to_all", [True, False], ids=["by a terminal", "to the process"])
def test_an_interrupt_of_a_soak_run_ends_its_threads(to_all: bool) -> None:
    """The process has threads that call executors, and waits for them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu_executor.cli", "soak", "--minutes", "10", "--seed", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        assert "10 minutes with seed 1" in process.stdout.readline()
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "gpu-executor: interrupted" in stderr


def test_too_little_memory_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(smoke, "check_every_path", refuse)
    shown = CliRunner().invoke(commands, ["smoke"])
    assert shown.exit_code == 1
    assert shown.stderr == (
        "gpu-executor: not enough memory, choose smaller sizes: Unable to allocate 1 TiB\n"
    )


def test_a_message_of_the_log_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("log")
    log.addHandler(OnceHandler())
    for folder in ("a", "b", "a"):
        log.warning("the pipeline cache was not saved in %s", folder)
    log.info("a device was opened")
    assert capsys.readouterr().err.splitlines() == [
        f"gpu-executor: the pipeline cache was not saved in {folder}" for folder in ("a", "b")
    ]
