"""Spans of OpenTelemetry, where its API is installed; else nothing happens.

A span is made when what it tells of is over, with the times it began and ended: whoever asked need
not wait for it, and a job that goes from thread to thread carries no more than a context.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpu_executor.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer, TracerProvider

log = logging.getLogger("gpu_executor.spans")

Attributes = Mapping[str, str | int | float | bool]


@dataclass(slots=True)
class Api:
    """What is used of the package."""

    get_provider: Callable[[], TracerProvider]
    no_provider: type[TracerProvider]
    """What it gives before there is one."""
    get_current: Callable[[], Context]
    may_be_set: Callable[[], bool]
    """Whether it is worth asking for the provider, which looks into the environment each time."""
    tracer: Tracer | None = None


@functools.cache
def _api() -> Api | None:
    try:
        from opentelemetry import context, trace
    except ImportError:
        return None
    try:
        trace.get_tracer_provider()  # sets the one that the environment names, if it does
    except Exception:
        log.warning("there will be no spans", exc_info=True)
        return None

    def may_be_set() -> bool:  # what the package keeps by itself, if it still does so there
        return getattr(trace, "_TRACER_PROVIDER", True) is not None

    asked = trace.get_tracer_provider, trace.ProxyTracerProvider, context.get_current
    return Api(*asked, may_be_set)


def tracer() -> Tracer | None:
    """Who makes spans; None while the package is not there, or no provider is set."""
    api = _api()
    if api is None or api.tracer is not None:
        return None if api is None else api.tracer
    if not api.may_be_set():
        return None
    provider = api.get_provider()
    # Before it, spans would be made for nobody; a process sets its provider once.
    if not isinstance(provider, api.no_provider):
        api.tracer = provider.get_tracer("gpu_executor", __version__)
    return api.tracer


def current_context() -> Context | None:
    """What a span that is made later belongs to; None while nobody makes any."""
    api = _api()
    return None if api is None or tracer() is None else api.get_current()


def record_span(
    tracer: Tracer,
    name: str,
    context: Context | None,
    begun: float,
    ended: float,
    attributes: Callable[[], Attributes],
    error: BaseException | None,
) -> None:
    """A span between two readings of `perf_counter`; attributes are made only where it is kept."""
    now_ns, now = time.time_ns(), perf_counter()
    try:
        span = tracer.start_span(name, context, start_time=now_ns - round((now - begun) * 1e9))
        if span.is_recording():
            span.set_attributes(dict(attributes()))
            _set_status(span, error)
        span.end(now_ns - round((now - ended) * 1e9))
    except Exception:  # in somebody's processor; jobs go on
        log.warning("a span was not recorded", exc_info=True)


def _set_status(span: Any, error: BaseException | None) -> None:
    from opentelemetry.trace import Status, StatusCode

    if error is None:
        span.set_status(Status(StatusCode.OK))
    else:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
