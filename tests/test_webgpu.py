"""The WebGPU executor: right results, what it makes once and no more, what it says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.primes import words
from gpu_executor.webgpu import device as device_module
from gpu_executor.webgpu import executor as executor_module
from gpu_executor.webgpu import private_waiting
from gpu_executor.webgpu.device import WebGpuDevice, _adapters, _choose
from gpu_executor.webgpu.private_waiting import PrivateWaiting, choose_waiting
from gpu_executor.webgpu.programs import Program, Programs, Tuning
from gpu_executor.webgpu.public_waiting import PublicWaiting
from gpu_executor.webgpu.stats import WgpuStats
from jobs import ADD_U32, FQ, FQ_ADD, TOO_LARGE, check_sums, field_job, field_jobs, word_jobs

OpenWebGpu = Callable[..., gx.WgpuExecutor]
MATMUL, REDUCE = gx.kernels.load("matmul_u32"), gx.kernels.load("reduce_sum_u32")

INCREMENT = """\
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> o: array<u32>;

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let first = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        let i = first + n * work_group;
        if (i < param(0u)) {
            o[i] = a[i] + param(1u);
        }
    }
}
"""


@pytest.fixture
def open_webgpu() -> Iterator[OpenWebGpu]:
    """Opens executors that keep nothing on disk unless told to, and closes them."""
    opened: list[gx.WgpuExecutor] = []

    def open_one(**options: Any) -> gx.WgpuExecutor:
        options.setdefault("settings", gx.Settings())
        opened.append(gx.WgpuExecutor(**options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def made(stats: WgpuStats) -> tuple[int, int, int, int]:
    """What costs time to make."""
    return stats.pipelines, stats.buffer_sets, stats.pool.misses, stats.bucket_evictions


def own_kernel(text: str = INCREMENT, step: int = 1, **more: Any) -> Kernel:
    data = np.array([step], np.uint32).tobytes()
    return Kernel.from_wgsl(
        text, inputs=1, outputs=1, dtypes=[np.uint32, np.uint32], data=data, **more
    )


def finish_compiling(gpu: gx.WgpuExecutor) -> None:
    """Wait for what is compiled in the background."""
    for coming in list(gpu._programs._coming.values()):
        coming.result(60)


def idle(gpu: gx.WgpuExecutor) -> bool:
    """Whether no task has a set."""
    return all(bucket.busy == 0 for bucket in gpu._buckets._buckets.values())


def test_a_steady_load_makes_nothing_any_more(open_webgpu: OpenWebGpu) -> None:
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
    assert made(after) == made(before)
    assert after.calls == before.calls + 5 * 10
    assert after.tasks == before.tasks + 5 * 10
    assert idle(gpu)


def test_each_bucket_is_one_submission_and_results_keep_their_order(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(40_000, 1, 16_385, 16_384, 100, 33_000, 2, 65_536, 16_383)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    stats = gpu.stats()
    assert (stats.submissions, stats.tasks, stats.calls) == (3, 9, 9)
    assert stats.bucket_sizes == (16_384, 32_768, 65_536)
    assert stats.elements == sum(len(a) for a, _ in jobs)
    assert [(each.bucket, each.misses) for each in stats.buckets] == [
        (16_384, 5), (32_768, 1), (65_536, 3),
    ]  # fmt: skip


def test_jobs_of_no_elements_submit_nothing(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(0, 5, 0, 20_000, 0)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert gpu.stats().submissions == 2
    check_sums(gpu.run_batch(ADD_U32, jobs[:1]), jobs[:1])
    check_sums([gpu.run(ADD_U32, *jobs[0])], jobs[:1])
    assert gpu.run_batch(ADD_U32, []) == []
    assert gpu.run(FQ_ADD, *field_job(0)).shape == (0, 6)
    assert gpu.stats().submissions == 2


def test_results_are_written_where_they_are_wanted(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(5, 20_000, 7)
    out = [np.zeros_like(a) for a, _ in jobs]
    results = gpu.run_batch(ADD_U32, jobs, out=out)
    assert all(result is target for result, target in zip(results, out, strict=True))
    check_sums(out, jobs)
    a, b = word_jobs(1000)[0]
    expected = a + b
    assert gpu.run(ADD_U32, a, b, out=a) is a
    np.testing.assert_array_equal(a, expected)
    spread = np.zeros(2000, np.uint32)[::2]
    gpu.run(ADD_U32, b, b, out=spread)
    np.testing.assert_array_equal(spread, b + b)


def test_what_does_not_fit_is_said_with_the_number_of_the_job(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    (good,) = word_jobs(5)
    with pytest.raises(gx.ArgumentTypeError, match="out has 2 entries for 1 jobs"):
        gpu.run_batch(ADD_U32, [good], out=[None, None])
    with pytest.raises(gx.ArgumentTypeError, match="job 1: vector_add_u32 takes 2 arrays"):
        gpu.run_batch(ADD_U32, [good, good[:1]])
    with pytest.raises(gx.ArgumentTypeError, match="job 1: a job is a tuple of arrays, not a nda"):
        gpu.run_batch(ADD_U32, [good, good[0]])  # type: ignore[list-item]
    with pytest.raises(gx.ArgumentShapeError, match=r"job 0: .* out 0 has shape"):
        gpu.run_batch(ADD_U32, [good], out=[np.zeros(4, np.uint32)])
    assert gpu.stats().submissions == 0


def test_more_than_may_be_in_flight_is_read_group_by_group(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "IN_FLIGHT_BYTES", 200_000)
    gpu = open_webgpu()
    jobs = word_jobs(*[1000, 20_000, 40_000, 70_000] * 3, 140_000)
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert gpu.stats().tasks >= 2 * len(jobs)
    assert idle(gpu)


def shrink(gpu: gx.WgpuExecutor, nbytes: int) -> None:
    """Let the device bind no more than that."""
    gpu._device.limits["max-storage-buffer-binding-size"] = nbytes


@pytest.mark.parametrize("count", [65_536, 65_537, 131_072, 200_001])
def test_a_call_larger_than_the_device_binds_is_cut(open_webgpu: OpenWebGpu, count: int) -> None:
    gpu = open_webgpu()
    shrink(gpu, 4 * 65_536)
    jobs = word_jobs(count)
    for _ in range(3):
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    pieces = -(-count // 65_536)
    assert gpu.stats().tasks == 3 * pieces
    assert gpu.stats().calls == 3
    assert max(gpu.stats().bucket_sizes) <= 65_536


def test_pieces_are_as_large_as_buckets_that_the_device_binds(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    shrink(gpu, 4 * 100_000)
    jobs = word_jobs(150_000)
    check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    assert gpu.stats().bucket_sizes == (32_768, 65_536)
    assert gpu.stats().tasks == 3


def test_a_bad_element_of_a_later_piece_is_named_by_its_place_in_the_call(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    shrink(gpu, 48 * 16_384)
    a = np.zeros((40_000, 6), np.uint64)
    b = a.copy()
    b[39_000, 5] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        gpu.run(FQ_ADD, a, b)
    assert (caught.value.argument, caught.value.index) == (1, 39_000)
    assert not gpu.run(FQ_ADD, a, a).any()


def test_a_whole_kernel_larger_than_the_device_binds_is_refused(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    shrink(gpu, 4 * 65_536)
    with pytest.raises(gx.KernelError, match=r"more than the 262,144 bytes .* cannot be cut"):
        gpu.run(REDUCE, np.ones(65_537, np.uint32))
    assert gpu.run(REDUCE, np.ones(65_536, np.uint32)).sum() == 65_536


def test_a_size_that_comes_again_gets_a_set_of_its_own(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(1000)
    seen = []
    for _ in range(4):
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
        stats = gpu.stats()
        seen.append((stats.exact_entries, stats.exact_hits, stats.buffer_sets))
    assert seen == [(0, 0, 1), (1, 0, 2), (1, 1, 2), (1, 2, 2)]


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


def test_each_bucket_tells_what_was_compiled_for_it(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu.warm_up(ADD_U32, [10, 20_000])
    gpu.run(ADD_U32, *word_jobs(100)[0])
    small, large = gpu.bucket_cache_stats()
    if small.bucket > large.bucket:
        small, large = large, small
    assert (small.kernel, small.bucket, large.bucket) == ("vector_add_u32", 16_384, 32_768)
    assert (small.hits, small.misses, small.evictions, small.pipelines) == (1, 1, 0, 1)
    assert (large.hits, large.misses, large.pipelines) == (0, 1, 1)
    assert small.compile_seconds > 0
    assert small.bytes_held >= 3 * 4 * 16_384


def test_after_warming_up_a_first_call_compiles_nothing(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu.warm_up(ADD_U32, [10, 20_000, 100])
    before = gpu.stats()
    assert before.bucket_sizes == (16_384, 32_768)
    assert (before.buffer_sets, before.pipelines, before.submissions) == (2, 2, 0)
    jobs = word_jobs(77, 30_000)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert made(gpu.stats()) == made(before)
    assert gpu.stats().compile_seconds == before.compile_seconds


def test_what_one_executor_used_warms_up_the_next(open_webgpu: OpenWebGpu, tmp_path: Path) -> None:
    settings = gx.Settings(cache_dir=tmp_path / "deep" / "cache")
    with open_webgpu(settings=settings) as first:
        jobs = word_jobs(100, 20_000)
        first.run_batch(ADD_U32, jobs)
        first.run(own_kernel(name="my own"), jobs[0][0])
    second = open_webgpu(settings=settings)
    assert second.stats().pipelines == 0
    second.warm_up()
    before = second.stats()
    assert before.bucket_sizes == (16_384, 32_768)
    assert (before.buffer_sets, before.pipelines) == (2, 2)
    check_sums(second.run_batch(ADD_U32, jobs), jobs)
    assert made(second.stats()) == made(before)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"borders": [1], "used": []}', '{"borders": ["a"], "used": {}}']
)
def test_a_kept_file_that_means_nothing_is_replaced(
    open_webgpu: OpenWebGpu, tmp_path: Path, content: str
) -> None:
    settings = gx.Settings(cache_dir=tmp_path)
    open_webgpu(settings=settings).close()
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    with open_webgpu(settings=settings, adaptive=True) as gpu:
        gpu.warm_up()
        assert gpu.stats().buffer_sets == 0
        gpu.run(ADD_U32, *word_jobs(5)[0])
    assert json.loads(path.read_text())["used"] == {"vector_add_u32": [16_384]}
    assert list(tmp_path.iterdir()) == [path]


def test_an_executor_that_did_nothing_leaves_what_was_kept(
    open_webgpu: OpenWebGpu, tmp_path: Path
) -> None:
    settings = gx.Settings(cache_dir=tmp_path)
    with open_webgpu(settings=settings) as gpu:
        gpu.run(ADD_U32, *word_jobs(5)[0])
    (path,) = tmp_path.iterdir()
    before = path.read_text()
    open_webgpu(settings=settings).close()
    assert path.read_text() == before


def test_nothing_is_kept_where_no_folder_is_named(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu(settings=gx.Settings(cache_dir=None))
    gpu.run(ADD_U32, *word_jobs(5)[0])
    gpu.warm_up()
    gpu.close()


def test_adaptive_borders_follow_the_load_and_are_kept(
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


def test_a_cold_bucket_uses_a_warm_program_meanwhile(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_now = threading.Event(), Programs._compiled_now
    begun: list[Tuning] = []

    def slowly(self: Programs, kernel: Kernel, tuning: Tuning) -> Program:
        begun.append(tuning)
        if len(begun) > 1:
            assert go_on.wait(60)
        return compile_now(self, kernel, tuning)

    monkeypatch.setattr(Programs, "_compiled_now", slowly)
    gpu = open_webgpu()
    jobs = word_jobs(100, 50_000, 30_001)
    try:
        check_sums([gpu.run(ADD_U32, *jobs[0])], jobs[:1])
        assert gpu.stats().pipelines == 1
        for _ in range(3):  # not compiled yet, and no less right
            check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        assert gpu.stats().pipelines == 1
    finally:
        go_on.set()
    finish_compiling(gpu)
    assert gpu.stats().pipelines == 2
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert len(begun) == len(set(begun)) == 2


def test_an_own_kernel_runs_with_its_data_at_all_sizes(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    for count in (1, 63, 64, 65, 16_384, 16_385, 300_000):
        x = np.arange(count, dtype=np.uint32)
        for step in (1, 7):
            np.testing.assert_array_equal(gpu.run(own_kernel(step=step), x), x + np.uint32(step))


def test_more_work_groups_than_one_dimension_holds_are_laid_in_two(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-compute-workgroups-per-dimension"] = 7
    for count in (448, 449, 5000, 30_000):
        x = np.arange(count, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(own_kernel(), x), x + np.uint32(1))


def test_a_wrong_text_is_told_with_its_own_line(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    wrong = INCREMENT.replace("a[i] + param(1u)", "a[i] + nothing_here")
    line = wrong[: wrong.index("nothing_here")].count("\n") + 1
    for _ in range(2):
        with pytest.raises(gx.KernelError) as caught:
            gpu.run(own_kernel(wrong, name="mistaken"), np.ones(5, np.uint32))
        said = str(caught.value)
        assert said.startswith("kernel 'mistaken': ")
        assert "nothing_here" in said
        assert re.search(rf"\b{line}(:\d+| │)", said), said
    assert idle(gpu)
    check_sums([gpu.run(ADD_U32, *word_jobs(9)[0])], word_jobs(9))


def test_a_text_without_an_entry_point_is_a_kernel_error(open_webgpu: OpenWebGpu) -> None:
    with pytest.raises(gx.KernelError, match="kernel 'mistaken'"):
        open_webgpu().run(
            own_kernel(INCREMENT.replace("fn main", "fn other"), name="mistaken"),
            np.ones(5, np.uint32),
        )


def test_a_kernel_without_wgsl_is_refused_in_words(open_webgpu: OpenWebGpu) -> None:
    kernel = Kernel.from_spirv(
        ADD_U32.spirv, inputs=2, outputs=1, dtypes=["u4"] * 3, name="only spirv",
        per_invocation=ADD_U32.per_invocation,
    )  # fmt: skip
    gpu = open_webgpu()
    job = word_jobs(5)[0]
    for _ in range(2):
        with pytest.raises(gx.KernelError, match="'only spirv' has no WGSL"):
            gpu.run(kernel, *job)
        with pytest.raises(gx.KernelError, match="'only spirv' has no WGSL"):
            gpu.warm_up(kernel, [5])


@pytest.mark.parametrize("private", [True, False])
def test_an_element_not_below_the_modulus_is_named_by_job_and_index(
    open_webgpu: OpenWebGpu, private: bool
) -> None:
    gpu = open_webgpu(private=private)
    jobs = field_jobs(20_000, 10, 300)
    wrong = [tuple(array.copy() for array in job) for job in jobs]
    wrong[2][1][123] = TOO_LARGE
    for _ in range(3):
        with pytest.raises(gx.ElementRangeError) as caught:
            gpu.run_batch(FQ_ADD, wrong)
        assert (caught.value.job, caught.value.argument, caught.value.index) == (2, 1, 123)
        assert "job 2" in str(caught.value)
        check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
    assert idle(gpu)


def test_whole_kernels_run_alone_and_in_batches(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    draw = np.random.default_rng(1)
    shapes = [(3, 4, 5), (17, 33, 20), (4, 3, 5), (3, 4, 5), (2, 6, 9)]
    jobs = [
        (draw.integers(0, 1 << 32, (m, k), np.uint32), draw.integers(0, 1 << 32, (k, n), np.uint32))
        for m, k, n in shapes
    ]
    for _ in range(3):
        for result, (a, b) in zip(gpu.run_batch(MATMUL, jobs), jobs, strict=True):
            np.testing.assert_array_equal(result, a @ b)
        for a, b in jobs:
            np.testing.assert_array_equal(gpu.run(MATMUL, a, b), a @ b)
    arrays = [draw.integers(0, 1 << 32, n, np.uint32) for n in (1, 5000, 4096, 5000)]
    for _ in range(2):
        results = gpu.run_batch(REDUCE, [(x,) for x in arrays])
        for result, x in zip(results, arrays, strict=True):
            assert result.sum(dtype=np.uint32) == x.sum(dtype=np.uint32)


def test_whole_kernels_alone_make_their_sets_once(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = np.ones(5000, np.uint32)
    gpu.run(REDUCE, x)
    before = gpu.stats()
    for _ in range(5):
        gpu.run(REDUCE, x)
    assert made(gpu.stats()) == made(before)


def test_parameters_in_a_uniform_buffer_give_the_same(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_device = WebGpuDevice.__init__

    def without_immediates(self: WebGpuDevice, wanted: str | int | None = None) -> None:
        open_device(self, wanted)
        self.immediates = False

    monkeypatch.setattr(WebGpuDevice, "__init__", without_immediates)
    gpu = open_webgpu()
    jobs, fields = word_jobs(5, 20_000, 7, 70_000), field_jobs(3, 300)
    for _ in range(3):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
        check_sums(gpu.run_batch(FQ_ADD, fields), fields)
        check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
    a, b = np.ones((5, 6), np.uint32), np.ones((6, 7), np.uint32)
    np.testing.assert_array_equal(gpu.run(MATMUL, a, b), a @ b)
    np.testing.assert_array_equal(gpu.run(own_kernel(step=9), jobs[0][0]), jobs[0][0] + 9)
    bad = fields[0][0].copy()
    bad[2] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError):
        gpu.run(FQ_ADD, fields[0][0], bad)


@pytest.mark.parametrize("shares", [True, False], ids=["one memory", "memory of its own"])
def test_both_ways_of_waiting_give_the_same(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    if not shares:
        monkeypatch.setattr(device_module, "SHARING_KINDS", ())
    jobs, fields = word_jobs(5, 20_000, 7, 70_000, 0), field_jobs(3, 300, 20_000)
    stats = []
    for private, kind in ((True, PrivateWaiting), (False, PublicWaiting)):
        gpu = open_webgpu(private=private)
        assert isinstance(gpu._waiting, kind)
        for _ in range(3):
            check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
            check_sums(gpu.run_batch(FQ_ADD, fields), fields)
            check_sums([gpu.run(ADD_U32, *job) for job in jobs], jobs)
        stats.append(gpu.stats())
    assert (stats[0].submissions, stats[0].tasks) == (stats[1].submissions, stats[1].tasks)


def test_only_a_device_that_shares_the_hosts_memory_binds_what_the_host_maps(
    open_webgpu: OpenWebGpu,
) -> None:
    device = open_webgpu()._device
    assert device.shares_memory == (device.kind in ("CPU", "IntegratedGPU"))


def test_another_version_of_wgpu_is_waited_for_publicly(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_waiting, "PRIVATE_FOR", "0.1.0")
    gpu = open_webgpu()
    assert isinstance(gpu._waiting, PublicWaiting)
    check_sums([gpu.run(ADD_U32, *word_jobs(50)[0])], word_jobs(50))


def test_another_implementation_of_webgpu_is_waited_for_publicly() -> None:
    class Other:
        queue = None

    class Device:
        device = Other()

        class wgpu:  # noqa: N801
            __version__ = private_waiting.PRIVATE_FOR

    assert isinstance(choose_waiting(cast(WebGpuDevice, Device())), PublicWaiting)


def test_an_adapter_is_chosen_by_index_or_a_part_of_its_name(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    assert open_webgpu(device=0).device_name == gpu.device_name
    part = gpu.device_name[1:6].upper()
    assert open_webgpu(device=part).device_name == gpu.device_name
    assert open_webgpu(device=gpu.stats().backend).stats().backend == gpu.stats().backend


@pytest.mark.parametrize("wanted", [-1, 99, "no such adapter"])
def test_an_adapter_that_is_not_there_is_told_with_those_that_are(wanted: str | int) -> None:
    with pytest.raises(gx.NoDeviceError, match=re.escape(str(wanted))) as caught:
        gx.WgpuExecutor(wanted, settings=gx.Settings())
    assert "there are " in str(caught.value)


class FakeAdapter:
    def __init__(self, device: str, kind: str, backend: str) -> None:
        self.info = {"device": device, "adapter_type": kind, "backend_type": backend}


def test_the_best_adapter_comes_first() -> None:
    adapters = [
        FakeAdapter("soft", "CPU", "Vulkan"),
        FakeAdapter("card", "DiscreteGPU", "OpenGL"),
        FakeAdapter("odd", "Toaster", "Steam"),
        FakeAdapter("card", "DiscreteGPU", "Vulkan"),
        FakeAdapter("chip", "IntegratedGPU", "Metal"),
    ]

    class Gpu:
        @staticmethod
        def enumerate_adapters_sync() -> list[FakeAdapter]:
            return adapters

    class Wgpu:
        gpu = Gpu

    ranked = _adapters(Wgpu)
    assert ranked == [adapters[index] for index in (3, 1, 4, 0, 2)]
    assert _choose(ranked, None) is adapters[3]
    assert _choose(ranked, "CARD (opengl)") is adapters[1]
    assert _choose(ranked, 2) is adapters[4]
    with pytest.raises(gx.NoDeviceError, match="finds no adapter"):
        _choose([], None)


def test_a_closed_executor_refuses_in_words_and_closes_again(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    job = word_jobs(5)[0]
    gpu.run(ADD_U32, *job)
    assert repr(gpu) == f"<WgpuExecutor on {gpu.device_name}, open>"
    gpu.close()
    gpu.close()
    assert repr(gpu) == f"<WgpuExecutor on {gpu.device_name}, closed>"
    refused: list[Callable[[], object]] = [
        lambda: gpu.run(ADD_U32, *job),
        lambda: gpu.run_batch(ADD_U32, [job]),
        lambda: gpu.run_batch(ADD_U32, []),
        lambda: gpu.run_field_add(*field_job(5)),
        lambda: gpu.warm_up(ADD_U32, [5]),
        gpu.warm_up,
    ]
    for call in refused:
        with pytest.raises(gx.ClosedError, match="the executor is closed; open another one"):
            call()
    assert gpu.stats().calls == 1


def test_field_elements_are_added_by_their_own_call(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    a, b = field_job(300)
    np.testing.assert_array_equal(gpu.run_field_add(a, b), words.add(FQ, a, b))
    assert [each.kernel for each in gpu.bucket_cache_stats()] == ["bls12_381_fq_add"]


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
