"""Metrics over HTTP: addresses and ports, and a clean end of the server."""

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
from gpu_executor.executor.executor_stats import FAMILIES
from gpu_executor.telemetry.exporters.prometheus import MetricsServer
from tests.conftest import RunPython
from tests.support.executors import cpu
from tests.support.scraping import get, list_metric_threads, scrape

__all__ = ["cpu"]  # the fixture

ADD = gx.kernels.load("vector_add_u32")
COUNT = 70
A = np.arange(COUNT, dtype=np.uint32)


def test_the_server_listens_on_the_loopback_address_by_default(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    assert served.address == "127.0.0.1"
    assert served.port is not None
    with pytest.raises(ConnectionRefusedError):  # bound to one address, not to all
        socket.create_connection(("127.0.0.2", served.port), timeout=5)
    everywhere = cpu.serve_metrics(address="0.0.0.0")
    assert everywhere.port is not None
    socket.create_connection(("127.0.0.2", everywhere.port), timeout=5).close()


def test_a_port_can_be_given_and_serves_one_executor(cpu: gx.GpuExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            cpu.serve_metrics(port)
    served = cpu.serve_metrics(port)
    assert served.url == f"http://127.0.0.1:{port}/metrics"
    assert scrape(served).one("calls_total") == 0


def test_the_address_may_be_an_ipv6_address(cpu: gx.GpuExecutor) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    served = cpu.serve_metrics(address="::1")
    assert (served.address, served.url) == ("::1", f"http://[::1]:{served.port}/metrics")
    assert scrape(served).one("calls_total") == 0


def test_a_foreign_address_is_an_error_and_leaves_nothing_registered(cpu: gx.GpuExecutor) -> None:
    registry = CollectorRegistry()
    with pytest.raises(OSError, match="assign requested address"):
        cpu.serve_metrics(0, "192.0.2.1", registry)
    assert list(registry.collect()) == []
    assert list_metric_threads() == []


@pytest.mark.parametrize("how", ["shutdown", "shutdown without waiting", "collected", "closed"])
def test_the_server_ends_with_its_executor(how: str) -> None:
    threads = list_metric_threads()
    executor = gx.GpuExecutor("cpu")
    served = executor.serve_metrics()
    assert len(list_metric_threads()) == len(threads) + 1
    assert scrape(served).one("calls_total") == 0
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
    assert time.perf_counter() - begun < 60  # it does not hang
    assert list_metric_threads() == threads
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(served)
    if how == "closed":
        executor.run(ADD, A, A)
        executor.shutdown()


def test_the_server_can_be_closed_in_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = MetricsServer(CollectorRegistry(), "127.0.0.1", 0)
    (thread,) = list_metric_threads()
    # The base class calls this in the server's thread; garbage collection may close it there too.
    monkeypatch.setattr(server._server, "service_actions", server.close)
    thread.join(10)
    assert not thread.is_alive()
    server.close()


def test_a_garbage_collected_executor_leaves_the_users_registry() -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        executor = gx.GpuExecutor("cpu")
        executor.serve_metrics(registry=registry)
        assert len(list(registry.collect())) == len(FAMILIES)
        del executor
        gc.collect()
        assert list(registry.collect()) == []


def test_scrapes_during_jobs_and_shutdown_do_not_fail(cpu: gx.GpuExecutor) -> None:
    registry, stop = CollectorRegistry(), threading.Event()
    served = cpu.serve_metrics(0, registry=registry)
    failed: list[BaseException] = []

    def scrape_until_stopped() -> None:
        while not stop.is_set():
            try:
                scrape(served)
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=scrape_until_stopped) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with gx.GpuExecutor("vulkan") as executor:
                executor.serve_metrics(registry=registry)
                list(executor.map(ADD, [A] * 20, [A] * 20))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_silent_client_blocks_neither_scrapes_nor_shutdown(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    assert served.port is not None
    with socket.create_connection(("127.0.0.1", served.port)):
        assert scrape(served).one("calls_total") == 0
        begun = time.perf_counter()
        served.close()
        assert time.perf_counter() - begun < 60  # it does not hang


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


def test_the_server_closes_without_free_descriptors_and_after_fork(run_python: RunPython) -> None:
    fork = (
        "child = os.fork()\n"
        "if not child:\n"
        "    served.close()\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "threads = threading.active_count()\n"
        "with urllib.request.urlopen(served.url, timeout=30) as response:\n"
        "    print(response.status, flush=True)\n"
        "while threading.active_count() > threads:\n"  # the handler thread still has a descriptor
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


def test_serve_metrics_after_the_shutdown_is_refused() -> None:
    executor = gx.GpuExecutor("cpu")
    executor.shutdown()
    with pytest.raises(ClosedError):
        executor.serve_metrics()
    assert list_metric_threads() == []
