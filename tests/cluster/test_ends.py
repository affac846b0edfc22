"""The end of an executor on several machines, and of the Ray that it started."""

from __future__ import annotations

import dataclasses
import gc
import sys
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.cluster.nodes import DevicePlacement, find_placements
from gpu_executor.errors import ClosedError, NoDeviceError
from tests.conftest import RunPython
from tests.support.jobs import check_sums, field_jobs, word_jobs
from tests.support.ray_cluster import (
    FQ_ADD,
    LARGE,
    PATIENCE,
    alive,
    gated,
    living_actors,
    pair,
    pids,
    until,
)


def test_shutdown_answers_what_was_asked_and_leaves_no_actor(two_nodes: Cluster) -> None:
    jobs = field_jobs(*[20] * 40)
    executor = gx.cluster.RayExecutor("cpu")
    processes = pids(executor)
    futures = [executor.submit(FQ_ADD, *job) for job in jobs]
    executor.shutdown()
    check_sums([future.result(0) for future in futures], jobs)
    until(lambda: not any(map(alive, processes)))
    executor.shutdown()
    with pytest.raises(ClosedError):
        executor.submit(FQ_ADD, *jobs[0])
    assert "shut down" in repr(executor)
    assert ray.is_initialized(), "Ray was there before"


def test_what_was_not_sent_is_cancelled(two_nodes: Cluster, tmp_path: Path) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    kernel, jobs = gated(tmp_path), word_jobs(*[LARGE] * 20)
    futures = [executor.submit(kernel, *job) for job in jobs]
    until(lambda: [post.in_flight for post in executor.stats().posts] == [2, 2])
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "open").touch()
    executor.shutdown()
    kept = [number for number, future in enumerate(futures) if not future.cancelled()]
    assert len(kept) == 4
    check_sums([futures[number].result(0) for number in kept], [jobs[number] for number in kept])
    with pytest.raises(CancelledError):
        futures[-1].result(0)
    assert executor.stats().unanswered == 0


def test_one_that_nobody_holds_ends_when_its_jobs_are_answered(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    processes, thread = pids(executor), executor._dispatcher._thread
    future = executor.submit(gated(tmp_path), *pair(5))
    del executor
    gc.collect()
    assert all(map(alive, processes))
    (tmp_path / "open").touch()
    check_sums([future.result(PATIENCE)], [pair(5)])
    until(lambda: not any(map(alive, processes)) and not thread.is_alive())


def test_one_that_cannot_open_leaves_nothing(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost_places(*asked: Any) -> list[DevicePlacement]:
        first, second = find_placements(*asked)
        lost = dataclasses.replace(second.candidate, device="a card that was pulled out")
        return [first, dataclasses.replace(second, candidate=lost)]

    before = living_actors()
    monkeypatch.setattr("gpu_executor.cluster.executor.find_placements", lost_places)
    with pytest.raises(NoDeviceError, match="pulled out"):
        gx.cluster.RayExecutor("cpu")
    until(lambda: living_actors() == before)


OWN_RAY = """
import sys
import numpy as np
import gpu_executor as gx
assert "ray" not in sys.modules, "the package imports Ray"
first, second = (gx.cluster.RayExecutor("cpu", address="local") for _ in range(2))
import ray
a = np.arange(200_000, dtype=np.uint32)
kernel = gx.kernels.load("vector_add_u32")
results = [each.run(kernel, a, a) for each in (first, second)]
first.shutdown()
assert ray.is_initialized(), "the second one has it still"
print("actors", *[post.pid for post in second.stats().posts])
second.shutdown()
assert not ray.is_initialized(), "it was started by the executors"
for result in results:
    np.testing.assert_array_equal(result, 2 * a)
last = gx.cluster.RayExecutor("cpu", address="local")
result = last.run(kernel, a, a)
print("actors", *[post.pid for post in last.stats().posts])
last.submit(kernel, a, a)
np.testing.assert_array_equal(result, 2 * a)
"""


def test_ray_that_it_started_ends_with_it(run_python: RunPython) -> None:
    """Also where the interpreter ends first, with a job under way. Results outlive Ray."""
    done = run_python(OWN_RAY)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    processes = [int(pid) for what, *pids in said if what == "actors" for pid in pids]
    assert len(processes) == 2
    until(lambda: not any(map(alive, processes)))


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"gpu-executor\[ray\]"):
        gx.cluster.RayExecutor  # noqa: B018
