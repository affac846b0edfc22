"""Places: which node of the cluster has which devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gpu_executor.cluster.actor import seats_here
from gpu_executor.cluster.failure import Failure
from gpu_executor.errors import NoDeviceError, SettingsError
from gpu_executor.executor.seats import BackendName, Seat


@dataclass(frozen=True, slots=True)
class Place:
    """A device on a node."""

    node: str
    """Ray's name for it."""
    host: str
    seat: Seat

    def __str__(self) -> str:
        return f"{self.seat} on {self.host}"


def find_places(backend: BackendName, devices: Literal["all"] | int) -> list[Place]:
    """Where actors go: to each of the best devices in the cluster, or a number of them to each node
    that has such, in turn where it has fewer. Nodes whose devices are of a lesser kind are left
    out: one NumPy beside GPUs would hold up every ordered result."""
    if devices != "all" and (not isinstance(devices, int) or devices < 1):
        raise SettingsError(f"devices= is 'all' or a number of actors per node, not {devices!r}")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    answers: list[list[Seat] | Failure] = ray.get(
        [on_node(ray.remote(seats_here), node["NodeID"]).remote(backend) for node in nodes]
    )
    found = [
        (node, answer)
        for node, answer in zip(nodes, answers, strict=True)
        if not isinstance(answer, Failure) and answer
    ]
    if not found:
        raise _why_none(answers)
    best = min(seats[0].rank for _, seats in found)
    return [
        Place(node["NodeID"], node["NodeManagerHostname"], seat)
        for node, seats in found
        if seats[0].rank == best
        for seat in _taken(seats, devices)
    ]


def on_node(remote: Any, node: str, **options: Any) -> Any:
    """A task or an actor that runs on that node, or nowhere."""
    # It takes no processor for itself: it waits for its device, and Ray would let none start on a
    # machine whose processors are all spoken for.
    return remote.options(
        **{"num_cpus": 0} | options,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )


def _taken(seats: Sequence[Seat], devices: Literal["all"] | int) -> list[Seat]:
    if devices == "all":
        return list(seats)
    return [seats[index % len(seats)] for index in range(devices)]


def _why_none(answers: Sequence[list[Seat] | Failure]) -> BaseException:
    for answer in answers:
        if isinstance(answer, Failure):
            return answer.error()
    return NoDeviceError("no node of the cluster has a device")
