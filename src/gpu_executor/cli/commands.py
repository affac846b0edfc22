"""The root command: errors in words, warnings once, Ctrl-C without a traceback."""

from __future__ import annotations

import importlib
import logging
import signal
import warnings
from typing import Any

import click

from gpu_executor.errors import GpuError
from gpu_executor.version import __version__

MODULES = (
    *("bench", "calibrate", "compile_report", "demo", "devices", "doctor", "groth16", "report"),
    *("smoke", "soak", "top", "warm"),
)
"""The modules of the commands, each of which has its command by the same name."""


class CommandGroup(click.Group):
    """A group of commands. An error of this package is one line, without a traceback. Ctrl-C ends
    with 130, where click itself says "Aborted!" and ends with 1. The module of a command is
    imported when the command is asked for: all of them take most of a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [each.replace("_", "-") for each in MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = cmd_name.replace("-", "_")
        if cmd_name not in self.list_commands(ctx):
            return None
        loaded = importlib.import_module(f"gpu_executor.cli.{module}")
        command: click.Command = getattr(loaded, module)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            message, code = "interrupted", 128 + signal.SIGINT
        except GpuError as error:
            message, code = str(error), 1
        except MemoryError as error:
            message, code = f"not enough memory, choose smaller sizes: {error}", 1
        click.echo(f"gpu-executor: {message}", err=True)
        return ctx.exit(code)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpu-executor")
def commands() -> None:
    """A persistent GPU executor for Python.

    GPU_DEVICE selects the device: its index, a prefix of its UUID or a part of its name.
    """


class OnceHandler(logging.Handler):
    """Prints each message of the package's log once: a benchmark opens dozens of backends, and
    each may find the same fault."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self._printed:
            self._printed.add(message)
            click.echo(f"gpu-executor: {message}", err=True)


def run_command() -> int:
    """Run the command that the arguments of the process name, and return its exit code."""
    logging.getLogger("gpu_executor").addHandler(OnceHandler())
    # The handler prints the log, which has these warnings too.
    warnings.filterwarnings("ignore", "falling back to", RuntimeWarning)
    try:
        commands(prog_name="gpu-executor")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
