"""A real Ray cluster of two nodes on this machine, which all tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.cluster.nodes import list_alive_nodes
from tests.conftest import ValidationMessages
from tests.support.ray_cluster import HEAD_OPTIONS, NODE_OPTIONS, RayExecutor

STARTS = 3


def start_cluster() -> Cluster:
    """Two nodes. A node gives up if one of its processes takes Ray 15 s to start, as on a machine
    that gets little processor time; then this starts another cluster."""
    for attempt in range(1, STARTS + 1):
        cluster = Cluster()
        try:
            cluster.add_node(**NODE_OPTIONS, **HEAD_OPTIONS)
            cluster.add_node(**NODE_OPTIONS)
        except Exception:  # Ray raises Exception itself
            cluster.shutdown()
            if attempt == STARTS:
                raise
        else:
            break
    return cluster


@pytest.fixture(scope="package")
def two_nodes(validation_messages: ValidationMessages) -> Iterator[Cluster]:
    """A Ray cluster of two nodes on this machine, each with its own processes and object store.

    Starting the cluster takes seconds, so all tests of the package share it. It is shut down after
    the package's last test, because Ray's processes would slow down the tests that follow. Its
    actors are without the validation layer, whose messages no test could read there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_VALIDATION", "0")
        cluster = start_cluster()
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def one_node(two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors find only the caller's node, for tests of which one actor is enough: an actor's
    process takes more than a second of CPU time to start."""
    here = ray.get_runtime_context().get_node_id()

    def list_this_node() -> dict[str, str]:
        return {here: list_alive_nodes()[here]}

    for module in ("nodes", "node_watcher"):
        monkeypatch.setattr(f"gpu_executor.cluster.{module}.list_alive_nodes", list_this_node)


@pytest.fixture(scope="package")
def vulkan_executor(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """A Vulkan executor with an actor on each node. A test may kill actors: they are replaced."""
    with gx.cluster.RayExecutor("vulkan") as executor:
        yield executor


@pytest.fixture(scope="package")
def cpu_executor(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """A CPU executor with an actor on each node. It runs the references of kernels, which may do
    whatever a test needs."""
    with gx.cluster.RayExecutor("cpu") as executor:
        yield executor
