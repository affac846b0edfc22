"""Helpers for tests of RayExecutor: nodes that join and leave, kernels that a test can block, and
waits for actors. The cluster itself is a fixture of tests/cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from tests.support.jobs import ADD_U32

Array = npt.NDArray[Any]
RayExecutor = gx.cluster.RayExecutor
Reference = Callable[..., Any]
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
SMALL, LARGE = 1000, 200_000
"""Element counts of arrays that travel inside a message, and that go through the object store."""
NODE_OPTIONS: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200 << 20}
# Ray notices that a node is lost after 1 s, not after 15: a killed node refuses connections
# at once. A busy node has the 10 s of Ray's `health_check_timeout_ms` for each answer. Each process
# that is not started saves a second: the autoscaler, and the monitor that prints actors' logs.
HEAD_OPTIONS: dict[str, Any] = {
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
    "_system_config": {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 250,
        "health_check_failure_threshold": 4,
    },
}
TIMEOUT_SECONDS = 180.0

# --- nodes ---


@contextlib.contextmanager
def add_third_node(cluster: Cluster) -> Iterator[Any]:
    """Add a third node, and remove it at the end: other tests expect two nodes."""
    node = cluster.add_node(**NODE_OPTIONS)
    wait_until(lambda: count_alive_nodes() == 3)
    try:
        yield node
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: count_alive_nodes() == 2)


def count_alive_nodes() -> int:
    return sum(each["Alive"] for each in ray.nodes())


# --- kernels and arrays ---


def make_kernel(reference: Reference) -> gx.Kernel:
    """A kernel that runs a Python function on the CPU backend."""
    return dataclasses.replace(ADD_U32, reference=reference)


def make_gated_kernel(folder: Path) -> gx.Kernel:
    """A kernel that adds once the file `open` exists; each call that begins creates a file."""

    def add(a: Array, b: Array) -> Array:
        (folder / f"began-{time.monotonic_ns()}").touch()
        while not (folder / "open").exists():
            time.sleep(0.005)
        return a + b

    return make_kernel(add)


def make_pair(value: int, count: int = 4) -> tuple[Array, Array]:
    return np.full(count, value, np.uint32), np.arange(count, dtype=np.uint32)


# --- other processes ---


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {TIMEOUT_SECONDS} s"
        time.sleep(0.01)


def wait_for_pids(executor: RayExecutor) -> list[int]:
    """Wait until all actors are ready, and return the IDs of their processes."""
    wait_until(lambda: all(actor.pid for actor in executor.stats().actors))
    return [actor.pid or 0 for actor in executor.stats().actors]


def list_alive_actors() -> set[str]:
    known = ray._private.state.actors()
    return {actor_id for actor_id, actor in known.items() if actor["State"] != "DEAD"}


def count_deaths(executor: RayExecutor) -> int:
    return sum(actor.deaths for actor in executor.stats().actors)
