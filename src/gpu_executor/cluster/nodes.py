"""The nodes of the cluster, their devices, and which of those devices get actors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gpu_executor.cluster.serialization import RemoteFailure
from gpu_executor.errors import NoDeviceError, SettingsError
from gpu_executor.executor.candidates import (
    BackendName,
    DeviceCandidate,
    rank_devices,
    select_candidates,
)


@dataclass(frozen=True, slots=True)
class DevicePlacement:
    """A device on a node of the cluster, where an actor runs or will run."""

    node: str
    """The node's ID in Ray."""
    host: str
    candidate: DeviceCandidate

    def __str__(self) -> str:
        return f"{self.candidate} on {self.host}"


def find_placements(backend: BackendName, devices: Literal["all"] | int) -> list[DevicePlacement]:
    """Ask every node for its devices and decide where actors go.

    With "all", each of the best devices in the cluster gets an actor. With a number, each node that
    has such a device gets that many actors; its devices take turns, so several actors may share
    one. Nodes whose devices have a worse rank get no actors: ordered results would wait for the
    slowest device, for example for NumPy while GPUs are idle.
    """
    if devices != "all" and (not isinstance(devices, int) or devices < 1):
        raise SettingsError(
            f"devices= must be 'all' or a number of actors per node, at least 1, not {devices!r}"
        )
    nodes = list_alive_nodes()
    answers: list[list[DeviceCandidate] | RemoteFailure] = ray.get(
        [request_candidates(backend, node) for node in nodes]
    )
    found = [
        (node, answer)
        for node, answer in zip(nodes, answers, strict=True)
        if not isinstance(answer, RemoteFailure) and answer
    ]
    if not found:
        raise _make_device_error(answers)
    best = min(candidates[0].rank for _, candidates in found)
    return [
        placement
        for node, candidates in found
        if candidates[0].rank == best
        for placement in create_placements(node, nodes[node], candidates, devices)
    ]


def list_alive_nodes() -> dict[str, str]:
    """Return the host name of each node that is alive, by the node's ID in Ray."""
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}


def request_candidates(backend: BackendName, node: str) -> Any:
    """Ask a node for its best devices.

    Returns a Ray reference to what `find_local_candidates` returns there.
    """
    return pin_to_node(ray.remote(find_local_candidates), node).remote(backend)


def find_local_candidates(backend: BackendName) -> list[DeviceCandidate] | RemoteFailure:
    """Return the best devices of the machine this runs on; all of them have the same rank."""
    try:
        return select_candidates(rank_devices(backend), None, "all")
    except Exception as error:
        return RemoteFailure.from_exception(error)


def create_placements(
    node: str, host: str, candidates: Sequence[DeviceCandidate], devices: Literal["all"] | int
) -> list[DevicePlacement]:
    """Return a placement for each actor of one node; see `find_placements` for `devices`."""
    taken = candidates
    if devices != "all":
        taken = [candidates[index % len(candidates)] for index in range(devices)]
    return [DevicePlacement(node, host, candidate) for candidate in taken]


def pin_to_node(remote: Any, node: str, **options: Any) -> Any:
    """Return a remote function or actor class that runs only on that node."""
    # It reserves no CPU by default: it mostly waits for its device, and Ray would not start it on
    # a node whose CPUs are all reserved.
    return remote.options(
        **{"num_cpus": 0} | options,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )


def _make_device_error(
    answers: Sequence[list[DeviceCandidate] | RemoteFailure],
) -> BaseException:
    for answer in answers:
        if isinstance(answer, RemoteFailure):
            return answer.to_exception()
    return NoDeviceError("no node of the cluster has a device")
