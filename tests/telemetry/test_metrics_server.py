"""Metrics over HTTP: who is served, and that nothing is left when it ends."""

from __future__ import annotations

import gc
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

import gpu_executor as gx
from gpu_executor.errors import ClosedError
from gpu_executor.executor.stats import FAMILIES
from gpu_executor.telemetry.exporters.prometheus import MetricsServer
from tests.conftest import RunPython
from tests.support.executors import cpu
from tests.support.scraping import get, metric_threads, scraped

__all__ = ["cpu"]  # the fixture

ADD = gx.kernels.load("vector_add_u32")
COUNT = 70
A = np.arange(COUNT, dtype=np.uint32)


def test_it_is_for_this_machine_alone_unless_told(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    assert served.address == "127.0.0.1"
    assert served.port is not None
    with pytest.raises(ConnectionRefusedError):  # bound to that address, not to all of them
        socket.create_connection(("127.0.0.2", served.port), timeout=5)
    everywhere = cpu.serve_metrics(address="0.0.0.0")
    assert everywhere.port is not None
    socket.create_connection(("127.0.0.2", everywhere.port), timeout=5).close()


def test_a_port_can_be_named_and_two_cannot_have_one(cpu: gx.GpuExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            cpu.serve_metrics(port)
    served = cpu.serve_metrics(port)
    assert served.url == f"http://127.0.0.1:{port}/metrics"
    assert scraped(served).one("calls_total") == 0


def test_an_address_may_be_of_ipv6(cpu: gx.GpuExecutor) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    served = cpu.serve_metrics(address="::1")
    assert (served.address, served.url) == ("::1", f"http://[::1]:{served.port}/metrics")
    assert scraped(served).one("calls_total") == 0


def test_an_address_of_another_machine_is_an_error_and_leaves_nothing(cpu: gx.GpuExecutor) -> None:
    registry = CollectorRegistry()
    with pytest.raises(OSError, match="assign requested address"):
        cpu.serve_metrics(0, "192.0.2.1", registry)
    assert list(registry.collect()) == []
    assert metric_threads() == []


@pytest.mark.parametrize("how", ["shutdown", "shutdown without waiting", "collected", "closed"])
def test_the_server_is_gone_with_its_executor(how: str) -> None:
    threads = metric_threads()
    executor = gx.GpuExecutor("cpu")
    served = executor.serve_metrics()
    assert len(metric_threads()) == len(threads) + 1
    assert scraped(served).one("calls_total") == 0
    begun = time.perf_counter()
    match how:
        case "shutdown":
            executor.shutdown()
        case "shutdown without waiting":
            executor.shutdown(wait=False)
        case "collected":
            del executor
            gc.collect()
        case "closed":
            served.close()
            served.close()
    assert time.perf_counter() - begun < 5
    assert metric_threads() == threads
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(served)
    if how == "closed":
        executor.run(ADD, A, A)
        executor.shutdown()


def test_the_server_can_be_closed_in_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = MetricsServer(CollectorRegistry(), "127.0.0.1", 0)
    (thread,) = metric_threads()
    # The base class calls this in the server's thread; garbage collection may close it there too.
    monkeypatch.setattr(server._server, "service_actions", server.close)
    thread.join(10)
    assert not thread.is_alive()
    server.close()


def test_an_executor_that_is_gone_leaves_the_users_registry_empty() -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        executor = gx.GpuExecutor("cpu")
        executor.serve_metrics(registry=registry)
        assert len(list(registry.collect())) == len(FAMILIES)
        del executor
        gc.collect()
        assert list(registry.collect()) == []


def test_scrapes_while_it_runs_and_ends_fail_nothing(cpu: gx.GpuExecutor) -> None:
    registry, stop = CollectorRegistry(), threading.Event()
    served = cpu.serve_metrics(0, registry=registry)
    failed: list[BaseException] = []

    def scrape() -> None:
        while not stop.is_set():
            try:
                scraped(served)
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            with gx.GpuExecutor("vulkan") as executor:
                executor.serve_metrics(registry=registry)
                list(executor.map(ADD, [A] * 20, [A] * 20))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_client_that_says_nothing_keeps_nobody(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    assert served.port is not None
    with socket.create_connection(("127.0.0.1", served.port)):
        assert scraped(served).one("calls_total") == 0
        begun = time.perf_counter()
        served.close()
        assert time.perf_counter() - begun < 5


SERVES = """
import os, resource, socket, sys, threading, time, urllib.request
import gpu_executor as gx

executor = gx.GpuExecutor("cpu")
served = executor.serve_metrics()
"""
TAKE_EVERY_DESCRIPTOR = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
"""


def test_it_ends_where_no_descriptor_is_left_and_with_no_child(run_python: RunPython) -> None:
    fork = (
        "child = os.fork()\n"
        "if not child:\n"
        "    served.close()\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "threads = threading.active_count()\n"
        "with urllib.request.urlopen(served.url, timeout=30) as response:\n"
        "    print(response.status, flush=True)\n"
        "while threading.active_count() > threads:\n"  # and so has a descriptor
        "    time.sleep(0.01)\n"
    )
    end = (
        "ending = threading.Thread(target=executor.shutdown, daemon=True)\n"
        "ending.start()\n"
        "ending.join(20)\n"
        "print('hangs' if ending.is_alive() else 'ended', flush=True)\n"
        "os._exit(0)\n"
    )
    done = run_python(SERVES + fork + TAKE_EVERY_DESCRIPTOR + end)
    assert (done.stdout, done.stderr) == ("200\nended\n", "")


def test_what_is_shut_down_serves_nothing() -> None:
    executor = gx.GpuExecutor("cpu")
    executor.shutdown()
    with pytest.raises(ClosedError):
        executor.serve_metrics()
    assert metric_threads() == []
