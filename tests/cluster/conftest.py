"""A real Ray cluster of two nodes on this machine, which all tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from tests.conftest import ValidationMessages
from tests.support.ray_cluster import HEAD, NODE, RayExecutor


@pytest.fixture(scope="package")
def two_nodes(validation_messages: ValidationMessages) -> Iterator[Cluster]:
    """Ray's own way to have several nodes on one machine: each with its processes and its store.

    To start them takes seconds. They end with the package's last test: Ray's processes would slow
    the tests behind it down.
    """
    cluster = Cluster(initialize_head=True, head_node_args=NODE | HEAD)
    cluster.add_node(**NODE)
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="package")
def vulkan(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """An actor on each node. Where a test kills an actor, the next one takes its place."""
    with gx.cluster.RayExecutor("vulkan") as executor:
        yield executor


@pytest.fixture(scope="package")
def cpus(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """The same, but what runs are references, which may do anything a test needs."""
    with gx.cluster.RayExecutor("cpu") as executor:
        yield executor
