"""Progress of long work: bars on a terminal, elsewhere a line on standard error every few seconds.

The lines say in a log that the command is alive and how far it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from gpu_executor.cli.output import console

INTERVAL_SECONDS = 15.0
"""The time between two lines where there is no terminal. Work that takes less has none."""
Item = TypeVar("Item")


class ProgressView(ABC):
    """Shows tasks within tasks: how many of their steps are done."""

    @abstractmethod
    def begin(self, what: str, total: int | None = None) -> int:
        """Show a task of `total` steps, or of unknown length; returns its number."""

    @abstractmethod
    def update(self, task: int, done: float, what: str | None = None) -> None:
        """Set the number of steps that are done, and the description if it changed."""

    @abstractmethod
    def end(self, task: int) -> None: ...

    def watch(self, items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
        """Yield the items, as a task."""
        task = self.begin(what, total)
        try:
            for done, item in enumerate(items, 1):
                self.update(task, done)
                yield item
        finally:
            self.end(task)


class BarView(ProgressView):
    """Bars on a terminal, which are gone at the end."""

    def __init__(self, progress: RichProgress) -> None:
        self._progress = progress
        self._totals: dict[int, int | None] = {}

    def begin(self, what: str, total: int | None = None) -> int:
        task = self._progress.add_task(what, total=total, steps=_format_steps(0, total))
        self._totals[task] = total
        return task

    def update(self, task: int, done: float, what: str | None = None) -> None:
        steps = _format_steps(done, self._totals[task])
        self._progress.update(TaskID(task), completed=done, description=what, steps=steps)

    def end(self, task: int) -> None:
        self._progress.remove_task(TaskID(task))


class LineView(ProgressView):
    """A line with all tasks every `INTERVAL_SECONDS`, printed by a thread of its own: a step may
    take minutes."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[str, float, int | None]] = {}
        self._numbers = 0
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_lines, name="progress", daemon=True)
        self._thread.start()

    def begin(self, what: str, total: int | None = None) -> int:
        with self._lock:
            self._numbers += 1
            self._tasks[self._numbers] = what, 0, total
            return self._numbers

    def update(self, task: int, done: float, what: str | None = None) -> None:
        with self._lock:
            before, _, total = self._tasks[task]
            self._tasks[task] = what or before, done, total

    def end(self, task: int) -> None:
        with self._lock:
            del self._tasks[task]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _print_lines(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS):
            with self._lock:
                tasks = list(self._tasks.values())
            parts = [f"{what} {_format_steps(done, total)}".strip() for what, done, total in tasks]
            seconds = time.monotonic() - self._begun
            with contextlib.suppress(OSError, ValueError):  # nobody reads the stream any more
                click.echo(f"{seconds:.0f} s: {', '.join(parts)}", err=True)


@contextlib.contextmanager
def open_progress() -> Iterator[ProgressView]:
    """Bars on the terminal of the standard output, or else of the standard error stream; lines if
    neither is a terminal."""
    stderr = Console(stderr=True)
    if console.is_interactive or stderr.is_interactive:
        on = console if console.is_interactive else stderr
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[steps]}")
        # Text for a file must not be printed on the terminal of the bars.
        with RichProgress(
            *columns, TimeElapsedColumn(), console=on, transient=True, redirect_stdout=on is console
        ) as progress:
            yield BarView(progress)
        return
    lines = LineView()
    try:
        yield lines
    finally:
        lines.close()


def show_progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items and show how many were made."""
    with open_progress() as view:
        yield from view.watch(items, total, what)


@contextlib.contextmanager
def show_work(what: str) -> Iterator[None]:
    """Show that work of unknown length goes on."""
    with open_progress() as view:
        view.begin(what)
        yield


def _format_steps(done: float, total: float | None) -> str:
    return "" if total is None else f"{done:.0f} of {total:.0f}"
