"""Spans for OpenTelemetry. Without `opentelemetry-api`, no span is recorded.

A span is created after its job has finished, with the job's start and end times. The caller does
not wait for the span, and a job that passes from thread to thread carries only a context.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.telemetry.spans import SpanAttributes
from gpu_executor.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer, TracerProvider

API_MODULE, PROVIDER_VARIABLE = "opentelemetry.trace", "OTEL_PYTHON_TRACER_PROVIDER"
"""Without the module, no application has set a tracer provider; the variable names one too."""
log = logging.getLogger("gpu_executor.spans")


@dataclass(slots=True)
class TracingApi:
    """The parts of `opentelemetry-api` that are used here, and the tracer once there is one."""

    get_provider: Callable[[], TracerProvider]
    no_provider: type[TracerProvider]
    """The class that `get_provider` returns while no provider is set."""
    get_current: Callable[[], Context]
    trace: Any
    """The module `opentelemetry.trace`."""
    tracer: Tracer | None = None


@functools.cache
def _load_api() -> TracingApi | None:
    try:
        from opentelemetry import context, trace
    except ImportError:
        return None
    try:
        trace.get_tracer_provider()  # sets the provider that the environment names, if any
    except Exception:
        log.warning("no spans will be recorded: the tracer provider failed", exc_info=True)
        return None
    functions = trace.get_tracer_provider, trace.ProxyTracerProvider, context.get_current
    return TracingApi(*functions, trace)


def prepare_tracing() -> None:
    """Import `opentelemetry-api` if the environment names a tracer provider. Otherwise it is used
    once the application has imported it: importing it takes 20 ms, and most have no spans."""
    if os.environ.get(PROVIDER_VARIABLE):
        _load_api()


def get_tracer() -> Tracer | None:
    """The tracer; None while no tracer provider is set, or without `opentelemetry-api`."""
    if API_MODULE not in sys.modules:
        return None
    api = _load_api()
    if api is None or api.tracer is not None:
        return None if api is None else api.tracer
    # A private attribute of opentelemetry-api. Where it is missing, `get_provider` tells, which
    # reads the environment and takes longer. This runs for every call.
    if getattr(api.trace, "_TRACER_PROVIDER", True) is None:
        return None
    provider = api.get_provider()
    # While no provider is set, spans would be dropped. A process sets its provider once,
    # so the tracer is cached.
    if not isinstance(provider, api.no_provider):
        api.tracer = provider.get_tracer("gpu_executor", __version__)
    return api.tracer


def get_current_context() -> Context | None:
    """The current context, the parent of a span that is recorded later; None without a tracer."""
    if get_tracer() is None:
        return None
    api = _load_api()
    return None if api is None else api.get_current()


def record_span(
    tracer: Tracer,
    name: str,
    context: Context | None,
    begun: float,
    ended: float,
    attributes: Callable[[], SpanAttributes],
    error: BaseException | None,
) -> None:
    """Record a span between two times of `perf_counter`.

    `attributes` is called only if the span is sampled.
    """
    now_ns, now = time.time_ns(), perf_counter()
    try:
        span = tracer.start_span(name, context, start_time=now_ns - round((now - begun) * 1e9))
        if span.is_recording():
            span.set_attributes(dict(attributes()))
            _set_status(span, error)
        span.end(now_ns - round((now - ended) * 1e9))
    except Exception:  # from the application's span processor: the job must not fail with it
        log.warning("the span %r was not recorded", name, exc_info=True)


def _set_status(span: Any, error: BaseException | None) -> None:
    from opentelemetry.trace import Status, StatusCode

    if error is None:
        span.set_status(Status(StatusCode.OK))
    else:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
