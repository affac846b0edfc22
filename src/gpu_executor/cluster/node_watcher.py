"""NodeWatcher: finds nodes that join the cluster while an executor is open, and adds their devices.

The watcher asks a new node for its devices and starts an actor for each. When an actor has opened
its device, its slot is handed to the dispatcher. No job depends on a new node before that, so
failures here are only logged.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import ray

from gpu_executor.cluster.actor_slots import ActorSlot, ReplyCallback
from gpu_executor.cluster.nodes import (
    DevicePlacement,
    create_placements,
    list_alive_nodes,
    request_candidates,
)
from gpu_executor.cluster.serialization import RemoteFailure
from gpu_executor.errors import NoDeviceError
from gpu_executor.executor.candidates import BackendName, DeviceCandidate

log = logging.getLogger("gpu_executor.cluster")

LISTING_INTERVAL_SECONDS = 5.0
"""Seconds from the end of one listing of the cluster's nodes to the next; a listing takes a
millisecond."""
MAX_QUERIES_PER_NODE = 3
"""Maximum number of queries to a node that does not answer: Ray may list a node before it can reach
the node."""
STOP_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NodeListing:
    """Subject of the reply that lists the cluster's nodes."""


@dataclass(frozen=True, slots=True)
class DeviceQuery:
    """Subject of a node's reply with its devices."""

    node: str
    host: str


class NodeWatcher:
    """Used by the dispatcher's thread only.

    Replies come to the `on_reply` callback, on other threads. The dispatcher passes them on to
    `handle_reply`.
    """

    def __init__(
        self,
        backend: BackendName,
        devices: Literal["all"] | int,
        placements: Sequence[DevicePlacement],
        create_slot: Callable[[DevicePlacement], ActorSlot],
    ) -> None:
        self._backend, self._devices, self._create_slot = backend, devices, create_slot
        # Nodes that `find_placements` left out are not in this set, so they are queried again.
        self._known = {placement.node for placement in placements}
        self._best_rank = min(placement.candidate.rank for placement in placements)
        self._next_listing = time.monotonic() + LISTING_INTERVAL_SECONDS
        self._listing: threading.Thread | None = None
        self._queries: set[DeviceQuery] = set()
        self._failed_queries: Counter[str] = Counter()
        self._joining: set[ActorSlot] = set()
        """Slots whose actors have not opened their devices yet."""

    @property
    def is_expecting_devices(self) -> bool:
        """Whether a request is under way that may lead to more devices."""
        return bool(self._listing or self._queries or self._joining)

    def seconds_until_listing(self) -> float | None:
        """Time until the next listing of the nodes is due; None while one is under way."""
        return None if self._listing else max(self._next_listing - time.monotonic(), 0.0)

    def list_nodes_if_due(self, on_reply: ReplyCallback) -> None:
        if self.seconds_until_listing() != 0.0:
            return
        # On a thread of its own: the listing blocks while Ray's head node does not answer, and the
        # replies of actors must be handled meanwhile.
        self._listing = threading.Thread(
            target=_list_nodes, args=(on_reply,), name="gpu-executor nodes", daemon=True
        )
        self._listing.start()

    def handle_reply(
        self, subject: NodeListing | DeviceQuery, reply: Future[Any], on_reply: ReplyCallback
    ) -> None:
        """Handle the reply to a listing or a query; `on_reply` receives the replies of further
        requests.
        """
        if isinstance(subject, NodeListing):
            self._listing = None
            self._next_listing = time.monotonic() + LISTING_INTERVAL_SECONDS
        else:
            self._queries.remove(subject)
        error = reply.exception()
        if not ray.is_initialized():
            return
        if isinstance(subject, NodeListing):
            if error is None:
                self._query_new_nodes(reply.result(), on_reply)
            else:  # the next listing may succeed
                log.debug("could not list the cluster's nodes: %s", error)
        elif error is not None:
            self._handle_failed_query(subject, error)
        else:
            self._handle_candidates(subject, reply.result(), on_reply)

    def accept(self, slot: ActorSlot) -> bool:
        """Hand over a slot whose device is now open; return False if the slot was not joining."""
        if slot not in self._joining:
            return False
        self._joining.remove(slot)
        self._best_rank = min(self._best_rank, slot.placement.candidate.rank)
        log.info("%s is in use: its node joined the cluster", slot.placement)
        return True

    def reject(self, slot: ActorSlot, error: BaseException) -> bool:
        """Drop a slot whose device cannot be opened; return False if the slot was not joining."""
        if slot not in self._joining:
            return False
        self._joining.remove(slot)
        log.warning(
            "%s is quarantined: its node joined the cluster, but no actor could open the device: "
            "%s",
            slot.placement,
            error,
        )
        return True

    def stop(self) -> None:
        """Kill the actors that are joining, and wait for a listing that is under way."""
        for slot in self._joining:
            slot.kill_actor()
        if self._listing:
            # The caller may shut Ray down next, which must not happen during a listing.
            self._listing.join(STOP_TIMEOUT_SECONDS)

    def _query_new_nodes(self, nodes: dict[str, str], on_reply: ReplyCallback) -> None:
        for node in nodes.keys() - self._known:
            query = DeviceQuery(node, nodes[node])
            candidates = request_candidates(self._backend, node).future()
            candidates.add_done_callback(functools.partial(on_reply, query))
            self._queries.add(query)
        self._known = set(nodes)  # a node that left and comes back has a new ID

    def _handle_failed_query(self, query: DeviceQuery, error: BaseException) -> None:
        self._failed_queries[query.node] += 1
        if self._failed_queries[query.node] < MAX_QUERIES_PER_NODE:
            self._known.discard(query.node)  # query the node again after the next listing
        else:
            log.warning(
                "node %s joined the cluster but is not used: it could not be asked for its "
                "devices: %s",
                query.host,
                error,
            )

    def _handle_candidates(
        self,
        query: DeviceQuery,
        candidates: list[DeviceCandidate] | RemoteFailure,
        on_reply: ReplyCallback,
    ) -> None:
        if isinstance(candidates, RemoteFailure):
            error = candidates.to_exception()
            # Most clusters have nodes without a device, so that is no reason for a warning.
            level = logging.INFO if isinstance(error, NoDeviceError) else logging.WARNING
            log.log(level, "node %s has no usable device: %s", query.host, error)
            return
        if candidates[0].rank > self._best_rank:
            log.info(
                "node %s is not used: its best device, %s, ranks below those in use",
                query.host,
                candidates[0],
            )
            return
        for placement in create_placements(query.node, query.host, candidates, self._devices):
            slot = self._create_slot(placement)
            slot.joined_later = True
            slot.start_actor(on_reply)
            self._joining.add(slot)


def _list_nodes(on_reply: ReplyCallback) -> None:
    nodes: Future[dict[str, str]] = Future()
    try:
        nodes.set_result(list_alive_nodes())
    except Exception as error:
        nodes.set_exception(error)
    on_reply(NodeListing(), nodes)
