"""Output of the commands: one console, JSON, tables and formatted numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import rich
from rich import box
from rich.table import Table

STDOUT = Path("-")
"""The name of the standard output as the file of --json."""
rich.reconfigure(highlight=False)
console = rich.get_console()


def send_text_to_stderr(context: click.Context) -> None:
    """Print everything but JSON to the standard error stream until the command ends."""
    rich.reconfigure(highlight=False, stderr=True)
    context.call_on_close(lambda: rich.reconfigure(highlight=False))


class JsonOutput:
    """What a command writes to the file of --json, or to the standard output for `-`.

    It is written before tables are printed: printing may fail, if the reader of a pipe has gone. If
    writing the file fails, the content is printed instead, and the command ends with exit code 1.
    """

    def __init__(self, path: Path | None, content: Any) -> None:
        self._path, self.failed = path, False
        if path is None:
            return
        text = json.dumps(content, indent=2) + "\n"
        if path == STDOUT:
            click.echo(text, nl=False)
            return
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            self.failed = True
            click.echo(text)
            reason = error.strerror or error
            message = f"gpu-executor: {path} was not written: {reason}; its content is above"
            click.echo(message, err=True)

    def report(self) -> None:
        """Say where the file is, behind the tables; end with exit code 1 if there is none."""
        if self.failed:
            sys.exit(1)
        if self._path not in (None, STDOUT):
            print_text(f"written to {self._path}")


def print_text(text: str) -> None:
    """Print text as it is: long lines are not broken, and brackets are not markup. For names of
    files and devices, and for messages."""
    console.print(text, markup=False, soft_wrap=True)


def make_table(title: str, *columns: str) -> Table:
    """Make a table of at most 80 characters: the first column left-aligned, the others
    right-aligned.
    """
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def format_milliseconds(value: float) -> str:
    """Format with about three significant digits, in us, ms or s."""
    if value < 1:
        return f"{value * 1e3:.0f} us"
    if value < 1_000:
        return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
    return f"{value / 1e3:.2f} s"


def format_rate(value: float) -> str:
    """Format a rate per second with an SI prefix."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= factor:
            return f"{format_digits(value / factor)} {prefix}/s"
    return f"{value:.0f} /s"


def format_digits(value: float) -> str:
    """Format with three significant digits, and whole numbers above: 1020, not 1.02e+03."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def format_gibibytes(value: int) -> str:
    return f"{value / (1 << 30):.1f} GiB"
