"""OpenTelemetry spans: one for each job, below the span that was current at the submission."""

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
from tests.support.backend_faults import hold_calls, lose
from tests.support.contract_kernels import ramp

ADD = gx.kernels.load("vector_add_u32")
MUL = gx.kernels.load("bls12_381_fq_mont_mul")
COUNT = 70
A = np.arange(COUNT, dtype=np.uint32)
F = np.ones((9, 6), dtype=np.uint64)


class Spans:
    """A tracer provider that keeps all spans, for the package and for the tests."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("a test")

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    # The global provider can be set only once in a process: each test uses its own.
    made = Spans()
    api = open_telemetry._load_api()
    assert api is not None
    monkeypatch.setattr(api, "tracer", made.provider.get_tracer("gpu_executor"))
    yield made
    made.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return {name.removeprefix("gpu_executor."): each for name, each in span.attributes.items()}


def test_a_span_has_the_attributes_of_its_job(spans: Spans) -> None:
    before = time.time_ns()
    with gx.GpuExecutor("cpu") as executor:
        executor.run(MUL, F, F)
        executor.submit(ADD, A, A).result()
    after = time.time_ns()
    (direct,), (job,) = spans.of("bls12_381_fq_mont_mul"), spans.of("vector_add_u32")
    where = {"device": "NumPy", "backend": "cpu", "calls": 1, "batch_calls": 1, "retries": 0}
    assert attributes(direct) == {**where, "elements": 9, "bytes": 2 * 9 * 48}
    assert attributes(job) == {**where, "elements": COUNT, "bytes": 2 * COUNT * 4}
    for span in (direct, job):
        assert span.parent is None
        assert span.status.status_code is StatusCode.OK
        assert span.start_time is not None
        assert span.end_time is not None
        # The two clocks are not read at the same instant.
        assert before - 1_000_000 <= span.start_time < span.end_time <= after + 1_000_000


def test_a_span_counts_the_elements_of_kernels_whose_first_argument_is_an_output(
    spans: Spans,
) -> None:
    spread = gx.Kernel.from_wgsl(
        "",
        buffers=[("out", ("u4", (6,))), "in u4"],
        reference=lambda x: np.repeat(x, 6).reshape(-1, 6),
        name="spread",
    )
    with gx.GpuExecutor("cpu") as executor:
        executor.run(spread, A)
        executor.submit(ramp(), params=(3,), out_shape=(5, 4)).result()
        with pytest.raises(gx.GpuError):
            executor.run(ramp(), params=(3,))
    (first,), (second, failed) = spans.of("spread"), spans.of("ramp")
    assert (attributes(first)["elements"], attributes(first)["bytes"]) == (COUNT, 4 * COUNT)
    assert (attributes(second)["elements"], attributes(second)["bytes"]) == (20, 0)
    assert attributes(failed)["elements"] == 0


def test_the_parent_of_a_span_is_the_current_span_at_the_submission(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        with hold_calls(monkeypatch):
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
    # From the submission, not from the time the device was idle.
    assert all(span.end_time - span.start_time >= 20_000_000 for span in jobs[:2])  # type: ignore[operator]


def test_spans_of_a_batch_have_its_number_of_calls(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        with hold_calls(monkeypatch) as waits:
            futures = [executor.submit(MUL, F, F)]
            assert waits.wait(60)
            futures += [executor.submit(ADD, A, A) for _ in range(4)]
        wait(futures)
        results = list(executor.map(ADD, [A] * 3, [A] * 3))
    assert len(results) == 3
    found = [attributes(span) for span in spans.of("vector_add_u32")]
    assert [(each["calls"], each["batch_calls"]) for each in found] == [(1, 4)] * 4 + [(3, 3)]
    assert found[-1]["elements"] == 3 * COUNT


def test_each_part_of_a_shared_job_has_a_span(spans: Spans) -> None:
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
def test_a_span_counts_the_retries_of_its_job(
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
def test_a_failed_job_sets_the_status_of_its_span(spans: Spans, way: str) -> None:
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


def test_a_failing_span_processor_fails_no_job(
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
    ex.run(kernel, a, a)  # no provider yet
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    ex.run(kernel, a, a)
    ex.submit(kernel, a, a).result()
print([(s.name, s.instrumentation_scope.name) for s in exporter.get_finished_spans()])
"""


def test_the_global_provider_is_used_once_it_is_set(run_python: RunPython) -> None:
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


def test_without_opentelemetry_no_span_is_recorded(run_python: RunPython) -> None:
    done = run_python(WITHOUT)
    assert (done.stdout, done.stderr) == ("[0 2 4 6 8] [0 2 4 6 8]\n", "")


def test_import_gpu_executor_does_not_import_opentelemetry(run_python: RunPython) -> None:
    script = "import sys, gpu_executor; print('opentelemetry' in sys.modules)"
    assert run_python(script).stdout == "False\n"


def test_attributes_of_an_unsampled_span_are_not_computed() -> None:
    described: list[str] = []

    def describe() -> dict[str, str]:
        described.append("now")
        return {}

    now = time.perf_counter()
    for sampler, times in ((ALWAYS_OFF, 0), (ALWAYS_ON, 1)):
        tracer = TracerProvider(sampler=sampler).get_tracer("a test")
        open_telemetry.record_span(tracer, "a kernel", None, now, now, describe, None)
        assert len(described) == times


def test_a_provider_that_the_environment_names_is_loaded_when_a_device_opens(
    run_python: RunPython,
) -> None:
    script = (
        "import sys, gpu_executor as gx\n"
        "with gx.GpuExecutor('cpu'):\n    print('opentelemetry.trace' in sys.modules)"
    )
    named = "default_tracer_provider"
    assert run_python(script, OTEL_PYTHON_TRACER_PROVIDER=named).stdout == "True\n"
    assert run_python(script).stdout == "False\n"


def test_there_is_no_tracer_before_a_provider_is_set() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert open_telemetry.get_tracer() is None
