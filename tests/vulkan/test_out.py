"""`out=`: results are written to the caller's arrays, in every way of running a kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, open_backend
from tests.conftest import on_both_paths
from tests.support.jobs import ADD_U32, check_sums, field_jobs, word_jobs

Gpu = gx.PersistentVulkanBackend


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_writes_to_out(name: str) -> None:
    with open_backend(name) as backend:
        a, b = word_jobs(70)[0]
        expected, target = a + b, np.zeros_like(a)
        assert backend.run(ADD_U32, a, b, out=target) is target
        np.testing.assert_array_equal(target, expected)
        assert backend.run(ADD_U32, a, b, out=a) is a
        np.testing.assert_array_equal(a, expected)
        with pytest.raises(gx.errors.ArgumentShapeError, match="out 0 has shape"):
            backend.run(ADD_U32, a, b, out=target[1:])
        whole = np.zeros(71, a.dtype)
        with pytest.raises(
            gx.errors.ArgumentShapeError, match="overlaps argument 0 without being the same array"
        ):
            backend.run(ADD_U32, whole[1:], b, out=whole[:-1])


@on_both_paths
def test_field_additions_write_to_out(gpu: Gpu, device_local: bool) -> None:
    jobs = field_jobs(70, 3, 71)
    targets = [np.zeros_like(a) for a, _ in jobs]
    assert gpu.run_field_add(*jobs[0], device_local, out=targets[0]) is targets[0]
    check_sums(targets[:1], jobs[:1])
    for run in (gpu.run_field_add_batch, gpu.run_field_add_batch_pipelined):
        targets = [np.zeros_like(a) for a, _ in jobs]
        results = run(jobs, device_local, out=targets)
        assert all(result is target for result, target in zip(results, targets, strict=True))
        check_sums(targets, jobs)


@on_both_paths
def test_a_stream_writes_to_out(gpu: Gpu, device_local: bool) -> None:
    jobs = word_jobs(70, 0, 300, 5)
    targets = [np.zeros_like(a) for a, _ in jobs]
    results = list(gpu.stream(ADD_U32, iter(jobs), out=iter(targets), device_local=device_local))
    assert all(result is target for result, target in zip(results, targets, strict=True))
    check_sums(targets, jobs)


def test_out_arrays_of_a_stream_may_come_again(gpu: Gpu) -> None:
    jobs = word_jobs(*[70] * 40)
    targets = itertools.cycle([np.zeros(70, np.uint32) for _ in range(3)])
    stream = gpu.stream(ADD_U32, jobs, out=targets, depth=3)
    for result, (a, b) in zip(stream, jobs, strict=True):
        np.testing.assert_array_equal(result, a + b)


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_an_out_array_that_comes_again_too_early_is_refused(gpu: Gpu, mapped: bool) -> None:
    jobs = word_jobs(*[70] * 9)
    make = gpu.empty if mapped else np.empty
    targets = [make(70, np.uint32) for _ in range(2)]
    stream = gpu.stream(ADD_U32, jobs, out=itertools.cycle(targets), depth=3)
    with pytest.raises(gx.errors.ArgumentShapeError, match="job 2: out 0 overlaps out 0 of job 0"):
        list(stream)
    stream = gpu.stream(ADD_U32, [jobs[0], (targets[0], jobs[1][1])], out=targets, depth=3)
    with pytest.raises(gx.errors.ArgumentShapeError, match="job 1: argument 0 overlaps out 0"):
        list(stream)
    check_sums(list(gpu.stream(ADD_U32, jobs, depth=3)), jobs)


def test_a_stream_whose_out_ends_early_names_the_job(gpu: Gpu) -> None:
    jobs, target = word_jobs(70, 71), np.zeros(70, np.uint32)
    stream = gpu.stream(ADD_U32, jobs, out=[target], depth=2)
    with pytest.raises(gx.errors.ArgumentTypeError, match="job 1: out has no array for it"):
        list(stream)
    with pytest.raises(gx.errors.ArgumentShapeError, match=r"job 1: .*out 0 has shape"):
        list(gpu.stream(ADD_U32, jobs, out=[target, target]))
    assert gpu.stats().slots.in_use == 0
