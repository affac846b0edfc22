"""Spans of OpenTelemetry: one for each job, under what was current when it was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import StatusCode

import gpu_executor as gx
from gpu_executor.telemetry.exporters import open_telemetry
from tests.conftest import RunPython
from tests.support.backend_faults import held, lose

ADD = gx.kernels.load("vector_add_u32")
MUL = gx.kernels.load("bls12_381_fq_mul")
COUNT = 70
A = np.arange(COUNT, dtype=np.uint32)
F = np.ones((9, 6), dtype=np.uint64)


class Spans:
    """A provider that keeps all spans, for this package and for tests."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("a test")

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    # A process has one global provider, and only once; a test has its own.
    made = Spans()
    api = open_telemetry._load_api()
    assert api is not None
    monkeypatch.setattr(api, "tracer", made.provider.get_tracer("gpu_executor"))
    yield made
    made.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return {name.removeprefix("gpu_executor."): each for name, each in span.attributes.items()}


def test_a_span_says_what_ran_where(spans: Spans) -> None:
    before = time.time_ns()
    with gx.GpuExecutor("cpu") as executor:
        executor.run(MUL, F, F)
        executor.submit(ADD, A, A).result()
    after = time.time_ns()
    (direct,), (job,) = spans.of("bls12_381_fq_mul"), spans.of("vector_add_u32")
    where = {"device": "NumPy", "backend": "cpu", "calls": 1, "batch_calls": 1, "retries": 0}
    assert attributes(direct) == {**where, "elements": 9, "bytes": 2 * 9 * 48}
    assert attributes(job) == {**where, "elements": COUNT, "bytes": 2 * COUNT * 4}
    for span in (direct, job):
        assert span.parent is None
        assert span.status.status_code is StatusCode.OK
        assert span.start_time is not None
        assert span.end_time is not None
        # Two clocks are read one after the other.
        assert before - 1_000_000 <= span.start_time < span.end_time <= after + 1_000_000


def test_a_job_belongs_to_what_was_current_when_it_was_asked_for(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        with held(monkeypatch):
            futures = []
            for name in ("first", "second"):
                with spans.tracer.start_as_current_span(name):
                    futures.append(executor.submit(ADD, A, A))
            time.sleep(0.02)
        wait(futures)
        with spans.tracer.start_as_current_span("third"):
            executor.run(ADD, A, A)
    jobs = sorted(spans.of("vector_add_u32"), key=lambda span: span.start_time or 0)
    for name, job in zip(("first", "second", "third"), jobs, strict=True):
        (asker,) = spans.of(name)
        assert job.parent is not None
        assert asker.context is not None
        assert job.context is not None
        assert job.parent.span_id == asker.context.span_id
        assert job.context.trace_id == asker.context.trace_id
    # From asking on, and not from when the device came free.
    assert all(span.end_time - span.start_time >= 20_000_000 for span in jobs[:2])  # type: ignore[operator]


def test_jobs_that_were_run_together_say_so(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor("cpu") as executor:
        with held(monkeypatch) as waits:
            futures = [executor.submit(MUL, F, F)]
            assert waits.wait(60)
            futures += [executor.submit(ADD, A, A) for _ in range(4)]
        wait(futures)
        results = list(executor.map(ADD, [A] * 3, [A] * 3))
    assert len(results) == 3
    told = [attributes(span) for span in spans.of("vector_add_u32")]
    assert [(each["calls"], each["batch_calls"]) for each in told] == [(1, 4)] * 4 + [(3, 3)]
    assert told[-1]["elements"] == 3 * COUNT


def test_parts_of_a_job_that_devices_share_are_spans_of_their_own(spans: Spans) -> None:
    with (
        gx.GpuExecutor("vulkan", devices=[0, 0]) as executor,
        spans.tracer.start_as_current_span("asker") as asker,
    ):
        executor.run_batch(ADD, [(A, A)] * 40)
    parts = spans.of("vector_add_u32")
    assert sum(attributes(span)["calls"] for span in parts) == 40
    assert sum(attributes(span)["elements"] for span in parts) == 40 * COUNT
    assert sum(attributes(span)["bytes"] for span in parts) == 40 * 2 * COUNT * 4
    parents = {span.parent.span_id for span in parts if span.parent is not None}
    assert parents == {asker.get_span_context().span_id}


@pytest.mark.parametrize("way", ["run", "submit"])
def test_retries_are_those_of_the_job(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        for times in (2, 0):
            lose(monkeypatch, times=times)
            if way == "run":
                executor.run(ADD, A, A)
            else:
                executor.submit(ADD, A, A).result()
    retries = [attributes(span)["retries"] for span in spans.of("vector_add_u32")]
    assert retries == [2, 0]


@pytest.mark.parametrize("way", ["run", "submit"])
def test_an_error_is_the_spans_status(spans: Spans, way: str) -> None:
    with gx.GpuExecutor("cpu") as executor, pytest.raises(gx.errors.ArgumentTypeError) as raised:
        if way == "run":
            executor.run(ADD, A, A.astype(np.float32))
        else:
            executor.submit(ADD, A, A.astype(np.float32)).result()
    (span,) = spans.of("vector_add_u32")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == f"ArgumentTypeError: {raised.value}"
    (event,) = span.events
    assert event.name == "exception"


def test_a_processor_that_fails_costs_no_job(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("full")

    spans.provider.add_span_processor(Failing())
    with gx.GpuExecutor("cpu") as executor:
        for _ in range(2):
            np.testing.assert_array_equal(executor.submit(ADD, A, A).result(), A + A)
            np.testing.assert_array_equal(executor.run(ADD, A, A), A + A)
    warned = [each for each in caplog.records if each.name == "gpu_executor.spans"]
    assert [each.getMessage() for each in warned] == [
        "the span 'vector_add_u32' was not recorded"
    ] * 4


GLOBAL = """
import numpy as np, gpu_executor as gx
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
kernel, a = gx.kernels.load("vector_add_u32"), np.arange(5, dtype=np.uint32)
with gx.GpuExecutor("cpu") as ex:
    ex.run(kernel, a, a)  # nobody wants it yet
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    ex.run(kernel, a, a)
    ex.submit(kernel, a, a).result()
print([(s.name, s.instrumentation_scope.name) for s in exporter.get_finished_spans()])
"""


def test_the_global_provider_is_used_from_when_it_is_set(run_python: RunPython) -> None:
    done = run_python(GLOBAL)
    assert done.stderr == ""
    assert done.stdout == f"{[('vector_add_u32', 'gpu_executor')] * 2}\n"


WITHOUT = """
import sys, numpy as np
sys.modules["opentelemetry"] = None
import gpu_executor as gx
kernel, a = gx.kernels.load("vector_add_u32"), np.arange(5, dtype=np.uint32)
with gx.GpuExecutor("cpu") as ex:
    print(ex.run(kernel, a, a), ex.submit(kernel, a, a).result())
"""


def test_without_the_package_nothing_happens(run_python: RunPython) -> None:
    done = run_python(WITHOUT)
    assert (done.stdout, done.stderr) == ("[0 2 4 6 8] [0 2 4 6 8]\n", "")


def test_importing_the_package_imports_nothing_of_it(run_python: RunPython) -> None:
    script = "import sys, gpu_executor; print('opentelemetry' in sys.modules)"
    assert run_python(script).stdout == "False\n"


def test_a_span_that_is_not_kept_is_not_described() -> None:
    described: list[str] = []

    def describe() -> dict[str, str]:
        described.append("now")
        return {}

    now = time.perf_counter()
    for sampler, times in ((ALWAYS_OFF, 0), (ALWAYS_ON, 1)):
        tracer = TracerProvider(sampler=sampler).get_tracer("a test")
        open_telemetry.record_span(tracer, "a kernel", None, now, now, describe, None)
        assert len(described) == times


def test_no_tracer_is_asked_before_a_provider_is_set() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert open_telemetry.get_tracer() is None
