"""The WebGPU executor: correct results, and the errors of calls that cannot have any."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.primes import words
from tests.conftest import OpenWebGpu
from tests.support.jobs import (
    ADD_U32,
    FQ,
    FQ_ADD,
    TOO_LARGE,
    check_sums,
    field_job,
    field_jobs,
    word_jobs,
)
from tests.support.webgpu import INCREMENT, MATMUL, REDUCE, is_idle, make_wgsl_kernel


def test_each_bucket_is_one_submission_and_results_keep_their_order(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    jobs = word_jobs(40_000, 1, 16_385, 16_384, 100, 33_000, 2, 65_536, 16_383)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    stats = gpu.stats()
    assert (stats.submissions, stats.chunks, stats.calls) == (3, 9, 9)
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


def test_results_are_written_to_out(open_webgpu: OpenWebGpu) -> None:
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


def test_argument_errors_name_the_job(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    (good,) = word_jobs(5)
    with pytest.raises(gx.errors.ArgumentTypeError, match="out has 2 entries for 1 jobs"):
        gpu.run_batch(ADD_U32, [good], out=[None, None])
    with pytest.raises(gx.errors.ArgumentTypeError, match="job 1: vector_add_u32 takes 2 arrays"):
        gpu.run_batch(ADD_U32, [good, good[:1]])
    with pytest.raises(
        gx.errors.ArgumentTypeError, match="job 1: a job is a tuple of arrays, not an ndarray"
    ):
        gpu.run_batch(ADD_U32, [good, good[0]])  # type: ignore[list-item]
    with pytest.raises(gx.errors.ArgumentShapeError, match=r"job 0: .* out 0 has shape"):
        gpu.run_batch(ADD_U32, [good], out=[np.zeros(4, np.uint32)])
    assert gpu.stats().submissions == 0


def test_a_users_kernel_gets_its_data_at_every_size(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    for count in (1, 63, 64, 65, 16_384, 16_385, 300_000):
        x = np.arange(count, dtype=np.uint32)
        for step in (1, 7):
            np.testing.assert_array_equal(
                gpu.run(make_wgsl_kernel(step=step), x), x + np.uint32(step)
            )


STRIDING = """\
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> o: array<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let first = (group.y * groups.x + group.x) * 64u + local;
    for (var i = first; i < param(0u); i += groups.x * groups.y * 64u) {
        o[i] = a[i] + param(1u);
    }
}
"""


def test_a_fixed_work_group_size_needs_a_grid(open_webgpu: OpenWebGpu) -> None:
    said = r"kernel 'mistaken': the text has @workgroup_size\(64\); .* grid="
    with pytest.raises(gx.errors.KernelError, match=said):
        make_wgsl_kernel(STRIDING, name="mistaken")
    gpu = open_webgpu()
    for grid in ((1, 1), (16, 1), (3, 5)):
        kernel = make_wgsl_kernel(STRIDING, 7, grid=grid)
        for count in (1, 64, 1025, 16_385, 50_000):
            x = np.arange(count, dtype=np.uint32)
            np.testing.assert_array_equal(gpu.run(kernel, x), x + np.uint32(7))


def test_a_compile_error_names_the_line_of_the_users_text(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    wrong = INCREMENT.replace("a[i] + param(1u)", "a[i] + nothing_here")
    line = wrong[: wrong.index("nothing_here")].count("\n") + 1
    for _ in range(2):
        with pytest.raises(gx.errors.KernelError) as caught:
            gpu.run(make_wgsl_kernel(wrong, name="mistaken"), np.ones(5, np.uint32))
        said = str(caught.value)
        assert said.startswith("kernel 'mistaken': ")
        assert "nothing_here" in said
        assert re.search(rf"\b{line}(:\d+| │)", said), said
    assert is_idle(gpu)
    check_sums([gpu.run(ADD_U32, *word_jobs(9)[0])], word_jobs(9))


def test_wgsl_without_an_entry_point_is_a_kernel_error(open_webgpu: OpenWebGpu) -> None:
    with pytest.raises(gx.errors.KernelError, match="kernel 'mistaken'"):
        open_webgpu().run(
            make_wgsl_kernel(INCREMENT.replace("fn main", "fn other"), name="mistaken"),
            np.ones(5, np.uint32),
        )


def test_a_kernel_without_wgsl_is_refused(open_webgpu: OpenWebGpu) -> None:
    code = ADD_U32.spirv.replace(b"main", b"Main")  # so it is another module
    kernel = Kernel.from_spirv(code, count=True, buffers="in, in, out", name="only spirv")
    gpu = open_webgpu()
    job = word_jobs(5)[0]
    for _ in range(2):
        with pytest.raises(gx.errors.KernelError, match="'only spirv' has no WGSL"):
            gpu.run(kernel, *job)
        with pytest.raises(gx.errors.KernelError, match="'only spirv' has no WGSL"):
            gpu.prepare(kernel, [5])


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
    assert is_idle(gpu)


@pytest.mark.parametrize("private", [True, False])
def test_the_error_names_the_first_bad_element_of_the_lowest_job(
    open_webgpu: OpenWebGpu, private: bool
) -> None:
    gpu = open_webgpu(private=private)
    jobs = field_jobs(
        9, 40_000, 20_000, 300, 40_001, 5
    )  # some later jobs are read before earlier ones
    wrong = [tuple(array.copy() for array in job) for job in jobs]
    for job, argument, index in [
        (1, 0, 39_999), (1, 1, 17_000), (1, 0, 17_001), (2, 0, 3), (3, 1, 0), (4, 0, 0), (5, 0, 2),
    ]:  # fmt: skip
        wrong[job][argument][index] = TOO_LARGE
    for lowest, argument, index in [(1, 1, 17_000), (2, 0, 3), (3, 1, 0), (4, 0, 0), (5, 0, 2)]:
        with pytest.raises(gx.ElementRangeError) as caught:
            gpu.run_batch(FQ_ADD, wrong)
        found = caught.value
        assert (found.job, found.argument, found.index) == (lowest, argument, index)
        assert str(found).startswith(f"job {lowest}: ")
        assert is_idle(gpu)
        check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
        wrong[lowest] = jobs[lowest]
    check_sums(gpu.run_batch(FQ_ADD, wrong), jobs)
    assert is_idle(gpu)


def test_whole_kernels_run_singly_and_in_batches(open_webgpu: OpenWebGpu) -> None:
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


def test_a_closed_executor_refuses_calls_and_may_be_closed_again(open_webgpu: OpenWebGpu) -> None:
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
        lambda: gpu.prepare(ADD_U32, [5]),
        gpu.prepare,
    ]
    for call in refused:
        with pytest.raises(gx.errors.ClosedError, match="the executor is closed; open another one"):
            call()
    assert gpu.stats().calls == 1


def test_run_field_add_adds_field_elements(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    a, b = field_job(300)
    np.testing.assert_array_equal(gpu.run_field_add(a, b), words.add(FQ, a, b))
    assert [each.kernel for each in gpu.bucket_cache_stats()] == ["bls12_381_fq_add"]
