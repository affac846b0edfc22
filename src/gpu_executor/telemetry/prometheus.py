"""Figures for Prometheus: read when they are scraped, so that counting costs nothing more.

All executors of a registry go through one collector, since a name may appear once in what is
scraped; the label `executor` tells them apart.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpu_executor.errors import SettingsError
from gpu_executor.telemetry.families import Counts, Family
from gpu_executor.telemetry.histogram import Distribution
from gpu_executor.telemetry.http_server import HttpServer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


class Collector:
    """What a registry asks for the figures of every executor that joined it and still exists."""

    def __init__(self, described: Iterable[Metric]) -> None:
        self._described = list(described)
        self._numbers = itertools.count()
        self._joined: dict[int, weakref.ref[Counts]] = {}
        # A scrape must not read an executor whose devices are closed under it: whoever leaves
        # waits for it. It may be the scrape's own thread that drops the last reference.
        self._lock = threading.RLock()

    def join(self, source: Counts) -> int:
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


class ServedMetrics:
    """An executor in a registry, and the server for it if there is one."""

    def __init__(self, collector: Collector, source: Counts, server: HttpServer | None) -> None:
        self._collector, self._server = collector, server
        self._number = collector.join(source)
        if server is not None:
            # Of a source that is gone the collector knows by itself, and its lock is not for
            # whatever thread collects garbage.
            weakref.finalize(source, server.close)

    @property
    def address(self) -> str | None:
        return None if self._server is None else self._server.address

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    @property
    def url(self) -> str | None:
        return None if self._server is None else f"{self._server.url}/metrics"

    def close(self) -> None:
        """Be scraped no more; a second time does nothing."""
        self._collector.leave(self._number)
        if self._server is not None:
            self._server.close()


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, Collector] = weakref.WeakKeyDictionary()
_finding = threading.Lock()


def serve_metrics(
    source: Counts,
    port: int | None,
    address: str,
    registry: CollectorRegistry | None,
) -> ServedMetrics:
    """Put an executor's figures into a registry, and serve that over HTTP.

    `port` 0 takes a free one; None does too, but starts no server for a registry of the caller's,
    who has one.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise SettingsError(
            f"metrics need prometheus_client: pip install 'gpu-executor[metrics]' ({error})"
        ) from None
    own = CollectorRegistry() if registry is None else registry
    if not isinstance(own, CollectorRegistry):
        found = type(registry).__name__
        raise SettingsError(f"registry= is a CollectorRegistry of prometheus_client, not a {found}")
    collector = _collector_of(own, source)
    server = None
    if registry is None or port is not None:
        server = HttpServer(make_wsgi_app(own), address, port or 0)
    try:
        return ServedMetrics(collector, source, server)
    except BaseException:
        if server is not None:
            server.close()
        raise


def _collector_of(registry: CollectorRegistry, source: Counts) -> Collector:
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
