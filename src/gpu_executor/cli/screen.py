"""What the commands print with: one console, numbers as people read them."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is words and whose others are figures, narrow enough for 80."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def milliseconds(value: float) -> str:
    """Three figures that mean something, from microseconds to seconds."""
    if value < 1:
        return f"{value * 1e3:.0f} us"
    if value < 1_000:
        return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
    return f"{value / 1e3:.2f} s"


def per_second(value: float) -> str:
    """A rate with its prefix."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}/s"
    return f"{value:.0f} /s"


def gibibytes(value: int) -> str:
    """Memory as it is sold."""
    return f"{value / (1 << 30):.1f} GiB"


def elements(count: int) -> str:
    """64, 4 K, 1 M: powers of two as the tables name them."""
    for factor, suffix in ((1 << 20, " M"), (1 << 10, " K")):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{suffix}"
    return f"{count:,}"
