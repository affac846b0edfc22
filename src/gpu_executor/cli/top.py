"""`gpu-executor top`: a live view of a running executor, read from its metrics endpoint."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_executor.cli.options import FiniteRange
from gpu_executor.cli.output import format_digits, format_milliseconds, format_rate
from gpu_executor.errors import SettingsError
from gpu_executor.telemetry.exporters.scrape import (
    DeviceActivity,
    MetricReading,
    compute_activity,
    read_metrics,
)

KEYS = "q quits"


@click.command()
@click.argument("address", metavar="URL_OR_PORT")
@click.option(
    "--interval",
    type=FiniteRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two readings.",
)
@click.option("--count", type=click.IntRange(1), help="End after so many readings.")
def top(address: str, interval: float, count: int | None) -> None:
    """Watch a running executor that serves its metrics.

    `executor.serve_metrics(9400)` serves them; then `gpu-executor top 9400`.
    """
    url = make_url(address)
    before = read_metrics(url)
    console = Console(highlight=False)
    shown = 0
    screen = _is_terminal()
    first = render(url, before, before, console.height if screen else None)
    view = Live(first, console=console, auto_refresh=False, screen=screen)
    with _read_keys() as wait, view:
        while count is None or shown < count:
            if wait(interval):
                return
            try:
                after = read_metrics(url)
            except SettingsError as error:
                view.update(_render_lost(url, error), refresh=True)
                shown += 1
                continue
            height = console.height if screen else None
            view.update(render(url, before, after, height), refresh=True)
            before, shown = after, shown + 1
    if not screen:
        console.print()  # the view does not end its last line


def make_url(address: str) -> str:
    """The URL of a port of this machine, or the given URL."""
    if address.isdecimal():
        if not 0 < int(address) < 1 << 16:
            raise click.BadParameter(f"{address} is not a port; ports are 1 to 65535")
        return f"http://127.0.0.1:{address}/metrics"
    if not address.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"{address!r} is neither a port nor a URL such as http://127.0.0.1:9400/metrics"
        )
    return address


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


class _KeyWaiter:
    """Waits for a key of the terminal, or only for the time if there is no terminal."""

    def __init__(self, keys: bool) -> None:
        self._keys = keys

    def __call__(self, seconds: float) -> bool:
        """Wait; return whether the user wants to quit."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._keys:
                time.sleep(left)
                continue
            ready, _, _ = select.select([sys.stdin], [], [], left)
            if ready:
                # Not by `sys.stdin.read`: it would keep further keys in a buffer that `select`
                # does not see.
                keys = os.read(sys.stdin.fileno(), 64)
                if not keys or b"q" in keys.lower():
                    return True
        return False


@contextlib.contextmanager
def _read_keys() -> Iterator[_KeyWaiter]:
    """Read single keys of the terminal, which is restored afterwards."""
    try:
        import termios
        import tty
    except ImportError:  # Windows: Ctrl+C ends the command
        yield _KeyWaiter(False)
        return
    if not _is_terminal():
        yield _KeyWaiter(False)
        return
    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _KeyWaiter(True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def render(
    url: str, before: MetricReading, after: MetricReading, height: int | None = None
) -> RenderableType:
    """The view of what happened between two readings. If the tables of stages and memory do not fit
    into `height` lines, the view has those of the devices alone."""
    parts: list[RenderableType] = [_make_head(url)]
    brief = [*parts]
    lines = 1
    devices = list(compute_activity(before, after))
    for number in after.list_executors():
        own = [each for each in devices if each.labels["executor"] == number]
        head = Text(f"\n{_describe_executor(after, number)}")
        tables: list[RenderableType] = [_make_devices_table(own), *_describe_states(own)]
        details = (
            Text("\nTime by stage", style="bold"),
            _make_stages_table(own),
            Text("\nHits of caches and pools; memory", style="bold"),
            _make_memory_table(own),
        )
        brief += [head, *tables]
        parts += [head, *tables, *details]
        lines += 2 + (1 + len(own)) + (len(tables) - 1) + (3 + len(own)) + (4 + len(own))
    if height is None or lines <= height:
        return Group(*parts)
    return Group(*brief, Text("\nStages and memory: in a higher window."))


def _make_head(url: str) -> Text:
    head = f"gpu-executor top   {KEYS}   {time.strftime('%H:%M:%S')}   {url}"
    return Text(head, style="bold", no_wrap=True, overflow="ellipsis")


def _render_lost(url: str, error: SettingsError) -> RenderableType:
    return Group(
        _make_head(url), Text(f"\n{error}\nThe view goes on when the address answers again.")
    )


def _describe_executor(reading: MetricReading, number: str) -> str:
    jobs = reading.get("queue_jobs", executor=number)
    waiting = _format_bytes(reading.get("queue_bytes", executor=number))
    fell_back = reading.get("fallbacks_total", executor=number)
    fallback = " (fell back to the CPU)" if fell_back else ""
    return f"executor {number}: queue {jobs:,.0f} jobs, {waiting}{fallback}"


def _make_compact_table(*columns: str) -> Table:
    """A table without lines, which leaves more of a terminal of 80 by 24 to the values."""
    table = Table(header_style="dim", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _make_devices_table(devices: list[DeviceActivity]) -> Table:
    table = _make_compact_table(
        *("device", "calls/s", "elements/s", "read/s", "busy", "median", "99th"),
        *("errors", "retries"),
    )
    for each in devices:
        table.add_row(
            f"{each.labels['index']} {each.labels['backend']}",
            _format_number(each.calls_per_second),
            _format_number(each.elements_per_second),
            _format_bytes(each.read_bytes_per_second),
            f"{each.busy:.0%}",
            _format_seconds(each.median_seconds),
            _format_seconds(each.p99_seconds),
            _format_number(each.errors),
            _format_number(each.retries),
        )
    return table


def _describe_states(devices: list[DeviceActivity]) -> list[Text]:
    """A line for each device that is quarantined or was reopened."""
    lines = []
    for each in devices:
        states = [] if each.usable else ["quarantined"]
        if each.reopenings:
            states.append(f"reopened {each.reopenings:.0f}x")
        if states:
            lines.append(Text(f"device {each.labels['index']}: {', '.join(states)}"))
    return lines


def _make_stages_table(devices: list[DeviceActivity]) -> Table:
    """The shares of the stages in the time since the last reading."""
    stages = list(dict.fromkeys(stage for each in devices for stage in each.stages))
    table = _make_compact_table("device", *stages)
    for each in devices:
        shares = (each.stages.get(stage, 0.0) for stage in stages)
        table.add_row(f"{each.labels['index']}", *(f"{share:.0%}" for share in shares))
    return table


def _make_memory_table(devices: list[DeviceActivity]) -> Table:
    """Hits of caches and pools, and memory by state."""
    caches = list(dict.fromkeys(name for each in devices for name in each.hits))
    states = list(dict.fromkeys(state for each in devices for state in each.memory))
    columns = [*(f"{name}\nhits" for name in caches), *(f"{state}\nmemory" for state in states)]
    table = _make_compact_table("device", *columns)
    for each in devices:
        table.add_row(
            each.labels["index"],
            *(_format_hits(each.hits.get(name)) for name in caches),
            *(_format_bytes(each.memory.get(state, 0.0)) for state in states),
        )
    return table


def _format_number(value: float) -> str:
    """Format with about three significant digits and an SI prefix."""
    return format_rate(value).removesuffix("/s").rstrip()


def _format_hits(counts: tuple[float, float] | None) -> str:
    if counts is None or not sum(counts):
        return "-"
    return f"{counts[0] / sum(counts):.0%}"


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "more" if seconds == float("inf") else f"≤{format_milliseconds(seconds * 1e3)}"


def _format_bytes(count: float) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{format_digits(count / factor)} {unit}"
    return f"{count:.0f} B"
