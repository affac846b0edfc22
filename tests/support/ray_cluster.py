"""For tests of several machines: a real Ray cluster of two nodes, both on this one, executors on
it, and kernels that a test can hold. Who imports a fixture names it in `__all__`, as it is used by
its name alone."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from tests.conftest import ValidationMessages
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

# --- what is open ---


class Shared:
    """What the files with such tests have together, from the first of them to the last: to start a
    cluster takes seconds. A fixture of the whole run would keep it beside all the other tests."""

    def __init__(self) -> None:
        self._opened: dict[str, Any] = {}
        self._ends = contextlib.ExitStack()

    def get(self, name: str, opened: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
        if name not in self._opened:
            self._opened[name] = self._ends.enter_context(opened())
        return self._opened[name]

    def close(self) -> None:
        self._opened.clear()
        self._ends.close()


SHARED = Shared()


@pytest.fixture(scope="module")
def two_nodes(
    request: pytest.FixtureRequest, validation_messages: ValidationMessages
) -> Iterator[Cluster]:
    """Ray's own way to have several nodes on one machine: each with its processes and its store."""
    yield SHARED.get("two_nodes", _two_nodes)
    if not _used_later(request):
        SHARED.close()


@pytest.fixture(scope="module")
def vulkan(two_nodes: Cluster) -> Any:
    """An actor on each node. When tests kill one, another comes, so all of them share it."""
    return SHARED.get("vulkan", lambda: gx.cluster.RayExecutor("vulkan"))


@pytest.fixture(scope="module")
def cpus(two_nodes: Cluster) -> Any:
    """The same, but what runs are references, which may do anything a test needs."""
    return SHARED.get("cpus", lambda: gx.cluster.RayExecutor("cpu"))


@contextlib.contextmanager
def _two_nodes() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args=NODE | HEAD)
    cluster.add_node(**NODE)
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def _used_later(request: pytest.FixtureRequest) -> bool:
    """By a file behind this one."""
    items = request.session.items
    last = max(number for number, item in enumerate(items) if item.path == request.path)
    return any("two_nodes" in getattr(item, "fixturenames", ()) for item in items[last + 1 :])


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
