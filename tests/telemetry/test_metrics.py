"""Metrics: a scrape shows what the executor has run."""

from __future__ import annotations

import re
import time
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import prometheus_client
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import parser as openmetrics

import gpu_executor as gx
from gpu_executor.errors import SettingsError, WrongResultError
from gpu_executor.executor.executor_stats import FAMILIES
from gpu_executor.vulkan.vulkan_stats import Stats
from gpu_executor.webgpu.wgpu_stats import WgpuStats
from tests.conftest import RunPython
from tests.support.backend_faults import corrupt_results, hold_calls, lose
from tests.support.executors import cpu
from tests.support.scraping import Scraped, get, list_metric_threads, scrape

__all__ = ["cpu"]  # the fixture

ADD = gx.kernels.load("vector_add_u32")
COUNT = 70
A = np.arange(COUNT, dtype=np.uint32)
CALL_BYTES = 2 * COUNT * 4
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


def test_counters_match_the_calls(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    begun = time.perf_counter()
    for _ in range(3):
        cpu.run(ADD, A, A)
    for _ in range(2):
        cpu.submit(ADD, A, A).result()
    seconds = time.perf_counter() - begun
    found = scrape(served)
    own = {"executor": "0", "index": "0", "device": "NumPy", "backend": "cpu"}
    assert found.one("calls_total", **own) == 5
    assert found.one("backend_calls_total", **own) == 5
    assert found.one("elements_total", **own) == 5 * COUNT
    assert found.one("read_bytes_total", **own) == 5 * CALL_BYTES
    assert found.one("call_errors_total", **own) == 0
    assert found.one("retries_total", **own) == 0
    assert found.one("device_usable", **own) == 1
    assert 0 < found.one("busy_seconds_total", **own) < seconds
    assert found.one("fallbacks_total", executor="0") == 0
    # Every family is present with its kind, even without samples of these devices.
    assert {each.name: each.type for each in found.families.values()} == {
        family.name.removesuffix("_total"): family.kind for family in FAMILIES.values()
    }


def test_histograms_count_every_job_and_every_batch(
    cpu: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = cpu.serve_metrics()
    with hold_calls(monkeypatch) as waits:
        futures = [cpu.submit(ADD, A, A)]
        assert waits.wait(60)
        futures += [cpu.submit(ADD, A, A) for _ in range(5)]
        found = scrape(served)
        assert found.one("queue_jobs") == 5
        assert found.one("queue_bytes") == 5 * CALL_BYTES
        assert found.one("job_seconds_count") == 0
        time.sleep(0.03)
    wait(futures)
    found = scrape(served)
    assert found.one("queue_jobs") == found.one("queue_bytes") == 0
    # A batch of one call, and a batch of the five that waited for it.
    assert found.one("batch_calls_count") == 2
    assert found.one("batch_calls_sum") == 6
    assert found.one("batch_calls_bucket", le="1.0") == 1
    assert found.one("batch_calls_bucket", le="4.0") == 1
    assert found.one("batch_calls_bucket", le="8.0") == 2
    assert found.one("batches_total") == 1
    # All six had to wait 30 ms.
    assert found.one("job_seconds_count") == found.one("job_seconds_bucket", le="+Inf") == 6
    assert found.one("job_seconds_bucket", le="0.025") == 0
    assert found.one("job_seconds_sum") >= 6 * 0.03
    buckets = list(found.all("job_seconds_bucket").values())
    assert buckets == sorted(buckets)


@pytest.mark.parametrize("way", ["run", "submit"])
def test_retries_reopenings_and_errors_are_counted(
    cpu: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    served = cpu.serve_metrics()
    lose(monkeypatch, times=2)
    result = cpu.run(ADD, A, A) if way == "run" else cpu.submit(ADD, A, A).result()
    np.testing.assert_array_equal(result, A + A)
    with pytest.raises(gx.errors.ArgumentTypeError):
        cpu.run(ADD, A, A.astype(np.float32))
    found = scrape(served)
    assert found.one("retries_total") == found.one("reopenings_total") == 2
    assert found.one("calls_total") == 2
    assert found.one("call_errors_total") == 1
    # The device was reopened twice: the counters of the third backend began at zero.
    assert found.one("backend_calls_total") == 1
    assert found.one("job_seconds_count") == 2


def test_a_device_with_a_wrong_result_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        served = executor.serve_metrics()
        executor.run(ADD, A, A)
        found = scrape(served)
        assert (found.one("checked_total"), found.one("device_usable")) == (COUNT, 1)
        corrupt_results(monkeypatch)
        with pytest.raises(WrongResultError):
            executor.run(ADD, A, A)
        found = scrape(served)
        assert (found.one("checked_total"), found.one("device_usable")) == (2 * COUNT, 0)


def test_vulkan_reports_stages_caches_and_memory() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        served = executor.serve_metrics()
        for _ in range(4):
            executor.run(ADD, A, A)
        found, stats = scrape(served), executor.stats().devices[0].inside
        assert isinstance(stats, Stats)
        assert found.one("path_calls_total", path="host-visible") == 4
        assert found.one("elements_total") == 4 * COUNT
        assert found.one("chunks_total") == 4
        assert found.one("recordings_total") == stats.recordings == 1
        assert found.one("shrunk_total") == 0
        for cache in ("pipelines", "slots", "memory"):
            counted = getattr(stats, cache)
            assert found.one("cache_hits_total", cache=cache) == counted.hits
            assert found.one("cache_misses_total", cache=cache) == counted.misses > 0
        assert found.one("cache_hits_total", cache="slots") == 3
        assert found.one("cache_bytes", cache="memory") == stats.memory.bytes_held > 0
        assert found.one("used_bytes") == stats.memory.bytes_used > 0
        use = stats.memory_use
        assert found.one("memory_bytes", state="idle", holder="slots") == use.idle["slots"] > 0
        assert found.one("idle_limit_bytes") == use.idle_limit > 0
        held = found.all("memory_bytes", device=stats.device, backend="vulkan")
        assert sum(held.values()) == stats.memory.bytes_held
        stages = found.all("stage_seconds_total", device=stats.device, backend="vulkan")
        assert sorted(stages.values()) == pytest.approx(sorted(stats.seconds_by_stage.values()))
        assert found.one("stage_seconds_total", stage="compute") > 0


def test_webgpu_reports_buckets_and_pool() -> None:
    with gx.GpuExecutor("webgpu", settings=gx.Settings()) as executor:
        served = executor.serve_metrics()
        for count in (10, 20, 30):
            executor.run(ADD, A[:count], A[:count])
        found, stats = scrape(served), executor.stats().devices[0].inside
        assert isinstance(stats, WgpuStats)
        assert found.one("elements_total") == 60
        assert found.one("submissions_total") == stats.submissions == 3
        # Three sizes, one bucket, one set.
        assert found.one("cache_misses_total", cache="buckets") == 1
        assert found.one("cache_hits_total", cache="buckets") == 2
        assert found.one("cache_entries", cache="buckets") == 1
        assert found.one("cache_misses_total", cache="buffers") == stats.pool.misses > 0
        assert found.one("used_bytes") == stats.pool.bytes_in_use > 0
        idle = stats.memory_use.idle
        assert found.one("memory_bytes", state="idle", holder="buckets") == idle["buckets"] > 0
        assert found.one("idle_limit_bytes") == stats.memory_use.idle_limit > 0
        for stage in ("pipeline", "upload", "compute", "download"):
            seconds = stats.seconds_by_stage[stage]
            assert found.one("stage_seconds_total", stage=stage) == seconds > 0


def test_devices_of_the_same_name_have_different_labels() -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        served = executor.serve_metrics()
        executor.run(ADD, A, A)
        calls = scrape(served).all("calls_total")
        assert len(calls) == 2
        assert sum(calls.values()) == 1
        assert {value for own in calls for name, value in own if name == "index"} == {"0", "1"}


# --- registries ---


def test_metrics_can_be_added_to_the_users_registry_without_a_server(
    cpu: gx.GpuExecutor,
) -> None:
    registry = CollectorRegistry()
    own = prometheus_client.Counter("requests", "Of the user's.", registry=registry)
    threads = list_metric_threads()
    served = cpu.serve_metrics(registry=registry)
    assert (served.url, served.port, served.address) == (None, None, None)
    assert list_metric_threads() == threads
    own.inc(3)
    cpu.run(ADD, A, A)
    labels = {"executor": "0", "index": "0", "device": "NumPy", "backend": "cpu"}
    assert registry.get_sample_value("gpu_executor_calls_total", labels) == 1
    assert registry.get_sample_value("requests_total") == 3


def test_the_users_registry_is_served_if_a_port_is_given(cpu: gx.GpuExecutor) -> None:
    registry = CollectorRegistry(auto_describe=True)
    prometheus_client.Gauge("own", "Of the user's.", registry=registry).set(7)
    served = cpu.serve_metrics(0, registry=registry)
    assert "own 7.0" in get(served)
    assert scrape(served).one("calls_total") == 0


def test_two_executors_share_a_registry(cpu: gx.GpuExecutor) -> None:
    registry = CollectorRegistry()
    served = cpu.serve_metrics(0, registry=registry)
    cpu.run(ADD, A, A)
    with gx.GpuExecutor("vulkan") as other:
        other.serve_metrics(registry=registry)
        for _ in range(2):
            other.run(ADD, A, A)
        found = scrape(served)
        assert found.one("calls_total", executor="0", backend="cpu") == 1
        assert found.one("calls_total", executor="1", backend="vulkan") == 2
        assert len(found.all("queue_jobs")) == 2
        # OpenMetrics is stricter: unique names, counters that end in _total, ordered buckets.
        text = get(served, **OPENMETRICS)
        families = list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
        assert len(families) == len({each.name for each in families}) == len(FAMILIES)
    found = scrape(served)
    assert found.one("calls_total") == found.one("calls_total", executor="0") == 1


def test_an_executor_cannot_be_added_to_a_registry_twice(cpu: gx.GpuExecutor) -> None:
    registry = CollectorRegistry()
    cpu.serve_metrics(registry=registry)
    threads = list_metric_threads()
    with pytest.raises(SettingsError, match="in this registry already"):
        cpu.serve_metrics(0, registry=registry)
    assert list_metric_threads() == threads


def test_a_scrape_can_select_names(cpu: gx.GpuExecutor) -> None:
    served = cpu.serve_metrics()
    found = Scraped(get(served, "?name[]=gpu_executor_queue_jobs"))
    assert list(found.families) == ["gpu_executor_queue_jobs"]


# --- names and imports ---


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"gpu_executor(_[a-z]+)+", name)
        assert name.endswith("_total") == (family.kind == "counter"), name
        assert family.text.endswith("."), name
    with_units = [name for name in FAMILIES if "bytes" in name or "seconds" in name]
    assert all(re.search(r"_(bytes|seconds)(_total)?$", name) for name in with_units)


def test_the_documentation_lists_every_family() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "telemetry.md").read_text()
    rows = re.findall(r"^\| `gpu_executor_(\w+)` \| (\w+) \|", text, re.MULTILINE)
    assert rows == [
        (name.removeprefix("gpu_executor_"), each.kind) for name, each in FAMILIES.items()
    ]


def test_prometheus_client_is_imported_only_when_it_is_used(run_python: RunPython) -> None:
    script = (
        "import sys, gpu_executor as gx\n"
        "with gx.GpuExecutor('cpu') as ex:\n"
        "    ex.stats()\n"
        "    print([m for m in ('prometheus_client', 'http.server') if m in sys.modules])\n"
    )
    done = run_python(script)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_prometheus_client_the_error_says_what_to_install(run_python: RunPython) -> None:
    script = (
        "import sys, gpu_executor as gx\n"
        "sys.modules['prometheus_client'] = None\n"
        "with gx.GpuExecutor('cpu') as ex:\n"
        "    try:\n"
        "        ex.serve_metrics()\n"
        "    except gx.errors.MissingExtraError as error:\n"
        "        print(error)\n"
    )
    assert "pip install 'gpu-executor[metrics]'" in run_python(script).stdout
