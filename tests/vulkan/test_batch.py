"""Batches: many jobs of any sizes give the same results as single calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.cpu import field_oracle
from gpu_executor.errors import SettingsError
from gpu_executor.primes import BLS12_381_FQ, words
from tests.conftest import CHUNK, OpenGpu, elements, on_both_paths
from tests.support.jobs import (
    ADD_U32,
    FQ_ADD,
    TOO_LARGE,
    Array,
    Job,
    check_sums,
    field_job,
    field_jobs,
    watch,
    word_jobs,
)

Gpu = gx.PersistentVulkanBackend
FQ = BLS12_381_FQ
MIXED = (5, 0, 100, 1, 64, 250, 0, 3, 101, 7)
OPTIONS: list[dict[str, Any]] = [
    {"pipelined": False},
    {"pipelined": None},
    {"pipelined": True},
    *({"pipelined": True, "depth": depth} for depth in (2, 3, 16)),
    {"depth": 1},
    {"depth": 5},
]
with_all_options = pytest.mark.parametrize("options", OPTIONS, ids=str)
sizes = st.lists(st.sampled_from([0, 1, 2, 63, 64, 65, 99, 100, 101, 250]), max_size=8)


@on_both_paths
@given(sizes=sizes, seed=st.integers(0, 1 << 32), depth=st.sampled_from([None, 2, 3, 16]))
@settings(max_examples=20)
def test_pipelined_and_sequential_batches_give_identical_bits(
    gpu: Gpu, chunking_gpu: Gpu, device_local: bool, sizes: list[int], seed: int, depth: int | None
) -> None:
    xs = [elements(FQ, size, seed + at) for at, size in enumerate(sizes)]
    ys = [elements(FQ, size, seed - at - 1) for at, size in enumerate(sizes)]
    jobs = [(words.from_ints(FQ, x), words.from_ints(FQ, y)) for x, y in zip(xs, ys, strict=True)]
    expected = [field_oracle.add(FQ, x, y) for x, y in zip(xs, ys, strict=True)]
    for backend in (gpu, chunking_gpu):
        one_by_one = backend.run_batch(FQ_ADD, jobs, device_local=device_local, pipelined=False)
        overlapped = backend.run_batch(
            FQ_ADD, jobs, device_local=device_local, pipelined=True, depth=depth
        )
        assert [words.to_ints(FQ, result) for result in one_by_one] == expected
        assert [result.tobytes() for result in overlapped] == [x.tobytes() for x in one_by_one]


@on_both_paths
@with_all_options
def test_every_depth_and_data_path_gives_the_same_results(
    chunking_gpu: Gpu, device_local: bool, options: dict[str, Any]
) -> None:
    for jobs in (field_jobs(*MIXED), field_jobs(3 * CHUNK + 1), field_jobs(*range(1, 40))):
        check_sums(chunking_gpu.run_batch(FQ_ADD, jobs, device_local=device_local, **options), jobs)


@with_all_options
def test_a_batch_without_jobs_returns_no_results(gpu: Gpu, options: dict[str, Any]) -> None:
    assert gpu.run_batch(FQ_ADD, [], **options) == []
    assert gpu.run_batch(FQ_ADD, [], out=[], **options) == []


@with_all_options
def test_a_batch_of_empty_jobs_submits_nothing(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    submitted = watch(monkeypatch, "vkQueueSubmit")
    jobs = field_jobs(0, 0, 0)
    check_sums(gpu.run_batch(FQ_ADD, jobs, **options), jobs)
    assert submitted == []


@on_both_paths
def test_results_have_the_shapes_of_their_jobs(chunking_gpu: Gpu, device_local: bool) -> None:
    leading = [(), (1,), (2, 3, 35), (2, 0), (5, 1, 1), (41, 5)]
    jobs = []
    for shape in leading:
        a, b = field_job(int(np.prod(shape)))
        jobs.append((a.reshape(*shape, 6), b.reshape(*shape, 6)))
    check_sums(chunking_gpu.run_batch(FQ_ADD, jobs, device_local=device_local, depth=3), jobs)


@on_both_paths
def test_run_field_add_batch_is_sequential_and_its_pipelined_form_overlaps(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu, jobs = fresh_gpu(), field_jobs(70, 71, 72, 0, 73, 74)
    check_sums(gpu.run_field_add_batch(jobs, device_local=device_local), jobs)
    assert gpu.stats().slots.misses == 1
    check_sums(gpu.run_field_add_batch_pipelined(jobs, device_local=device_local), jobs)
    assert gpu.stats().slots.misses >= 2
    assert gpu.stats().chunks == gpu.stats().calls == 10


@on_both_paths
@pytest.mark.parametrize("depth", [1, 2, 3, 16])
def test_a_batch_uses_as_many_slots_as_its_depth(
    fresh_gpu: OpenGpu, device_local: bool, depth: int
) -> None:
    gpu, jobs = fresh_gpu(stream_chunk_elems=CHUNK), field_jobs(*[90] * 20, 3 * CHUNK, 0)
    check_sums(gpu.run_batch(FQ_ADD, jobs, device_local=device_local, depth=depth), jobs)
    stats = gpu.stats()
    assert (stats.slots.misses, stats.slots.in_use, stats.shrunk) == (depth, 0, 0)
    assert (stats.calls, stats.chunks, stats.elements) == (21, 23, 20 * 90 + 3 * CHUNK)


GOOD = np.zeros((4, 6), np.uint64)
BAD: dict[str, tuple[Any, type[gx.GpuError], str]] = {
    "dtype": (
        (GOOD, GOOD.astype(np.int64)),
        gx.errors.ArgumentTypeError,
        "argument 1 has dtype int64",
    ),
    "shape": ((GOOD[:, :5], GOOD), gx.errors.ArgumentShapeError, r"argument 0 has shape \(4, 5\)"),
    "lengths": ((GOOD, GOOD[:3]), gx.errors.ArgumentShapeError, "argument 1 has elements in shape"),
    "no array": ((GOOD, "ab"), gx.errors.ArgumentTypeError, "argument 1 is a str"),
    "list": ((GOOD, [1, 2]), gx.errors.ArgumentShapeError, r"argument 1 has shape \(2,\)"),
    "None": ((None, GOOD), gx.errors.ArgumentTypeError, "argument 0 is a NoneType"),
    "too few": ((GOOD,), gx.errors.ArgumentTypeError, "takes 2 arrays and got 1"),
    "no arrays": ((), gx.errors.ArgumentTypeError, "takes 2 arrays and got 0"),
    "no job": (None, gx.errors.ArgumentTypeError, "NoneType"),
}


@pytest.mark.parametrize(("job", "error", "said"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("pipelined", [False, True, None])
def test_an_invalid_job_is_refused_by_its_index_before_anything_is_submitted(
    gpu: Gpu,
    monkeypatch: pytest.MonkeyPatch,
    job: Any,
    error: type[gx.GpuError],
    said: str,
    pipelined: bool | None,
) -> None:
    submitted = watch(monkeypatch, "vkQueueSubmit")
    jobs: list[Any] = [*field_jobs(9, 0), job, field_job(7)]
    with pytest.raises(error, match=f"^job 2: .*{said}"):
        gpu.run_batch(FQ_ADD, jobs, pipelined=pipelined)
    assert submitted == []
    assert gpu.stats().slots.in_use == 0


@on_both_paths
@with_all_options
@pytest.mark.parametrize(("size", "index"), [(90, 7), (250, 207)])
def test_an_out_of_range_element_is_reported_by_job_argument_and_index(
    chunking_gpu: Gpu, device_local: bool, options: dict[str, Any], size: int, index: int
) -> None:
    jobs = field_jobs(9, 0, 64, size, 250, 5, 30)
    jobs[3][1][index] = TOO_LARGE
    jobs[5][0][0] = TOO_LARGE  # submitted later, in either order
    with pytest.raises(gx.ElementRangeError, match=r"^job 3: .*element") as caught:
        chunking_gpu.run_batch(FQ_ADD, jobs, device_local=device_local, **options)
    assert (caught.value.job, caught.value.argument, caught.value.index) == (3, 1, index)
    assert chunking_gpu.stats().slots.in_use == 0
    good = field_jobs(9, 0, 64, size, 250, 5, 30)
    check_sums(chunking_gpu.run_batch(FQ_ADD, good, device_local=device_local, **options), good)


def test_an_out_of_range_element_in_a_single_call_has_no_job(chunking_gpu: Gpu) -> None:
    a, b = field_job(250)
    a[170] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match=r"^bls12_381_fq_add: element 170") as caught:
        chunking_gpu.run(FQ_ADD, a, b)
    assert caught.value.job is None


@pytest.mark.parametrize(
    ("pipelined", "depth", "least", "most"),
    [
        (None, 0, 1, 16),
        (None, -3, 1, 16),
        (None, 17, 1, 16),
        (True, 1, 2, 16),
        (True, 100, 2, 16),
        (False, 2, 1, 1),
        (None, 2.5, 1, 16),
    ],
)
def test_an_invalid_depth_is_refused(
    gpu: Gpu, pipelined: bool | None, depth: Any, least: int, most: int
) -> None:
    with pytest.raises(SettingsError, match=f"depth is {depth} .*{least} to {most}"):
        gpu.run_batch(FQ_ADD, field_jobs(9), pipelined=pipelined, depth=depth)


@on_both_paths
@with_all_options
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_results_are_written_to_out(
    chunking_gpu: Gpu, device_local: bool, options: dict[str, Any], mapped: bool
) -> None:
    jobs = field_jobs(*MIXED)
    empty = chunking_gpu.empty if mapped else np.empty
    out: list[Array] = [empty(a.shape, np.uint64) for a, _ in jobs]
    results = chunking_gpu.run_batch(FQ_ADD, jobs, out=out, device_local=device_local, **options)
    assert all(result is given for result, given in zip(results, out, strict=True))
    check_sums(out, jobs)


@on_both_paths
def test_each_job_may_overwrite_its_own_input(chunking_gpu: Gpu, device_local: bool) -> None:
    jobs = field_jobs(*MIXED)
    before = [(a.copy(), b.copy()) for a, b in jobs]
    out = [job[number % 2] for number, job in enumerate(jobs)]
    chunking_gpu.run_batch(FQ_ADD, jobs, out=out, device_local=device_local, depth=3)
    check_sums(out, before)


@pytest.mark.parametrize("given", [0, 2, 4])
def test_out_needs_one_entry_for_each_job(gpu: Gpu, given: int) -> None:
    out = [np.empty(9, np.uint32)] * given
    with pytest.raises(gx.errors.ArgumentTypeError, match=f"out has {given} entries for 3 jobs"):
        gpu.run_batch(ADD_U32, word_jobs(9, 9, 9), out=out)


def test_an_unsuitable_out_is_refused_by_its_job(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted, jobs = watch(monkeypatch, "vkQueueSubmit"), list[Job](word_jobs(9, 9))
    with pytest.raises(gx.errors.ArgumentShapeError, match=r"^job 1: .*out 0 has shape \(8,\)"):
        gpu.run_batch(ADD_U32, jobs, out=[np.empty(9, np.uint32), np.empty(8, np.uint32)])
    assert submitted == []


@pytest.mark.parametrize("jobs", [[], [(GOOD[:0], GOOD[:0])], [(GOOD, GOOD)]])
def test_a_closed_backend_refuses_batches(fresh_gpu: OpenGpu, jobs: list[Job]) -> None:
    gpu = fresh_gpu()
    gpu.close()
    with pytest.raises(gx.errors.ClosedError):
        gpu.run_batch(FQ_ADD, jobs)
