"""`gpu-executor top`: rates between two readings, and the view in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import gpu_executor as gx
from gpu_executor.cli import top
from gpu_executor.cli.commands import commands
from gpu_executor.errors import SettingsError
from gpu_executor.telemetry.exporters.scrape import (
    MetricReading,
    compute_activity,
    read_metrics,
)
from gpu_executor.telemetry.stages import STAGES

DEVICE = {"executor": "0", "index": "0", "device": "GPU", "backend": "vulkan"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def make_reading(at: float, calls: float, **more: float) -> MetricReading:
    """A reading of one device; jobs take 40 us, apart from every tenth."""

    def key(**labels: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((DEVICE | labels).items()))

    return MetricReading(
        at,
        {
            "queue_jobs": {(("executor", "0"),): more.get("queue", 0)},
            "device_usable": {key(): more.get("usable", 1)},
            "calls_total": {key(): calls},
            "elements_total": {key(): 64 * calls},
            "busy_seconds_total": {key(): calls / 1_000},
            "stage_seconds_total": {key(stage="compute"): calls / 2_000},
            "job_seconds_bucket": {
                key(le="5e-05"): 0.9 * calls,
                key(le="0.001"): calls,
                key(le="+Inf"): calls,
            },
            "cache_hits_total": {key(cache="slots"): 3},
            "cache_misses_total": {key(cache="slots"): 1},
            "memory_bytes": {
                key(state="idle", holder="slots"): 1024,
                key(state="idle", holder="results"): 2048,
                key(state="in use", holder="arrays"): 4096,
            },
        },
    )


def test_rates_are_differences_over_time() -> None:
    (found,) = compute_activity(make_reading(10, 100), make_reading(12, 500))
    assert (found.calls_per_second, found.elements_per_second) == (200, 12_800)
    assert found.busy == pytest.approx(0.2)
    assert found.stages == {"compute": pytest.approx(0.1)}
    assert (found.median_seconds, found.p99_seconds) == (5e-05, 0.001)
    assert found.hits == {"slots": (3, 1)}
    assert found.memory == {"idle": 3072, "in use": 4096}
    assert found.usable


def test_a_counter_that_restarted_counts_from_zero() -> None:
    (found,) = compute_activity(make_reading(0, 500), make_reading(1, 30))
    assert found.calls_per_second == 30


def test_without_jobs_there_are_no_quantiles() -> None:
    (found,) = compute_activity(make_reading(0, 100), make_reading(1, 100))
    assert (found.median_seconds, found.p99_seconds, found.calls_per_second) == (None, None, 0)


@contextlib.contextmanager
def open_busy_executor() -> Iterator[tuple[gx.GpuExecutor, str]]:
    """An executor that serves metrics while a thread submits jobs."""
    kernel, a = gx.kernels.load("vector_add_u32"), np.arange(1000, dtype=np.uint32)
    stop = threading.Event()
    with gx.GpuExecutor("vulkan") as executor:

        def work() -> None:
            with contextlib.suppress(RuntimeError):  # a test may shut the executor down
                while not stop.is_set():
                    executor.submit(kernel, a, a).result()

        url = executor.serve_metrics().url
        assert url is not None
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield executor, url
        finally:
            stop.set()
            thread.join()


def test_a_running_executor_is_read() -> None:
    with open_busy_executor() as (executor, url):
        before = read_metrics(url)
        calls = executor.stats().devices[0].calls
        while executor.stats().devices[0].calls < calls + 50:
            threading.Event().wait(0.01)
        after = read_metrics(url)
    (found,) = compute_activity(before, after)
    assert found.labels["backend"] == "vulkan"
    assert found.calls_per_second * (after.at - before.at) >= 49
    assert found.elements_per_second == pytest.approx(1000 * found.calls_per_second, rel=0.2)
    assert found.median_seconds is not None and found.p99_seconds is not None
    assert found.stages["compute"] > 0
    assert found.hits["slots"][0] > 0
    assert sum(found.memory.values()) > 0


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self._main, child = pty.openpty()
        environment = os.environ | {"COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_executor.cli", *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            env=environment,
            start_new_session=True,
        )
        os.close(child)
        self.text = ""

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        """Read the screen until a pattern appears."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            left = end - time.monotonic()
            assert left > 0, f"{pattern} did not appear in:\n{self.text}"
            if select.select([self._main], [], [], left)[0]:
                try:
                    read = os.read(self._main, 65536)
                except OSError:  # the command has ended
                    read = b""
                assert read, f"the command ended without {pattern}:\n{self.text}"
                self.text += ESCAPES.sub("", read.decode("utf-8", "replace"))

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)


@pytest.mark.slow
def test_the_view_in_a_terminal_follows_the_executor_until_q() -> None:
    with open_busy_executor() as (executor, url):
        terminal = Terminal("top", url, "--interval", "0.2")
        try:
            terminal.wait_for(r"executor 0: queue \d+ jobs")
            terminal.wait_for(r"0 vulkan +[\d.]+ [KM]? +[\d.]+ [KM]")
            terminal.wait_for(r"Time by stage")
            terminal.wait_for(r"Hits of caches and pools; memory")
            terminal.wait_for(r"slots +memory")
            executor.shutdown(wait=False)
            terminal.wait_for(r"cannot be read")
            terminal.type("x")  # other keys do nothing
            terminal.type("q")
            assert terminal.process.wait(timeout=30) == 0
        finally:
            terminal.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["top", *arguments])


def test_without_a_terminal_the_last_view_is_printed() -> None:
    with open_busy_executor() as (_executor, url):
        shown = run(url.split(":")[2].split("/")[0], "--interval", "0.1", "--count", "2")
    assert shown.exit_code == 0, shown.output
    assert "executor 0: queue" in shown.output and "Time by stage" in shown.output


@pytest.mark.parametrize(
    ("address", "words"),
    [("0", "is not a port"), ("70000", "is not a port"), ("localhost", "neither a port nor a URL")],
)
def test_other_addresses_are_refused(address: str, words: str) -> None:
    refused = run(address)
    assert refused.exit_code == 2
    assert words in refused.output


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("some text {", "does not serve metrics|serves no metrics of a GpuExecutor"),
        ("up 1\n", "serves no metrics of a GpuExecutor"),
    ],
)
def test_other_servers_are_refused(body: str, words: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(SettingsError, match=words):
            read_metrics(f"http://127.0.0.1:{server.server_port}/metrics")
        thread.join()


def test_an_address_that_does_not_answer_is_an_error() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port  # closed again: nobody listens there
    with pytest.raises(SettingsError, match=r"cannot be read: .*serve_metrics"):
        read_metrics(top.make_url(str(port)))


def make_wide_reading(at: float, calls: float, executors: int = 1) -> MetricReading:
    """A reading of executors with large values in every column, all stages and all caches."""
    values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def put(name: str, value: float, **labels: str) -> None:
        values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    for executor in map(str, range(executors)):
        put("queue_jobs", 12_345, executor=executor)
        put("queue_bytes", 123 << 30, executor=executor)
        for index in ("0", "1"):
            device = DEVICE | {"executor": executor, "index": index, "backend": "webgpu"}
            put("device_usable", 0, **device)
            put("reopenings_total", 12, **device)
            put("calls_total", 999_000 * calls, **device)
            put("elements_total", 999e9 * calls, **device)
            put("read_bytes_total", calls * (1020 << 20), **device)
            put("busy_seconds_total", calls, **device)
            put("call_errors_total", 123_456, **device)
            put("retries_total", 123_456, **device)
            for stage in STAGES:
                put("stage_seconds_total", calls, **device, stage=stage)
            for bound in ("0.25", "+Inf"):
                put("job_seconds_bucket", 999_000 * calls, **device, le=bound)
            for cache in ("buckets", "exact sizes", "buffers"):
                put("cache_hits_total", 1, **device, cache=cache)
            for state in ("in use", "idle", "fragments"):
                put("memory_bytes", 1020 << 20, **device, state=state, holder="slots")
    return MetricReading(at, values)


@pytest.mark.parametrize(("executors", "has_stages"), [(1, True), (2, False)])
def test_the_view_fits_a_terminal_of_80_by_24(executors: int, has_stages: bool) -> None:
    before, after = make_wide_reading(0, 0, executors), make_wide_reading(1, 1, executors)
    screen = Console(width=80, height=24, record=True, file=io.StringIO())
    screen.print(top.render("http://gpu-machine.example.org:9400/metrics", before, after, 24))
    lines = [line.rstrip() for line in screen.export_text().splitlines()]
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    assert "…" not in "".join(lines[1:]), "a cell is cut"
    for number in range(executors):
        row = lines[lines.index(f"executor {number}: queue 12,345 jobs, 123 GiB") + 2]
        assert row.split() == [
            *("0", "webgpu", "999", "K", "999", "G", "1020", "MiB", "100%"),
            *("≤250", "ms", "≤250", "ms", "123", "K", "123", "K"),
        ]
    assert "device 1: quarantined, reopened 12x" in shown
    assert ("Time by stage" in shown) == ("Hits of caches" in shown) == has_stages
    assert ("in a higher window" in shown) != has_stages
