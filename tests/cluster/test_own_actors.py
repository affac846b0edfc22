"""Actors of the caller's own class beside the devices of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError


class Squares:
    """Squares elements on a device."""

    def __init__(self, gpu: gx.GpuExecutor) -> None:
        self._gpu = gpu

    def square(self, values: list[int]) -> tuple[str, str, list[int]]:
        field = gx.fields.GOLDILOCKS
        squares = field.square(self._gpu.to_device(field.encode(values)))
        return ray.get_runtime_context().get_node_id(), self._gpu.device.name, squares.tolist()


def test_every_device_gets_an_actor_with_an_open_executor(two_nodes: Cluster) -> None:
    actors = gx.cluster.start_actors(Squares, "vulkan")
    found = ray.get([each.square.remote([3, index]) for index, each in enumerate(actors)])
    alive = {each["NodeID"] for each in ray.nodes() if each["Alive"]}
    assert {node for node, _, _ in found} == alive
    assert [squares for _, _, squares in found] == [[9, 0], [9, 1]]
    assert {name for _, name, _ in found} == {gx.devices()[0].name}


@pytest.mark.parametrize("wrong", [Squares(None), "Squares", print])  # type: ignore[arg-type]
def test_what_is_no_class_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="start_actors takes a class, not "):
        gx.cluster.start_actors(wrong)


def test_unknown_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'start_actor'"):
        gx.cluster.start_actor  # noqa: B018
