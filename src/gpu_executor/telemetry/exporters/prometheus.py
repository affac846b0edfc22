"""Metrics for Prometheus. Values are read at a scrape, so they cost nothing between scrapes.

A metric name may appear only once in a scrape. All executors of a registry therefore share one
collector, and the label `executor` distinguishes them.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpu_executor.errors import MissingExtraError, SettingsError
from gpu_executor.telemetry.families import Family, StatsSource
from gpu_executor.telemetry.histogram import Distribution

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class Collector:
    """The collector of one registry: reads the statistics of every executor that was added and
    still exists."""

    def __init__(self, descriptions: Iterable[Metric]) -> None:
        self._descriptions = list(descriptions)
        self._numbers = itertools.count()
        self._sources: dict[int, weakref.ref[StatsSource]] = {}
        # `remove` waits for a running scrape: a scrape must not read an executor whose devices
        # are being closed. Reentrant, since the scrape's own thread may drop the last reference
        # to an executor.
        self._lock = threading.RLock()

    def add(self, source: StatsSource) -> int:
        """Add an executor, and return its number, for `remove`."""
        with self._lock:
            if any(reference() is source for reference in self._sources.values()):
                raise SettingsError(f"{source!r} is in this registry already")
            number = next(self._numbers)
            self._sources[number] = weakref.ref(source)
            return number

    def remove(self, number: int) -> None:
        """Remove an executor. A second call does nothing."""
        with self._lock:
            self._sources.pop(number, None)

    def describe(self) -> list[Metric]:
        """The metrics without samples, which a registry needs for a scrape of selected names."""
        return self._descriptions

    def collect(self) -> Iterator[Metric]:
        """The metrics of all executors."""
        merged: dict[str, Metric] = {}
        with self._lock:
            for number, reference in list(self._sources.items()):
                source = reference()
                if source is None:
                    del self._sources[number]
                    continue
                for family in source.stats().families():
                    if family.name not in merged:
                        merged[family.name] = _make_metric(family)
                    _add_samples(merged[family.name], family, str(number))
        yield from merged.values()


class MetricsServer:
    """The HTTP server of prometheus_client for one registry, in a thread of its own."""

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
        """Stop the thread and free the port. A second call does nothing."""
        if self._thread is threading.current_thread():
            # Garbage collection may call this in the server's own thread, which cannot join
            # itself.
            threading.Thread(target=self.close, daemon=True).start()
            return
        # After fork() the thread does not exist in the child. The child shares the parent's socket
        # and closes only its own file descriptor.
        if self._thread.is_alive():
            # Without this, the thread notices `shutdown()` only at its next poll, 0.5 s later.
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class ServedMetrics:
    """An executor's place in a registry, and the HTTP server unless the caller serves the
    registry."""

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
        """Remove the executor from the registry and stop the server. A second call does nothing."""
        self._collector.remove(self._number)
        if self._server is not None:
            self._server.close()


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, Collector] = weakref.WeakKeyDictionary()
_collectors_lock = threading.Lock()


def serve_metrics(
    source: StatsSource,
    port: int | None,
    address: str,
    registry: CollectorRegistry | None,
) -> ServedMetrics:
    """Add an executor to a registry, and serve the registry over HTTP.

    Port 0 selects a free port. `port=None` selects a free port too, but with a `registry` of the
    caller no server is started: the caller serves that registry.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise MissingExtraError(
            "serve_metrics", "prometheus_client", "metrics", str(error)
        ) from None
    served_registry = CollectorRegistry() if registry is None else registry
    if not isinstance(served_registry, CollectorRegistry):
        found = type(registry).__name__
        raise SettingsError(
            f"registry= must be a CollectorRegistry of prometheus_client, not {found}"
        )
    if port is not None and (not isinstance(port, int) or not 0 <= port < 1 << 16):
        raise SettingsError(f"port is {port!r}; it must be a number from 0 to 65535, or None")
    if not isinstance(address, str):
        raise SettingsError(f"address is {address!r}; it must be a string, such as '127.0.0.1'")
    collector = _get_collector(served_registry, source)
    number = collector.add(source)
    if registry is not None and port is None:
        return ServedMetrics(collector, number, None)
    try:
        server = MetricsServer(served_registry, address, port or 0)
    except BaseException:
        collector.remove(number)
        raise
    # The server is closed when its source is garbage-collected. The collector is not notified: it
    # notices the dead weak reference, and its lock must not be taken in a finalizer.
    weakref.finalize(source, server.close)
    return ServedMetrics(collector, number, server)


def _get_collector(registry: CollectorRegistry, source: StatsSource) -> Collector:
    with _collectors_lock:
        collector = _collectors.get(registry)
        if collector is None:
            collector = Collector(map(_make_metric, source.stats().families()))
            registry.register(collector)
            _collectors[registry] = collector
        return collector


def _make_metric(family: Family) -> Metric:
    from prometheus_client.core import Metric

    return Metric(family.name.removesuffix("_total"), family.text, family.kind)


def _add_samples(metric: Metric, family: Family, executor: str) -> None:
    names = ("executor", *family.labels)
    for sample in family.samples:
        labels = dict(zip(names, (executor, *sample.labels), strict=True))
        if isinstance(sample.value, Distribution):
            _add_distribution(metric, labels, sample.value)
        else:
            metric.add_sample(family.name, labels, sample.value)


def _add_distribution(metric: Metric, labels: dict[str, str], distribution: Distribution) -> None:
    """Add a histogram. The buckets of Prometheus are cumulative: each counts all values up to its
    bound."""
    bounds = [*(repr(float(bound)) for bound in distribution.bounds), "+Inf"]
    for bound, count in zip(bounds, itertools.accumulate(distribution.counts), strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_count", labels, distribution.count)
    metric.add_sample(f"{metric.name}_sum", labels, distribution.total)
