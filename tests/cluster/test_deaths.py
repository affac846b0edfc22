"""RayExecutor when actors and devices fail while they have jobs. A node is lost in
test_node_watcher.py."""

from __future__ import annotations

import functools
import os
import signal
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray

from gpu_executor.errors import WrongResultError
from tests.support.jobs import ADD_U32, check_sums, field_jobs, word_jobs
from tests.support.ray_cluster import (
    FQ_ADD,
    LARGE,
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    count_deaths,
    make_kernel,
    make_pair,
    wait_for_pids,
    wait_until,
)


def test_results_are_complete_when_an_actor_is_killed(vulkan_executor: RayExecutor) -> None:
    """Each result is correct and is delivered once. The new actor on the device runs jobs too."""
    jobs = [*field_jobs(*[100] * 100), *word_jobs(*[LARGE] * 30)]
    kernels = [FQ_ADD] * 100 + [ADD_U32] * 30
    arrived: list[int] = []

    def note(number: int, _done: Future[Any]) -> None:
        arrived.append(number)

    victim, before = wait_for_pids(vulkan_executor)[0], vulkan_executor.stats()
    futures: list[Future[Any]] = []
    for number, (kernel, job) in enumerate(zip(kernels, jobs, strict=True)):
        futures.append(vulkan_executor.submit(kernel, *job))
        futures[-1].add_done_callback(functools.partial(note, number))
        if number == 115:
            wait_until(lambda: vulkan_executor.stats().actors[0].in_flight > 0)
            os.kill(victim, signal.SIGKILL)
    check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
    wait_until(lambda: len(arrived) == 130)
    assert sorted(arrived) == list(range(130))
    after = vulkan_executor.stats()
    assert after.resent > before.resent
    died = [now.deaths - then.deaths for now, then in zip(after.actors, before.actors, strict=True)]
    assert died == [1, 0]
    assert wait_for_pids(vulkan_executor)[0] != victim
    answered = vulkan_executor.stats().actors[0].answered
    check_sums(vulkan_executor.run_batch(ADD_U32, jobs[100:]), jobs[100:])
    assert vulkan_executor.stats().actors[0].answered > answered


def test_only_the_job_that_kills_its_actors_fails(cpu_executor: RayExecutor) -> None:
    """The jobs that share its message, and those submitted later, have their results."""

    def add(a: Array, b: Array) -> Array:
        if (a == 13).any():
            os._exit(1)
        return a + b

    jobs, kernel, before = (
        [make_pair(number) for number in range(60)],
        make_kernel(add),
        count_deaths(cpu_executor),
    )
    futures = [cpu_executor.submit(kernel, *job) for job in jobs]
    with pytest.raises(ray.exceptions.RayActorError):
        futures.pop(13).result(TIMEOUT_SECONDS)
    del jobs[13]
    check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
    assert count_deaths(cpu_executor) == before + 3


def test_a_device_with_a_wrong_result_is_replaced(
    cpu_executor: RayExecutor, tmp_path: Path
) -> None:
    def add(a: Array, b: Array) -> Array:
        first = tmp_path / "process"
        if not first.exists():
            first.write_text(str(os.getpid()))
        if (a == 13).any() and first.read_text() == str(os.getpid()):
            raise WrongResultError("add", 0, 0, "the first device")
        return a + b

    jobs, before = [make_pair(13, count) for count in range(1, 30)], count_deaths(cpu_executor)
    check_sums(cpu_executor.run_batch(make_kernel(add), jobs), jobs)
    assert count_deaths(cpu_executor) == before + 1
