"""Actors, devices and nodes that die with jobs under way."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.errors import NoDeviceError, WrongResultError
from tests.support.jobs import ADD_U32, check_sums, field_jobs, word_jobs
from tests.support.ray_cluster import (
    FQ_ADD,
    LARGE,
    PATIENCE,
    Array,
    RayExecutor,
    deaths,
    pair,
    pids,
    referring,
    third_node,
    until,
)


def once(folder: Path, act: Callable[[], object]) -> gx.Kernel:
    """Adds, but does something else the first time that an element is 13."""

    def add(a: Array, b: Array) -> Array:
        if 13 in a:
            with contextlib.suppress(FileExistsError):
                (folder / "done").touch(exist_ok=False)
                act()
        return a + b

    return referring(add)


def test_an_actor_is_killed_in_the_middle(vulkan: RayExecutor) -> None:
    """Every result arrives once and is right; the next actor on the device takes its part."""
    jobs = [*field_jobs(*[100] * 100), *word_jobs(*[LARGE] * 30)]
    kernels = [FQ_ADD] * 100 + [ADD_U32] * 30
    arrived: list[int] = []

    def note(number: int, _done: Future[Any]) -> None:
        arrived.append(number)

    victim, before = pids(vulkan)[0], vulkan.stats()
    futures: list[Future[Any]] = []
    for number, (kernel, job) in enumerate(zip(kernels, jobs, strict=True)):
        futures.append(vulkan.submit(kernel, *job))
        futures[-1].add_done_callback(functools.partial(note, number))
        if number == 115:
            until(lambda: vulkan.stats().posts[0].in_flight > 0)
            os.kill(victim, signal.SIGKILL)
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    until(lambda: len(arrived) == 130)
    assert sorted(arrived) == list(range(130))
    after = vulkan.stats()
    assert after.resent > before.resent
    died = [now.deaths - then.deaths for now, then in zip(after.posts, before.posts, strict=True)]
    assert died == [1, 0]
    assert pids(vulkan)[0] != victim
    answered = vulkan.stats().posts[0].answered
    check_sums(vulkan.run_batch(ADD_U32, jobs[100:]), jobs[100:])
    assert vulkan.stats().posts[0].answered > answered


def test_a_process_that_ends_inside_a_kernel(cpus: RayExecutor, tmp_path: Path) -> None:
    jobs, before = [pair(number) for number in range(100)], deaths(cpus)
    kernel = once(tmp_path, lambda: os._exit(1))
    futures = [cpus.submit(kernel, *job) for job in jobs]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    assert deaths(cpus) == before + 1


def test_a_job_that_kills_every_actor_is_given_up_alone(cpus: RayExecutor) -> None:
    """Those that travelled with it, and those behind it, are none the worse."""

    def add(a: Array, b: Array) -> Array:
        if (a == 13).any():
            os._exit(1)
        return a + b

    jobs, kernel, before = [pair(number) for number in range(60)], referring(add), deaths(cpus)
    futures = [cpus.submit(kernel, *job) for job in jobs]
    with pytest.raises(ray.exceptions.RayActorError):
        futures.pop(13).result(PATIENCE)
    del jobs[13]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    assert deaths(cpus) == before + 3


def test_a_device_that_computes_wrongly_is_not_asked_again(
    cpus: RayExecutor, tmp_path: Path
) -> None:
    def add(a: Array, b: Array) -> Array:
        first = tmp_path / "process"
        if not first.exists():
            first.write_text(str(os.getpid()))
        if (a == 13).any() and first.read_text() == str(os.getpid()):
            raise WrongResultError("add", 0, 0, "the first device")
        return a + b

    jobs, before = [pair(13, count) for count in range(1, 30)], deaths(cpus)
    check_sums(cpus.run_batch(referring(add), jobs), jobs)
    assert deaths(cpus) == before + 1


def test_a_node_is_lost_in_the_middle(two_nodes: Cluster) -> None:
    def add(a: Array, b: Array) -> Array:
        time.sleep(0.02)
        return a + b

    kernel, jobs = referring(add), word_jobs(*[LARGE] * 60)
    with third_node(two_nodes) as node, gx.cluster.RayExecutor("cpu") as executor:
        assert len(pids(executor)) == 3
        futures = [executor.submit(kernel, *job) for job in jobs]
        two_nodes.remove_node(node, allow_graceful=False)
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        until(lambda: any(post.given_up for post in executor.stats().posts))
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)


def test_when_no_device_is_left_jobs_hear_why(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)

    def die(*_arrays: Array) -> Any:
        os._exit(1)

    with gx.cluster.RayExecutor("cpu") as executor:
        for post in executor._dispatcher.slots:  # where the next actors look for it
            lost = dataclasses.replace(
                post.placement.candidate, device="a card that was pulled out"
            )
            post.placement = dataclasses.replace(post.placement, candidate=lost)
        futures = [executor.submit(referring(die), *pair(number)) for number in range(4)]
        for future in futures:
            with pytest.raises(NoDeviceError, match="pulled out by cpu is no longer available"):
                future.result(PATIENCE)
        for _ in range(2):
            with pytest.raises(NoDeviceError, match=r"^job 0: a card"):
                executor.run_batch(ADD_U32, [pair(1), pair(2)])
        assert all(post.given_up for post in executor.stats().posts)
        assert "quarantined" in str(executor.stats())
