"""For tests of several machines: nodes that come and go, kernels that a test can hold, and what
other processes do. The cluster itself is a fixture of tests/cluster."""

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
"""Elements that travel in a message, and that go through the object store."""
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200 << 20}
# A node that is gone is missed after 2 s, not 15.
HEAD = {
    "include_dashboard": False,
    "_system_config": {"health_check_period_ms": 250, "health_check_failure_threshold": 8},
}
PATIENCE = 30.0

# --- nodes ---


@contextlib.contextmanager
def third_node(cluster: Cluster) -> Iterator[Any]:
    """One more, which is gone at the end, as others are to find two."""
    node = cluster.add_node(**NODE)
    until(lambda: living_nodes() == 3)
    try:
        yield node
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node, allow_graceful=False)
        until(lambda: living_nodes() == 2)


def living_nodes() -> int:
    return sum(each["Alive"] for each in ray.nodes())


# --- kernels and arrays ---


def referring(reference: Reference) -> gx.Kernel:
    return dataclasses.replace(ADD_U32, reference=reference)


def gated(folder: Path) -> gx.Kernel:
    """Adds when the file `open` is there, and notes each call that began."""

    def add(a: Array, b: Array) -> Array:
        (folder / f"began-{time.monotonic_ns()}").touch()
        while not (folder / "open").exists():
            time.sleep(0.005)
        return a + b

    return referring(add)


def pair(value: int, count: int = 4) -> tuple[Array, Array]:
    return np.full(count, value, np.uint32), np.arange(count, dtype=np.uint32)


# --- what happens elsewhere ---


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another process does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def pids(executor: RayExecutor) -> list[int]:
    """Of its actors, when all are there."""
    until(lambda: all(post.pid for post in executor.stats().posts))
    return [post.pid or 0 for post in executor.stats().posts]


def living_actors() -> set[str]:
    known = ray._private.state.actors()
    return {number for number, actor in known.items() if actor["State"] != "DEAD"}


def deaths(executor: RayExecutor) -> int:
    return sum(post.deaths for post in executor.stats().posts)
