"""The caches of the WebGPU executor: in steady state, after warm-up, and between processes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_set import RecordedWork
from gpu_executor.webgpu.pipelines import PipelineCompiler, TunedPipeline, Tuning
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, FQ_ADD, check_sums, field_jobs, word_jobs
from tests.support.webgpu import (
    MATMUL,
    REDUCE,
    count_made,
    finish_compiling,
    is_idle,
    make_wgsl_kernel,
)


def test_a_steady_load_makes_nothing_new(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs, fields = word_jobs(5, 20_000, 100, 70_000, 16_384, 5), field_jobs(3, 700, 20_000)
    for _ in range(3):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        check_sums(gpu.run_batch(FQ_ADD, fields), fields)
        check_sums([gpu.run(ADD_U32, *jobs[3])], jobs[3:4])
    finish_compiling(gpu)
    before = gpu.stats()
    for _ in range(5):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        check_sums(gpu.run_batch(FQ_ADD, fields), fields)
        check_sums([gpu.run(ADD_U32, *jobs[3])], jobs[3:4])
    after = gpu.stats()
    assert count_made(after) == count_made(before)
    assert after.calls == before.calls + 5 * 10
    assert after.chunks == before.chunks + 5 * 10
    assert is_idle(gpu)


def test_a_repeated_size_gets_a_buffer_set_of_that_size(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(1000)
    seen = []
    for _ in range(4):
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
        stats = gpu.stats()
        seen.append((stats.exact_entries, stats.exact_hits, stats.buffer_sets))
    assert seen == [(0, 0, 1), (1, 0, 2), (1, 1, 2), (1, 2, 2)]


def test_a_repeated_call_is_recorded_once(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = word_jobs(*[1000] * 7)
    for adaptive, times in ((False, 3), (True, 7)):  # adaptive boundaries learn from every call
        gpu = open_webgpu(adaptive=adaptive)
        gpu.prepare(ADD_U32, [1000])
        seen: list[Any] = []
        record = gpu._scheduler._record

        def note(
            *arguments: Any, seen: list[Any] = seen, record: Callable[..., RecordedWork] = record
        ) -> RecordedWork:
            seen.append(arguments)
            return record(*arguments)

        monkeypatch.setattr(gpu._scheduler, "_record", note)
        check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
        # In the buffers of the bucket, then twice in those of this size.
        assert len(seen) == times


def test_single_calls_of_whole_kernels_make_their_sets_once(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = np.ones(5000, np.uint32)
    gpu.run(REDUCE, x)
    before = gpu.stats()
    for _ in range(5):
        gpu.run(REDUCE, x)
    assert count_made(gpu.stats()) == count_made(before)


def test_batches_of_whole_kernels_make_nothing_in_steady_state(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    a = np.arange(12, dtype=np.uint32).reshape(3, 4)
    jobs = [(a, a.T.copy())] * 5
    for _ in range(2):
        gpu.run_batch(MATMUL, jobs)
    before = gpu.stats()
    for result in gpu.run_batch(MATMUL, jobs):
        np.testing.assert_array_equal(result, a @ a.T)
    after = gpu.stats()
    assert (after.buffer_sets, after.pool.misses) == (before.buffer_sets, before.pool.misses)


def test_the_caches_are_printed_in_three_lines(
    open_webgpu: OpenWebGpu, capfd: pytest.CaptureFixture[str]
) -> None:
    gpu = open_webgpu()
    capfd.readouterr()
    gpu.print_stats()
    assert capfd.readouterr().err.splitlines() == [
        "[gpu] Bucket cache: 0 buckets cached: []",
        "[gpu] Exact-size cache: 0 entries",
        "[gpu] Buffer pool hit rate: 0.00%",
    ]
    for job in word_jobs(5, 5, 20_000):
        gpu.run(ADD_U32, *job)
    capfd.readouterr()
    gpu.print_stats()
    said = capfd.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert lines[:2] == [
        "[gpu] Bucket cache: 2 buckets cached: [16384, 32768]",
        "[gpu] Exact-size cache: 1 entries",
    ]
    assert re.fullmatch(r"\[gpu\] Buffer pool hit rate: \d+\.\d\d%", lines[2])
    assert len(lines) == 3
    assert str(gpu.stats()) == "\n".join(lines)


def test_bucket_stats_count_the_compiled_pipeline(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu.prepare(ADD_U32, [10, 20_000])
    gpu.run(ADD_U32, *word_jobs(100)[0])
    small, large = gpu.bucket_cache_stats()
    if small.bucket > large.bucket:
        small, large = large, small
    assert (small.kernel, small.bucket, large.bucket) == ("vector_add_u32", 16_384, 32_768)
    assert (small.hits, small.misses, small.evictions, small.pipelines) == (1, 1, 0, 1)
    assert (large.hits, large.misses, large.pipelines) == (0, 1, 1)
    assert small.compile_seconds > 0
    assert small.bytes_held >= 3 * 4 * 16_384


def test_the_first_call_after_prepare_compiles_nothing(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu.prepare(ADD_U32, [10, 20_000, 100])
    before = gpu.stats()
    assert before.bucket_sizes == (16_384, 32_768)
    assert (before.buffer_sets, before.pipelines, before.submissions) == (2, 2, 0)
    jobs = word_jobs(77, 30_000)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert count_made(gpu.stats()) == count_made(before)
    compiling = [each.seconds_by_stage["pipeline"] for each in (before, gpu.stats())]
    assert compiling[0] == compiling[1]


def test_a_cold_bucket_uses_another_pipeline_while_its_own_compiles(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_now = threading.Event(), PipelineCompiler._compile
    begun: list[Tuning] = []

    def slowly(self: PipelineCompiler, kernel: Kernel, tuning: Tuning) -> TunedPipeline:
        begun.append(tuning)
        if len(begun) > 1:
            assert go_on.wait(60)
        return compile_now(self, kernel, tuning)

    monkeypatch.setattr(PipelineCompiler, "_compile", slowly)
    gpu = open_webgpu()
    jobs = word_jobs(100, 50_000, 30_001)
    try:
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs[:1])
        assert gpu.stats().pipelines == 1
        for _ in range(3):  # its own pipeline is not compiled yet
            check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        assert gpu.stats().pipelines == 1
    finally:
        go_on.set()
    finish_compiling(gpu)
    assert gpu.stats().pipelines == 2
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert len(begun) == len(set(begun)) == 2


def test_the_history_of_one_executor_warms_up_the_next(
    open_webgpu: OpenWebGpu, tmp_path: Path
) -> None:
    settings = gx.Settings(cache_dir=tmp_path / "deep" / "cache")
    with open_webgpu(settings=settings) as first:
        jobs = word_jobs(100, 20_000)
        first.run_batch(ADD_U32, jobs)
        first.run(make_wgsl_kernel(name="my own"), jobs[0][0])
    second = open_webgpu(settings=settings)
    assert second.stats().pipelines == 0
    second.prepare()
    before = second.stats()
    assert before.bucket_sizes == (16_384, 32_768)
    assert (before.buffer_sets, before.pipelines) == (2, 2)
    check_sums(second.run_batch(ADD_U32, jobs), jobs)
    assert count_made(second.stats()) == count_made(before)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"borders": [1], "used": []}', '{"borders": ["a"], "used": {}}']
)
def test_an_invalid_history_file_is_replaced(
    open_webgpu: OpenWebGpu, tmp_path: Path, content: str
) -> None:
    settings = gx.Settings(cache_dir=tmp_path)
    open_webgpu(settings=settings).close()
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    with open_webgpu(settings=settings, adaptive=True) as gpu:
        gpu.prepare()
        assert gpu.stats().buffer_sets == 0
        gpu.run(ADD_U32, *word_jobs(5)[0])
    assert json.loads(path.read_text())["used"] == {"vector_add_u32": [16_384]}
    assert list(tmp_path.iterdir()) == [path]


def test_an_unused_executor_leaves_the_history_unchanged(
    open_webgpu: OpenWebGpu, tmp_path: Path
) -> None:
    settings = gx.Settings(cache_dir=tmp_path)
    with open_webgpu(settings=settings) as gpu:
        gpu.run(ADD_U32, *word_jobs(5)[0])
    (path,) = tmp_path.iterdir()
    before = path.read_text()
    open_webgpu(settings=settings).close()
    assert path.read_text() == before


@pytest.mark.parametrize("folder", [None, "named"])
def test_no_history_is_written_without_a_cache_folder(
    open_webgpu: OpenWebGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    """Neither in the folders that the environment names nor in the working directory."""
    for variable in ("GPU_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.chdir(tmp_path)
    gpu = open_webgpu(settings=gx.Settings(cache_dir=None if folder is None else Path(folder)))
    gpu.run(ADD_U32, *word_jobs(5)[0])
    gpu.prepare()
    gpu.close()
    kept_in = [path.parent for path in tmp_path.rglob("webgpu-*")]
    assert kept_in == ([] if folder is None else [tmp_path / folder])


def test_adaptive_boundaries_follow_the_load_and_are_saved(
    open_webgpu: OpenWebGpu, tmp_path: Path
) -> None:
    settings = gx.Settings(cache_dir=tmp_path)
    sizes = np.random.default_rng(1).integers(70_000, 80_000, 60).tolist()
    jobs = word_jobs(*sizes)
    with open_webgpu(adaptive=True, settings=settings) as gpu:
        for job in jobs:
            check_sums([gpu.run(ADD_U32, *job)], [job])
        stats = gpu.stats()
        assert stats.borders
        assert all(70_000 < border < 131_072 for border in stats.borders)
        assert set(stats.borders) & set(stats.bucket_sizes)
        assert stats.padding < 0.25
    again = open_webgpu(adaptive=True, settings=settings)
    assert again.stats().borders == stats.borders
    check_sums([again.run(ADD_U32, *jobs[0])], jobs[:1])
    assert max(again.stats().bucket_sizes) < 131_072
    fixed = open_webgpu(settings=settings)
    check_sums([fixed.run(ADD_U32, *jobs[0])], jobs[:1])
    assert (fixed.stats().borders, fixed.stats().bucket_sizes) == ((), (131_072,))
