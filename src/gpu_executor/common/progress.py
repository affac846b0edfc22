"""A progress bar for calls that take seconds, where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TypeVar

DELAY_SECONDS = 1.0
"""Calls that take less have no progress bar."""

Item = TypeVar("Item")


def show_progress(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items. After `DELAY_SECONDS` a progress bar appears on the standard error stream,
    if that is a terminal. The bar is gone at the end."""
    begun = monotonic()
    for number, item in enumerate(items):
        if monotonic() - begun >= DELAY_SECONDS and _is_watched():
            yield from _show_bar(items, number, what)
            return
        yield item


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _show_bar(items: Sequence[Item], first: int, what: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import Progress

    # Other threads may print: their streams stay as they are.
    with Progress(
        console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        task = progress.add_task(what, total=len(items), completed=first)
        for item in items[first:]:
            yield item
            progress.advance(task)
