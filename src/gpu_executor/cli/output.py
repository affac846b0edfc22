"""Output of the commands: one console, tables, a progress bar and formatted numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

console = Console(highlight=False)
Item = TypeVar("Item")


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
