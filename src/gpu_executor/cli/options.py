"""Options that several commands share: files, devices, finite numbers, counts that fit in memory.

What cannot work is refused here, before anything is opened or measured.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from gpu_executor.cli.output import STDOUT, format_gibibytes, send_text_to_stderr
from gpu_executor.common.files import check_writable
from gpu_executor.common.main_memory import read_main_memory

QUICK_PIPELINES = "GPU_QUICK_PIPELINES"
Command = TypeVar("Command", bound=Callable[..., Any])


def make_json_option(help_text: str) -> Callable[[Command], Command]:
    """The option --json FILE of a command; `-` is the standard output, which then has nothing
    else."""
    return click.option(
        "--json",
        "json_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        callback=_check_json_path,
        help=f"{help_text} - is the standard output; tables then go to standard error.",
    )


def make_output_option(default: str, help_text: str) -> Callable[[Command], Command]:
    """The option -o of a command that writes a page."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_check_path,
        default=Path(default),
        show_default=True,
        help=help_text,
    )


def make_input_argument(name: str) -> Callable[[Command], Command]:
    """An argument with a file that is read. Its parameter has underscores where the name has
    not letters: circuit_zkey for circuit.zkey."""
    return click.argument(
        name.replace(".", "_"),
        metavar=name,
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    )


def make_output_argument(name: str) -> Callable[[Command], Command]:
    """An argument with a file that is written, named as `make_input_argument` does."""
    return click.argument(
        name.replace(".", "_"),
        metavar=name,
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_check_path,
    )


def make_programs_option(help_text: str) -> Callable[[Command], Command]:
    """The option --program COMMAND of a benchmark: programs of the user, each with its
    arguments."""
    return click.option(
        "--program",
        "programs",
        metavar="COMMAND",
        callback=_split_commands,
        multiple=True,
        help=f"{help_text} repeat it for several. docs/benchmarks.md has the protocol.",
    )


def _split_commands(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> list[list[str]]:
    """Programs and their arguments, split as a shell would."""
    return [_split_command(each) for each in texts]


def _split_command(text: str) -> list[str]:
    try:
        command = shlex.split(text, posix=os.name == "posix")
    except ValueError as error:
        raise click.BadParameter(f"{text!r} cannot be split into words: {error}") from None
    if not command or shutil.which(command[0]) is None:
        raise click.BadParameter(
            f"{text!r} does not begin with a program that can be run. A script without an "
            "interpreter in its first line needs one here: 'python script.py'."
        )
    return command


@contextlib.contextmanager
def use_usual_forms() -> Iterator[None]:
    """Let the backends that a benchmark opens compile every pipeline in its usual form at once. A
    quick form would be timed until the usual one is there, and is up to six times slower."""
    if QUICK_PIPELINES in os.environ:
        yield
        return
    os.environ[QUICK_PIPELINES] = "0"  # processes of a benchmark read it too
    try:
        yield
    finally:
        del os.environ[QUICK_PIPELINES]


def make_device_options(command: Command) -> Command:
    """The options --backend and --device of a command that opens an executor."""
    backend = click.option(
        "--backend",
        type=click.Choice(["auto", "vulkan", "webgpu"]),
        default="auto",
        show_default=True,
        help="The interface to the GPU.",
    )
    device = click.option(
        "--device", help="The device, in place of GPU_DEVICE: index, UUID or part of its name."
    )
    return backend(device(command))


def _check_json_path(
    context: click.Context, option: click.Parameter, path: Path | None
) -> Path | None:
    if path == STDOUT:
        send_text_to_stderr(context)
        return path
    return _check_path(context, option, path)


def _check_path(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> Path | None:
    try:
        if path is not None:
            check_writable(path)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror or error}") from None
    return path


class FiniteRange(click.FloatRange):
    """A range of numbers. `nan` is in none, although it is not below the minimum either."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class CountInMemory(click.IntRange):
    """A number of things, 1 at least, that this machine's memory can hold."""

    name = "integer"

    def __init__(self, bytes_each: int) -> None:
        super().__init__(min=1)
        self._bytes_each = bytes_each

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        count = int(super().convert(value, param, ctx))
        needed, there = count * self._bytes_each, read_main_memory()
        if there is not None and needed > there:
            self.fail(
                f"{count:,} would take {format_gibibytes(needed)} of memory; this machine has "
                f"{format_gibibytes(there)}.",
                param,
                ctx,
            )
        return count
