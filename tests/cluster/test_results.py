"""RayExecutor: exact and ordered results, and what is sent to compute them."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.fields import BLS12_381_FR, FieldArray
from tests.support.jobs import ADD_U32, check_sums, field_job, field_jobs, word_jobs
from tests.support.ray_cluster import (
    FQ_ADD,
    LARGE,
    SMALL,
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    Reference,
    make_kernel,
    wait_for_pids,
)


def test_each_node_has_an_actor_for_its_device(vulkan_executor: RayExecutor) -> None:
    actors = vulkan_executor.stats().actors
    assert {actor.node for actor in actors} == {
        node["NodeID"] for node in ray.nodes() if node["Alive"]
    }
    assert [actor.device for actor in actors] == [gx.devices()[0].name] * 2
    assert len(set(wait_for_pids(vulkan_executor)) | {os.getpid()}) == 3


@pytest.mark.parametrize("count", [0, 1, SMALL, LARGE])
def test_run_returns_exact_results(vulkan_executor: RayExecutor, count: int) -> None:
    for job in (word_jobs(count)[0], field_job(min(count, SMALL))):
        kernel = ADD_U32 if job[0].dtype == np.uint32 else FQ_ADD
        check_sums([vulkan_executor.run(kernel, *job)], [job])


@pytest.mark.slow
def test_webgpu_and_cpu_read_arrays_from_the_object_store(
    one_node: None, cpu_executor: RayExecutor
) -> None:
    strided = np.arange(2 * LARGE, dtype=np.uint32).reshape(2, LARGE)[:, ::2]
    jobs = [*word_jobs(SMALL, LARGE, LARGE), (strided, strided)]
    with gx.cluster.RayExecutor("webgpu", devices=1) as webgpu:
        for executor in (webgpu, cpu_executor):
            check_sums(executor.run_batch(ADD_U32, jobs), jobs)


def test_several_outputs_are_a_tuple(cpu_executor: RayExecutor) -> None:
    another = dataclasses.replace(ADD_U32.arguments[2], binding=3)
    kernel = dataclasses.replace(
        make_kernel(lambda a, b: (a + b, a - b)), arguments=(*ADD_U32.arguments, another)
    )
    jobs = word_jobs(*[SMALL] * 20, LARGE)
    outs = [(np.empty_like(a), np.empty_like(a)) for a, _ in jobs]
    for results in (
        cpu_executor.run_batch(kernel, jobs),
        cpu_executor.run_batch(kernel, jobs, out=outs),
    ):
        check_sums([total for total, _ in results], jobs)
        for (_, difference), (a, b) in zip(results, jobs, strict=True):
            np.testing.assert_array_equal(difference, a - b)
    assert not any(each.flags.writeable for each in cpu_executor.run(kernel, *jobs[0]))


def test_a_batch_is_in_order_and_uses_both_actors(vulkan_executor: RayExecutor) -> None:
    before = [actor.answered for actor in vulkan_executor.stats().actors]
    jobs = field_jobs(*(1 + number % 7 for number in range(300)))
    check_sums(vulkan_executor.run_batch(FQ_ADD, jobs), jobs)
    jobs = word_jobs(*[LARGE] * 20)
    check_sums(vulkan_executor.run_batch(ADD_U32, jobs), jobs)
    after = [actor.answered for actor in vulkan_executor.stats().actors]
    assert sum(after) - sum(before) == 320
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert vulkan_executor.stats().unanswered == vulkan_executor.stats().unanswered_bytes == 0


def test_calls_of_different_kernels_may_be_interleaved(vulkan_executor: RayExecutor) -> None:
    words, fields = word_jobs(*[SMALL] * 20), field_jobs(*[30] * 20)
    futures = [
        vulkan_executor.submit(kernel, *job)
        for both in zip(words, fields, strict=True)
        for kernel, job in zip((ADD_U32, FQ_ADD), both, strict=True)
    ]
    results = [future.result(TIMEOUT_SECONDS) for future in futures]
    check_sums(results[::2], words)
    check_sums(results[1::2], fields)


def test_map_is_lazy_and_ordered(vulkan_executor: RayExecutor) -> None:
    jobs = word_jobs(*range(1, 200))
    check_sums(list(vulkan_executor.map(ADD_U32, *zip(*jobs, strict=True), chunksize=16)), jobs)
    endless = vulkan_executor.map(ADD_U32, *zip(*jobs, strict=True), buffersize=3)
    check_sums(list(itertools.islice(endless, 5)), jobs[:5])


def test_results_of_any_size_are_read_only(vulkan_executor: RayExecutor) -> None:
    """A large result is a view of the object store, which it keeps alive without a reference."""
    jobs = word_jobs(1, SMALL, LARGE)
    results = vulkan_executor.run_batch(ADD_U32, jobs)
    assert not any(result.flags.writeable for result in results)
    assert not results[2].flags.owndata
    gc.collect()
    check_sums(results, jobs)


def test_out_is_written_and_returned(vulkan_executor: RayExecutor) -> None:
    jobs = word_jobs(SMALL, LARGE)
    outs = [np.empty_like(a) for a, _ in jobs]
    results = vulkan_executor.run_batch(ADD_U32, jobs, out=outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    check_sums(outs, jobs)


def test_arguments_may_be_references_to_stored_arrays(vulkan_executor: RayExecutor) -> None:
    """An array that many calls read is stored once."""
    a, b = word_jobs(LARGE)[0]
    stored = ray.put(a)
    results = vulkan_executor.run_batch(ADD_U32, [(stored, b)] * 4)
    check_sums(results, [(a, b)] * 4)
    with pytest.raises(ArgumentTypeError, match="shapes of references"):
        vulkan_executor.run(ADD_U32, stored, b, out=np.empty_like(b))
    with pytest.raises(ArgumentTypeError, match="argument 1 is a str"):
        vulkan_executor.run(ADD_U32, stored, "1")


def test_actors_read_large_arrays_without_a_copy(cpu_executor: RayExecutor) -> None:
    def owned(a: Array, b: Array) -> Array:
        writable = a.flags.writeable or b.flags.writeable
        return np.full_like(a, writable or a.flags.owndata or b.flags.owndata)

    assert not cpu_executor.run(make_kernel(owned), *word_jobs(LARGE)[0]).any()


def test_a_kernel_is_sent_once_to_each_actor(cpu_executor: RayExecutor, tmp_path: Path) -> None:
    def arrived() -> Reference:
        (tmp_path / str(time.monotonic_ns())).touch()
        return lambda a, b: a + b

    class Noted:
        def __reduce__(self) -> Any:
            return arrived, ()

        def __call__(self, *_arrays: Array) -> Any:
            raise AssertionError("the kernel is called in the caller's process")

    kernel, jobs = make_kernel(Noted()), word_jobs(*[LARGE] * 10)
    before = [actor.answered for actor in cpu_executor.stats().actors]
    for _ in range(2):
        check_sums(cpu_executor.run_batch(kernel, jobs), jobs)
    after = [actor.answered for actor in cpu_executor.stats().actors]
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert len(list(tmp_path.iterdir())) == 2


def test_two_executors_have_separate_actors(
    vulkan_executor: RayExecutor, cpu_executor: RayExecutor
) -> None:
    jobs = field_jobs(*[20] * 50)
    futures = [
        [each.submit(FQ_ADD, *job) for job in jobs] for each in (vulkan_executor, cpu_executor)
    ]
    for one in futures:
        check_sums([future.result(TIMEOUT_SECONDS) for future in one], jobs)
    assert not set(wait_for_pids(vulkan_executor)) & set(wait_for_pids(cpu_executor))


def test_field_kernels_return_arrays_of_their_field(vulkan_executor: RayExecutor) -> None:
    field, product = BLS12_381_FR, gx.kernels.load("bls12_381_fr_mont_mul")
    x, y = field.random(SMALL, seed=1), field.random(SMALL, seed=2)
    wanted = (x.ints() * y.ints() % field.modulus).tolist()
    out, words = field.zeros(SMALL), np.empty((SMALL, 4), np.uint64)
    found = [
        vulkan_executor.run(product, x, y),
        *vulkan_executor.run_batch(product, [(x, y)] * 2),
        *vulkan_executor.stream(product, [(x, y)] * 2),
        *vulkan_executor.map(product, [x] * 2, [y] * 2),
        vulkan_executor.submit(product, x, y).result(TIMEOUT_SECONDS),
        vulkan_executor.submit(product, x, y, out=out).result(TIMEOUT_SECONDS),
        asyncio.run(vulkan_executor.run_async(product, x, y)),
        vulkan_executor.run(product, ray.put(x), ray.put(y)),
    ]
    for each in found:
        assert isinstance(each, FieldArray)
        assert (each.field, each.form, each.tolist()) == (field, "montgomery", wanted)
    assert found[8] is out
    assert vulkan_executor.run(product, x, y, out=words) is words
    assert field.from_words(words, "montgomery").tolist() == wanted
    with pytest.raises(ArgumentTypeError, match="out 0 has elements of bls12_381_fr in canonical"):
        vulkan_executor.run(product, x, y, out=field.encode([0] * SMALL))
