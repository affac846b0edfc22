"""Output of the commands: one console, tables, a progress bar and formatted numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gpu_executor.files import check_writable

console = Console(highlight=False)
Item = TypeVar("Item")
Command = TypeVar("Command", bound=Callable[..., Any])


def check_output_path(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> Path | None:
    """Refuse a file that cannot be written before anything is measured for it."""
    try:
        if path is not None:
            check_writable(path)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def make_json_option(help_text: str) -> Callable[[Command], Command]:
    """The option --json of a command that writes what it found to a file."""
    return click.option(
        "--json",
        "json_file",
        type=click.Path(path_type=Path),
        callback=check_output_path,
        help=help_text,
    )


class JsonFile:
    """What a command writes to the file of --json.

    The file is written before tables are printed: printing may fail, if the reader of a pipe has
    gone. If writing fails, the content is printed instead, and the command ends with exit code 1.
    """

    def __init__(self, path: Path | None, content: Mapping[str, Any]) -> None:
        self._path, self.failed = path, False
        if path is None:
            return
        text = json.dumps(content, indent=2) + "\n"
        try:
            path.write_text(text)
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
        if self._path is not None:
            console.print(f"written to {self._path}")


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


def show_progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items and show a progress bar."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            progress.advance(task)
            yield item


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
            return f"{value / factor:.3g} {prefix}/s"
    return f"{value:.0f} /s"


def format_gibibytes(value: int) -> str:
    return f"{value / (1 << 30):.1f} GiB"


def format_count(count: int) -> str:
    """Format multiples of 2^10 and 2^20 as 4 K or 1 M, other counts in full."""
    for factor, suffix in ((1 << 20, " M"), (1 << 10, " K")):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{suffix}"
    return f"{count:,}"
