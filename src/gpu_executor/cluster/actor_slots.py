"""Actor slots: a device of the cluster, the actor that serves it, and the messages in flight to
that actor.

Everything here belongs to the dispatcher's thread. Other threads may read it for statistics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray

from gpu_executor.cluster.actor import DeviceActor, DeviceOptions
from gpu_executor.cluster.jobs import ClusterJob
from gpu_executor.cluster.nodes import DevicePlacement, pin_to_node
from gpu_executor.cluster.serialization import KernelRegistry, RemoteFailure, pack_calls

MAX_MESSAGES_PER_ACTOR = 2
"""Messages in flight per actor: one that the actor runs, and one whose arrays are sent meanwhile.
Other jobs wait in the dispatcher, so they can still go to any actor."""
MAX_CALLS_PER_MESSAGE = 64
MAX_BYTES_PER_MESSAGE = 1 << 20
"""Bytes up to which calls share a message: a message took 1.5 ms there and back on two cores, which
is negligible for a larger call.
"""

ReplyCallback = Callable[[Any, "Future[Any]"], None]
"""Called with the subject of a request and the finished future of its reply. Ray calls it on a
thread of its own, which must not be blocked."""


@dataclass(slots=True, eq=False)
class Message:
    """Jobs of one kernel that were sent to an actor together."""

    actor: ActorClient
    jobs: Sequence[ClusterJob]
    nbytes: int


class ActorClient:
    """The caller's side of one actor: sends messages to it and tracks which have no reply yet."""

    def __init__(self, slot: ActorSlot, handle: Any) -> None:
        self.slot, self._handle = slot, handle
        self._sent_kernels: set[int] = set()
        self.ready = False
        """Whether the actor has opened its device."""
        self.pid: int | None = None
        self.messages: set[Message] = set()
        """Messages in flight: sent, and without a reply."""
        self.calls = 0
        """Calls in flight."""
        self.nbytes = 0
        """Bytes of the calls in flight."""
        self.retired = False
        """Whether the dispatcher killed the actor because its device failed. Then the actor's
        death is not the fault of the jobs it had."""

    def send(
        self, jobs: Sequence[ClusterJob], kernels: KernelRegistry, on_reply: ReplyCallback
    ) -> Message:
        """Send jobs of one kernel. The kernel itself is sent before the first job that needs it."""
        kernel_id, pickled = kernels.register(jobs[0].kernel)
        if kernel_id not in self._sent_kernels:
            self._handle.add_kernel.remote(kernel_id, pickled)
            self._sent_kernels.add(kernel_id)
        calls, top_level = pack_calls([job.call for job in jobs])
        reply = self._handle.run.remote(kernel_id, calls, *top_level)
        message = Message(self, jobs, sum(job.nbytes for job in jobs))
        self.messages.add(message)
        self.nbytes += message.nbytes
        self.calls += len(jobs)
        reply.future().add_done_callback(lambda done: on_reply(message, done))
        return message

    def discard(self, message: Message) -> None:
        """Stop tracking a message: it has its reply, or will never get one."""
        self.messages.remove(message)
        self.nbytes -= message.nbytes
        self.calls -= len(message.jobs)

    def trim(self) -> Any:
        """Ask the actor to free idle memory; return a Ray reference to its answer."""
        return self._handle.trim.remote()

    def explain(self, *question: Any) -> Any:
        """Ask the actor how it would run a call; return a Ray reference to its answer."""
        return self._handle.explain.remote(*question)

    def close_device(self) -> Any:
        """Tell the actor to close its device; return a Ray reference that is ready when it has."""
        return self._handle.close.remote()

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # the actor is dead, or Ray is shut down
            ray.kill(self._handle)


class ActorSlot:
    """One device placement. When its actor dies, a new actor takes the slot."""

    def __init__(
        self,
        placement: DevicePlacement,
        device_options: DeviceOptions,
        actor_options: Mapping[str, Any],
    ) -> None:
        self.placement = placement
        self._device_options, self._actor_options = device_options, actor_options
        self.actor: ActorClient | None = None
        self.failed_opens = 0
        """Actors in a row that could not open the device."""
        self.quarantined: BaseException | None = None
        """Why the slot is quarantined; None while it is in use."""
        self.joined_later = False
        """Whether the node joined the cluster while the executor was open."""
        self.answered = 0
        """Calls that were answered from this slot."""
        self.deaths = 0
        """Actors that died here or whose device failed."""

    def start_actor(self, on_reply: ReplyCallback) -> None:
        """Start an actor and have it open the device; `on_reply` is called with the actor."""
        remote = pin_to_node(ray.remote(DeviceActor), self.placement.node, **self._actor_options)
        handle = remote.remote()
        self.actor = actor = ActorClient(self, handle)
        reply = handle.open.remote(self.placement.candidate, self._device_options)
        reply.future().add_done_callback(lambda done: on_reply(actor, done))

    def handle_open_reply(self, reply: Future[Any]) -> BaseException | None:
        """Mark the actor as ready, or return the exception that kept it from opening the device."""
        assert self.actor is not None
        error = reply.exception()
        if error is None and isinstance(reply.result(), RemoteFailure):
            error = reply.result().to_exception()
        if error is not None:
            self.failed_opens += 1
            return error
        self.failed_opens = 0
        self.actor.pid = reply.result()
        self.actor.ready = True
        return None

    def kill_actor(self) -> None:
        """Kill the slot's actor, if it is alive, and leave the slot empty."""
        if self.actor is not None:
            self.actor.kill()
            self.actor = None


@dataclass(frozen=True, slots=True)
class InFlightLimits:
    """How much one actor may have in flight, and which jobs share a message."""

    calls: int
    nbytes: int
    """Bytes that the calls in flight read and write."""

    def allow(self, actor: ActorClient, job: ClusterJob) -> bool:
        """Return whether a job may be sent to an actor now.

        An idle actor takes any job. A suspected job has an actor to itself: if that actor dies too,
        the job is known to be the cause.
        """
        if not actor.ready or not actor.messages:
            return actor.ready
        if job.suspected or any(each.jobs[0].suspected for each in actor.messages):
            return False
        return (
            len(actor.messages) < MAX_MESSAGES_PER_ACTOR
            and actor.calls < self.calls
            and actor.nbytes + job.nbytes <= self.nbytes
        )

    def choose_message_size(self, actor: ActorClient, waiting: int, slots: int) -> int:
        """Return how many calls the next message may have.

        Each slot gets an equal share of the waiting calls, so that no actor is left idle.
        """
        return max(min(round(waiting / slots), MAX_CALLS_PER_MESSAGE, self.calls - actor.calls), 1)

    def allow_in_message(
        self, actor: ActorClient, first: ClusterJob, job: ClusterJob, nbytes: int
    ) -> bool:
        """Return whether a job may join the message that begins with `first`; `nbytes` is the size
        of the message including the job."""
        return (
            job.kernel == first.kernel
            and not (first.needs_own_message or job.needs_own_message)
            and nbytes <= min(MAX_BYTES_PER_MESSAGE, self.nbytes - actor.nbytes)
        )
