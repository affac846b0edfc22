"""Figures for Prometheus: read when they are scraped, so that counting costs nothing more.

All executors of a registry go through one collector, since a name may appear once in what is
scraped; the label `executor` tells them apart.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpu_executor.errors import SettingsError
from gpu_executor.telemetry.families import Family, StatsSource
from gpu_executor.telemetry.histogram import Distribution

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class Collector:
    """What a registry asks for the figures of every executor that joined it and still exists."""

    def __init__(self, described: Iterable[Metric]) -> None:
        self._described = list(described)
        self._numbers = itertools.count()
        self._joined: dict[int, weakref.ref[StatsSource]] = {}
        # A scrape must not read an executor whose devices are closed under it: whoever leaves
        # waits for it. It may be the scrape's own thread that drops the last reference.
        self._lock = threading.RLock()

    def join(self, source: StatsSource) -> int:
        """Returns the number by which to leave."""
        with self._lock:
            if any(reference() is source for reference in self._joined.values()):
                raise SettingsError(f"{source!r} is in this registry already")
            number = next(self._numbers)
            self._joined[number] = weakref.ref(source)
            return number

    def leave(self, number: int) -> None:
        with self._lock:
            self._joined.pop(number, None)

    def describe(self) -> list[Metric]:
        """Their names, for those who scrape some of them only."""
        return self._described

    def collect(self) -> Iterator[Metric]:
        merged: dict[str, Metric] = {}
        with self._lock:
            for number, reference in list(self._joined.items()):
                source = reference()
                if source is None:
                    del self._joined[number]
                    continue
                for family in source.stats().families():
                    if family.name not in merged:
                        merged[family.name] = _metric(family)
                    _add(merged[family.name], family, str(number))
        yield from merged.values()


class MetricsServer:
    """The HTTP server of a registry, from prometheus_client, until `close()`."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int) -> None:
        from prometheus_client import start_http_server

        self._server: WSGIServer
        self._server, self._thread = start_http_server(port, address, registry)
        self._thread.name = "gpu-executor metrics"
        self.address = str(self._server.server_address[0])
        self.port = self._server.server_port

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """End the thread and free the port; a second time does nothing."""
        if self._thread is threading.current_thread():
            # Garbage collection may close the server in its own thread, which cannot wait for
            # itself.
            threading.Thread(target=self.close, daemon=True).start()
            return
        # A child of fork() has no such thread. It shares the parent's socket, and closes its own
        # descriptor only.
        if self._thread.is_alive():
            # Without this, the thread notices `shutdown()` only at its next poll, 0.5 s later.
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class ServedMetrics:
    """An executor in a registry, and the server for it if there is one."""

    def __init__(self, collector: Collector, number: int, server: MetricsServer | None) -> None:
        self._collector, self._number, self._server = collector, number, server

    @property
    def address(self) -> str | None:
        return None if self._server is None else self._server.address

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    @property
    def url(self) -> str | None:
        return None if self._server is None else self._server.url

    def close(self) -> None:
        """Be scraped no more; a second time does nothing."""
        self._collector.leave(self._number)
        if self._server is not None:
            self._server.close()


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, Collector] = weakref.WeakKeyDictionary()
_finding = threading.Lock()


def serve_metrics(
    source: StatsSource,
    port: int | None,
    address: str,
    registry: CollectorRegistry | None,
) -> ServedMetrics:
    """Put an executor's figures into a registry, and serve that over HTTP.

    `port` 0 takes a free one; None does too, but starts no server for a registry of the caller's,
    who has one.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise SettingsError(
            f"metrics need prometheus_client: pip install 'gpu-executor[metrics]' ({error})"
        ) from None
    own = CollectorRegistry() if registry is None else registry
    if not isinstance(own, CollectorRegistry):
        found = type(registry).__name__
        raise SettingsError(f"registry= is a CollectorRegistry of prometheus_client, not a {found}")
    collector = _collector_of(own, source)
    number = collector.join(source)
    if registry is not None and port is None:
        return ServedMetrics(collector, number, None)
    try:
        server = MetricsServer(own, address, port or 0)
    except BaseException:
        collector.leave(number)
        raise
    # The server is closed with its source. The collector drops a source that is gone by itself:
    # its lock must not be taken by whichever thread collects garbage.
    weakref.finalize(source, server.close)
    return ServedMetrics(collector, number, server)


def _collector_of(registry: CollectorRegistry, source: StatsSource) -> Collector:
    with _finding:
        collector = _collectors.get(registry)
        if collector is None:
            collector = Collector(map(_metric, source.stats().families()))
            registry.register(collector)
            _collectors[registry] = collector
        return collector


def _metric(family: Family) -> Metric:
    from prometheus_client.core import Metric

    return Metric(family.name.removesuffix("_total"), family.text, family.kind)


def _add(metric: Metric, family: Family, executor: str) -> None:
    names = ("executor", *family.labels)
    for sample in family.samples:
        labels = dict(zip(names, (executor, *sample.labels), strict=True))
        if isinstance(sample.value, Distribution):
            _add_distribution(metric, labels, sample.value)
        else:
            metric.add_sample(family.name, labels, sample.value)


def _add_distribution(metric: Metric, labels: dict[str, str], read: Distribution) -> None:
    """As Prometheus counts: each bound has all values up to it."""
    bounds = [*(repr(float(bound)) for bound in read.bounds), "+Inf"]
    for bound, count in zip(bounds, itertools.accumulate(read.counts), strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_count", labels, read.count)
    metric.add_sample(f"{metric.name}_sum", labels, read.total)
