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
    nodes = living_nodes()
    answers: list[list[Seat] | Failure] = ray.get(
        [asked_for_seats(backend, node) for node in nodes]
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
        place
        for node, seats in found
        if seats[0].rank == best
        for place in places_on(node, nodes[node], seats, devices)
    ]


def living_nodes() -> dict[str, str]:
    """Ray's name for each node, and its host."""
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}


def asked_for_seats(backend: BackendName, node: str) -> Any:
    """A reference to the best devices of a node, or to its `Failure`."""
    return on_node(ray.remote(seats_here), node).remote(backend)


def places_on(
    node: str, host: str, seats: Sequence[Seat], devices: Literal["all"] | int
) -> list[Place]:
    """Where actors go on a node that has these devices."""
    taken = seats
    if devices != "all":
        taken = [seats[index % len(seats)] for index in range(devices)]
    return [Place(node, host, seat) for seat in taken]


def on_node(remote: Any, node: str, **options: Any) -> Any:
    """A task or an actor that runs on that node, or nowhere."""
    # It takes no processor for itself: it waits for its device, and Ray would let none start on a
    # machine whose processors are all spoken for.
    return remote.options(
        **{"num_cpus": 0} | options,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )


def _why_none(answers: Sequence[list[Seat] | Failure]) -> BaseException:
    for answer in answers:
        if isinstance(answer, Failure):
            return answer.error()
    return NoDeviceError("no node of the cluster has a device")
