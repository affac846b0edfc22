"""How a RayExecutor ends, and Ray with it if the executor started Ray."""

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
from gpu_executor.errors import ClosedError, MissingExtraError, NoDeviceError
from tests.conftest import RunPython
from tests.support.jobs import check_sums, field_jobs, word_jobs
from tests.support.processes import is_alive
from tests.support.ray_cluster import (
    FQ_ADD,
    LARGE,
    TIMEOUT_SECONDS,
    list_alive_actors,
    make_gated_kernel,
    make_pair,
    wait_for_pids,
    wait_until,
)


def test_close_answers_pending_jobs_and_ends_the_actors(one_node: None) -> None:
    jobs = field_jobs(*[20] * 40)
    executor = gx.cluster.RayExecutor("cpu")
    processes = wait_for_pids(executor)
    futures = [executor.submit(FQ_ADD, *job) for job in jobs]
    executor.close()
    check_sums([future.result(0) for future in futures], jobs)
    wait_until(lambda: not any(map(is_alive, processes)))
    executor.shutdown()
    for use in (
        lambda: executor.submit(FQ_ADD, *jobs[0]),
        executor.trim,
        lambda: executor.explain(FQ_ADD, 3),
        lambda: executor.stream(FQ_ADD, []),
    ):
        with pytest.raises(ClosedError, match="is shut down; open another one"):
            use()
    assert "shut down" in repr(executor)
    assert ray.is_initialized(), "Ray was initialized before the executor"


def test_shutdown_cancels_jobs_that_were_not_sent(one_node: None, tmp_path: Path) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    kernel, jobs = make_gated_kernel(tmp_path), word_jobs(*[LARGE] * 6)
    futures = [executor.submit(kernel, *job) for job in jobs]
    wait_until(lambda: [actor.in_flight for actor in executor.stats().actors] == [2])
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "open").touch()
    executor.shutdown()
    kept = [number for number, future in enumerate(futures) if not future.cancelled()]
    assert len(kept) == 2
    check_sums([futures[number].result(0) for number in kept], [jobs[number] for number in kept])
    with pytest.raises(CancelledError):
        futures[-1].result(0)
    assert executor.stats().unanswered == 0


def test_a_collected_executor_ends_when_its_jobs_are_answered(
    one_node: None, tmp_path: Path
) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    processes, thread = wait_for_pids(executor), executor._dispatcher._thread
    future = executor.submit(make_gated_kernel(tmp_path), *make_pair(5))
    del executor
    gc.collect()
    assert all(map(is_alive, processes))
    (tmp_path / "open").touch()
    check_sums([future.result(TIMEOUT_SECONDS)], [make_pair(5)])
    wait_until(lambda: not any(map(is_alive, processes)) and not thread.is_alive())


def test_a_failed_start_leaves_no_actor(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place_on_removed_device(*asked: Any) -> list[DevicePlacement]:
        first, second = find_placements(*asked)
        removed = dataclasses.replace(second.candidate, device="a removed device")
        return [first, dataclasses.replace(second, candidate=removed)]

    before = list_alive_actors()
    monkeypatch.setattr(
        "gpu_executor.cluster.ray_executor.find_placements", place_on_removed_device
    )
    with pytest.raises(NoDeviceError, match="removed device"):
        gx.cluster.RayExecutor("cpu")
    wait_until(lambda: list_alive_actors() == before)


OWN_RAY = """
import os
import sys
import numpy as np
import gpu_executor as gx
assert "ray" not in sys.modules, "importing gpu_executor must not import Ray"
from gpu_executor.cluster import nodes
list_alive_nodes = nodes.list_alive_nodes
nodes.list_alive_nodes = lambda: dict(list(list_alive_nodes().items())[:1])  # one actor is enough
joined = os.environ["CLUSTER_ADDRESS"]
first = gx.cluster.RayExecutor("cpu", address=joined)
import ray
a = np.arange(200_000, dtype=np.uint32)
kernel = gx.kernels.load("vector_add_u32")
result = first.run(kernel, a, a)
try:
    gx.cluster.RayExecutor("cpu", devices=0, address=joined)
    raise AssertionError("not refused")
except gx.errors.SettingsError:
    assert ray.is_initialized(), "the first executor still uses Ray"
print("actors", *[actor.pid for actor in first.stats().actors])
first.shutdown()
assert not ray.is_initialized(), "the executor joined the cluster, so the last one leaves it"
np.testing.assert_array_equal(result, 2 * a)
last = gx.cluster.RayExecutor("cpu", address="local")
result = last.run(kernel, a, a)
print("actors", *[actor.pid for actor in last.stats().actors])
last.submit(kernel, a, a)
np.testing.assert_array_equal(result, 2 * a)
"""


def test_ray_ends_with_the_last_executor_if_an_executor_started_it(
    two_nodes: Cluster, run_python: RunPython
) -> None:
    """Results outlive Ray. The interpreter exits while an executor is open with a pending job. The
    first executor joins a cluster, the last one starts Ray."""
    done = run_python(OWN_RAY, CLUSTER_ADDRESS=two_nodes.address)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    processes = [int(pid) for what, *pids in lines if what == "actors" for pid in pids]
    assert len(processes) == 2
    wait_until(lambda: not any(map(is_alive, processes)))


def test_a_missing_ray_is_an_import_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"RayExecutor needs Ray.*'gpu-executor\[ray\]'"):
        gx.cluster.RayExecutor  # noqa: B018
