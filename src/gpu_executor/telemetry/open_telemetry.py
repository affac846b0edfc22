"""Spans of OpenTelemetry, where its API is installed; else nothing happens.

A span is made when what it tells of is over, with the times it began and ended: whoever asked need
not wait for it, and a job that goes from thread to thread carries no more than a context.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpu_executor.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

log = logging.getLogger("gpu_executor.spans")

Attributes = Mapping[str, str | int | float | bool]


def spans_wanted() -> bool:
    """Whether OpenTelemetry is there."""
    return _tracer() is not None


@functools.cache
def _tracer() -> Tracer | None:
    """It follows the provider that is set later, too."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("gpu_executor", __version__)


@functools.cache
def _get_current() -> Callable[[], Context] | None:
    if _tracer() is None:
        return None
    from opentelemetry.context import get_current

    return get_current


def current_context() -> Context | None:
    """What a span that is made later belongs to."""
    get_current = _get_current()
    return None if get_current is None else get_current()


def record_span(
    name: str,
    context: Context | None,
    begun: float,
    ended: float,
    attributes: Callable[[], Attributes],
    error: BaseException | None,
) -> None:
    """A span between two readings of `perf_counter`; attributes are made only where it is kept."""
    tracer = _tracer()
    if tracer is None:
        return
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
