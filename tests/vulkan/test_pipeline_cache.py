"""Pipelines that are compiled by several threads, in the background, and in two forms."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels import modules
from gpu_executor.vulkan import pipeline_cache
from gpu_executor.vulkan.disk_cache import PipelineFiles
from gpu_executor.vulkan.pipeline import Pipeline, make_pipeline
from gpu_executor.vulkan.pipeline_cache import PipelineCache, PipelineRequest
from gpu_executor.vulkan.session import Session
from tests.support.curves_under_test import OVER_MERSENNE31
from tests.support.device_arrays import get_device_memory
from tests.support.narrow_devices import open_described_gpu

ADD_U32, ADD_F32 = (gx.kernels.load(f"vector_add_{each}") for each in ("u32", "f32"))
CURVE = OVER_MERSENNE31
TIMEOUT = 60


@pytest.fixture
def cache(session: Session) -> Iterator[PipelineCache]:
    device = session.resources.device
    made = PipelineCache(device, PipelineFiles(device, None))
    yield made
    made.close()


class SlowCompiler:
    """Compilations that wait until the test lets them go on, by the digest of the kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.compiled: list[tuple[str, bool]] = []
        """Digests of kernels, and whether the form was the quick one."""
        self._held: dict[tuple[str, bool], threading.Event] = {}
        self._make = make_pipeline
        monkeypatch.setattr(pipeline_cache, "make_pipeline", self._make_slowly)

    def hold(self, kernel: gx.Kernel, *, quick: bool = False) -> threading.Event:
        """Compilations of the kernel wait for this event."""
        return self._held.setdefault((kernel.digest, quick), threading.Event())

    def _make_slowly(self, device: Any, code: Any, files: Any) -> Pipeline:
        form = code.kernel.digest, code.is_quick
        self.compiled.append(form)
        self.begun.release()
        if form in self._held:
            assert self._held[form].wait(TIMEOUT)
        return self._make(device, code, files)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> SlowCompiler:
    return SlowCompiler(monkeypatch)


def run_in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    return thread, results


def test_a_compilation_holds_up_no_other_pipeline(
    cache: PipelineCache, compiler: SlowCompiler
) -> None:
    go_on = compiler.hold(ADD_F32)
    thread, slow = run_in_thread(lambda: cache.acquire(ADD_F32, 64, 1))
    assert compiler.begun.acquire(timeout=TIMEOUT)
    assert cache.acquire(ADD_U32, 64, 1) is cache.acquire(ADD_U32, 64, 1)
    assert not slow
    go_on.set()
    thread.join(TIMEOUT)
    assert slow[0].key[0] == ADD_F32.digest


def test_a_pipeline_is_compiled_once_for_all_threads_that_wait(
    cache: PipelineCache, compiler: SlowCompiler
) -> None:
    go_on = compiler.hold(ADD_F32)
    threads = [run_in_thread(lambda: cache.acquire(ADD_F32, 64, 1)) for _ in range(4)]
    assert compiler.begun.acquire(timeout=TIMEOUT)
    go_on.set()
    for thread, _ in threads:
        thread.join(TIMEOUT)
    assert len({id(found[0]) for _, found in threads}) == 1
    assert (cache.stats().misses, cache.stats().hits, len(compiler.compiled)) == (1, 3, 1)
    assert threads[0][1][0].users == 4


def test_a_thread_that_fails_leaves_the_pipeline_to_the_others(
    cache: PipelineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fail_once(*arguments: Any) -> Pipeline:
        monkeypatch.setattr(pipeline_cache, "make_pipeline", make_pipeline)
        begun.set()
        assert go_on.wait(TIMEOUT)
        raise gx.OutOfMemoryError("no memory for this one")

    def acquire() -> Any:
        try:
            return cache.acquire(ADD_U32, 64, 1)
        except gx.OutOfMemoryError:
            return "failed"

    monkeypatch.setattr(pipeline_cache, "make_pipeline", fail_once)
    first, failed = run_in_thread(acquire)
    assert begun.wait(TIMEOUT)
    second, made = run_in_thread(acquire)
    go_on.set()
    first.join(TIMEOUT)
    second.join(TIMEOUT)
    assert failed == ["failed"]
    assert isinstance(made[0], Pipeline)


def test_pipelines_are_compiled_ahead(cache: PipelineCache, compiler: SlowCompiler) -> None:
    requests = [PipelineRequest(each, 64, 1) for each in (ADD_U32, ADD_F32, ADD_U32)]
    left: list[int] = []
    cache.compile_ahead(requests)
    cache.wait(left.append)
    assert left[-1] == 0
    assert left == sorted(left, reverse=True)
    cache.compile_ahead(requests)
    cache.wait()
    assert len(compiler.compiled) == 2
    assert cache.acquire(ADD_U32, 64, 1, params_in_buffer=False).users == 1
    assert (cache.stats().misses, cache.stats().hits) == (2, 1)


def test_what_cannot_be_compiled_ahead_raises_where_it_is_needed(cache: PipelineCache) -> None:
    cache.compile_ahead([PipelineRequest(ADD_U32, 1 << 20, 1)])
    cache.wait()
    with pytest.raises(gx.GpuError, match="work-group"):
        cache.acquire(ADD_U32, 1 << 20, 1)


def test_close_waits_for_what_has_begun_and_drops_the_rest(
    session: Session, compiler: SlowCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_cache, "MAX_COMPILE_THREADS", 1)
    device, go_on = session.resources.device, compiler.hold(ADD_F32)
    cache = PipelineCache(device, PipelineFiles(device, None))
    cache.compile_ahead([PipelineRequest(each, 64, 1) for each in (ADD_F32, ADD_U32)])
    assert compiler.begun.acquire(timeout=TIMEOUT)
    thread, closed = run_in_thread(cache.close)
    assert not closed
    go_on.set()
    thread.join(TIMEOUT)
    assert len(closed) == 1
    assert compiler.compiled == [(ADD_F32.digest, False)]
    assert cache.stats().compiling == 0


# --- quick forms ---


def as_gpu(info: DeviceInfo) -> DeviceInfo:
    return dataclasses.replace(info, kind="discrete")


@pytest.fixture
def slow_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel of the package compiles slowly."""
    monkeypatch.setattr(modules, "SLOW_MODULES", frozenset(modules.get_module_names().values()))


def find_kernel(backend: gx.PersistentVulkanBackend, digest: str) -> Pipeline:
    cache = backend._session.resources.pipelines
    return next(each for each in cache._pipelines.values() if each.key[0] == digest)


@pytest.mark.usefixtures("slow_modules")
def test_the_usual_form_replaces_the_quick_one(compiler: SlowCompiler) -> None:
    """Operations and graphs take it from then on, and the quick form is destroyed."""
    field = gx.fields.BN254_FR
    values = field.random(100, 1)
    expected = (values * values).tolist()
    with open_described_gpu(as_gpu) as gpu:
        x = gpu.to_device(values)
        gpu._session.resources.pipelines.wait()
        for each in list(modules.get_digests()):
            compiler._held[each, False] = threading.Event()
        with gx.graph(x) as square:
            y = x * x
        square()
        assert y.tolist() == (x * x).tolist() == expected
        stats = gpu.stats().pipelines
        assert stats.quick > 0
        assert stats.compiling > 0
        product = compiler.compiled[-1]
        for event in compiler._held.values():
            event.set()
        gpu._session.resources.pipelines.wait()
        assert gpu.stats().pipelines.replaced == gpu.stats().pipelines.quick
        recordings = gpu._session.device_memory.stream.recordings
        other = field.random(100, 2)
        square(gpu.to_device(other))
        square()
        assert y.tolist() == (other * other).tolist()
        assert (x * x).tolist() == (other * other).tolist()  # the graph has copied it to x
        assert gpu._session.device_memory.stream.recordings > recordings
        assert not find_kernel(gpu, product[0]).is_quick
        del x, y, square


@pytest.mark.usefixtures("slow_modules")
def test_a_quick_form_that_is_not_replaced_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(device: Any, code: Any, files: Any) -> Pipeline:
        if not code.is_quick:
            raise gx.OutOfMemoryError("no memory for the usual form")
        return make_pipeline(device, code, files)

    monkeypatch.setattr(pipeline_cache, "make_pipeline", refuse)
    values = gx.fields.GOLDILOCKS.random(100, 1)
    with open_described_gpu(as_gpu) as gpu, caplog.at_level(logging.WARNING):
        x = gpu.to_device(values)
        assert (x + x).tolist() == (values + values).tolist()
        gpu._session.resources.pipelines.wait()
        assert (x * x).tolist() == (values * values).tolist()
        assert gpu.stats().pipelines.replaced == 0
    assert "keeps the quick form of its pipeline" in caplog.text


@pytest.mark.usefixtures("slow_modules")
def test_the_usual_form_on_disk_needs_no_quick_one(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelineFiles, "has", lambda *_: True)
    values = gx.fields.GOLDILOCKS.random(100, 1)
    with open_described_gpu(as_gpu) as gpu:
        x = gpu.to_device(values)
        assert (x + x).tolist() == (values + values).tolist()
        assert gpu.stats().pipelines.quick == 0


@pytest.mark.usefixtures("slow_modules")
def test_a_setting_turns_quick_forms_off() -> None:
    values = gx.fields.GOLDILOCKS.random(100, 1)
    with open_described_gpu(as_gpu, gx.Settings(quick_pipelines=False)) as gpu:
        x = gpu.to_device(values)
        assert (x + x).tolist() == (values + values).tolist()
        assert gpu.stats().pipelines.quick == 0


def test_sums_of_points_are_the_same_in_both_forms() -> None:
    points = CURVE.generator * list(range(1, 31))
    scalars = CURVE.scalar_field.random(30, 1)
    expected = CURVE.msm(points, scalars).tolist()
    with open_described_gpu(as_gpu) as gpu:
        on_device = gpu.to_device(points)
        explained = str(CURVE.explain_msm(on_device, scalars))
        assert re.search(r"- pipelines: (\d+), \1 of them are compiled or read", explained)
        quick = CURVE.msm(on_device, scalars).tolist()
        assert gpu.stats().pipelines.quick > 0
        gpu._session.resources.pipelines.wait()
        assert re.search(r"- pipelines: \d+$", str(CURVE.explain_msm(on_device, scalars)))
        assert gpu.stats().pipelines.replaced == gpu.stats().pipelines.quick
        assert quick == CURVE.msm(on_device, scalars).tolist() == expected


def test_the_kernels_of_an_msm_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a call needs is asked for when it is planned; nothing is measured for that, which
    takes a software driver seconds or minutes."""
    asked: list[str] = []
    compile_ahead = PipelineCache.compile_ahead

    def note(cache: PipelineCache, requests: Any, **options: Any) -> None:
        listed = list(requests)
        asked.extend(each.kernel.digest for each in listed)
        compile_ahead(cache, listed, **options)

    monkeypatch.setattr(PipelineCache, "compile_ahead", note)
    points = CURVE.generator * list(range(1, 31))
    with gx.PersistentVulkanBackend() as gpu:
        on_device = gpu.to_device(points)
        gpu.synchronize()
        before = {key[0] for key in gpu._session.resources.pipelines._pipelines}
        found = CURVE.msm(on_device, np.arange(30)).tolist()
        assert found == CURVE.msm(points, np.arange(30)).tolist()
        used = {key[0] for key in gpu._session.resources.pipelines._pipelines} - before
        names = modules.get_module_names()
        others = {"strided_copy_u32", "wide_evaluate"}  # copies, and coordinates for the host
        assert {names[each] for each in used} <= {names[each] for each in asked} | others
        assert not {"bytes_per_product", "f64_limbs"} & set(vars(get_device_memory(gpu)))
