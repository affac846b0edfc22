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
from gpu_executor.cli.output import format_milliseconds, format_rate, make_table
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
    first, screen = render(url, before, before), _is_terminal()
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
            view.update(render(url, before, after), refresh=True)
            before, shown = after, shown + 1


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


def render(url: str, before: MetricReading, after: MetricReading) -> RenderableType:
    """The view of what happened between two readings."""
    parts: list[RenderableType] = [
        Text(f"gpu-executor top   {url}   {time.strftime('%H:%M:%S')}   {KEYS}", style="bold")
    ]
    devices = list(compute_activity(before, after))
    for number in after.list_executors():
        own = [each for each in devices if each.labels["executor"] == number]
        jobs = after.get("queue_jobs", executor=number)
        waiting = after.get("queue_bytes", executor=number)
        fallback = (
            " (fell back to the CPU)" if after.get("fallbacks_total", executor=number) else ""
        )
        parts.append(
            Text(f"\nexecutor {number}: queue {jobs:,.0f} jobs, {_format_bytes(waiting)}{fallback}")
        )
        parts += [_make_devices_table(own), _make_stages_table(own), _make_memory_table(own)]
    return Group(*parts)


def _render_lost(url: str, error: SettingsError) -> RenderableType:
    head = Text(f"gpu-executor top   {url}   {time.strftime('%H:%M:%S')}   {KEYS}", style="bold")
    return Group(head, Text(f"\n{error}\nThe view goes on when the address answers again."))


def _make_devices_table(devices: list[DeviceActivity]) -> Table:
    table = make_table(
        "",
        *("device", "calls", "elements", "read", "busy", "median", "99th", "errors", "retries"),
    )
    for each in devices:
        table.add_row(
            _name(each),
            format_rate(each.calls_per_second),
            format_rate(each.elements_per_second),
            f"{_format_bytes(each.read_bytes_per_second)}/s",
            f"{each.busy:.0%}",
            _format_seconds(each.median_seconds),
            _format_seconds(each.p99_seconds),
            f"{each.errors:,.0f}",
            f"{each.retries:,.0f}",
        )
    return table


def _make_stages_table(devices: list[DeviceActivity]) -> Table:
    """The shares of the stages in the time since the last reading."""
    stages = list(dict.fromkeys(stage for each in devices for stage in each.stages))
    table = make_table("Time by stage", "device", *stages)
    for each in devices:
        shares = (each.stages.get(stage, 0.0) for stage in stages)
        table.add_row(f"{each.labels['index']}", *(f"{share:.0%}" for share in shares))
    return table


def _make_memory_table(devices: list[DeviceActivity]) -> Table:
    """Hits of caches and pools, and memory by state."""
    caches = list(dict.fromkeys(name for each in devices for name in each.hits))
    states = list(dict.fromkeys(state for each in devices for state in each.memory))
    columns = [*(f"{name}\nhits" for name in caches), *(f"{state}\nmemory" for state in states)]
    table = make_table("Hits of caches and pools; memory", "device", *columns)
    for each in devices:
        table.add_row(
            each.labels["index"],
            *(_format_hits(each.hits.get(name)) for name in caches),
            *(_format_bytes(each.memory.get(state, 0.0)) for state in states),
        )
    return table


def _name(device: DeviceActivity) -> str:
    labels = device.labels
    state = "" if device.usable else ", quarantined"
    reopened = f", reopened {device.reopenings:.0f}x" if device.reopenings else ""
    return f"{labels['index']} {labels['backend']}{state}{reopened}"


def _format_hits(counts: tuple[float, float] | None) -> str:
    if counts is None or not sum(counts):
        return "-"
    return f"{counts[0] / sum(counts):.0%}"


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "more" if seconds == float("inf") else f"≤ {format_milliseconds(seconds * 1e3)}"


def _format_bytes(count: float) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
