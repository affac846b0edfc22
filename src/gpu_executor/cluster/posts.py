"""Posts: the place of a device in the cluster, and the actor that is there at present."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray

from gpu_executor.cluster.actor import DeviceActor, DeviceOptions
from gpu_executor.cluster.failure import Failure
from gpu_executor.cluster.jobs import Job
from gpu_executor.cluster.kernels import Kernels
from gpu_executor.cluster.parcel import packed
from gpu_executor.cluster.places import Place, on_node

Arrived = Callable[[Any, "Future[Any]"], None]
"""Told what was answered, and how; by a thread of Ray's, which must not be kept."""


@dataclass(slots=True, eq=False)
class Message:
    """Jobs of one kernel that were sent together."""

    actor: Actor
    jobs: Sequence[Job]
    nbytes: int


class Actor:
    """A process with a device, as it is seen from here: from its start to its death."""

    def __init__(self, post: Post, handle: Any) -> None:
        self.post, self._handle = post, handle
        self._known: set[int] = set()
        self.ready = False
        self.pid: int | None = None
        self.messages: set[Message] = set()
        """Sent and not answered."""
        self.dismissed = False
        """Whether it was ended from here, for its device; then no message is to blame."""
        self.nbytes = 0
        self.calls = 0

    def send(self, jobs: Sequence[Job], kernels: Kernels, arrived: Arrived) -> Message:
        """Have them run; a kernel goes with the first of them that needs it."""
        number, pickled = kernels.numbered(jobs[0].kernel)
        if number not in self._known:
            self._handle.learn.remote(number, pickled)
            self._known.add(number)
        calls, stored = packed([job.arrays for job in jobs])
        answer = self._handle.run.remote(number, calls, *stored)
        message = Message(self, jobs, sum(job.nbytes for job in jobs))
        self.messages.add(message)
        self.nbytes += message.nbytes
        self.calls += len(jobs)
        answer.future().add_done_callback(lambda done: arrived(message, done))
        return message

    def drop(self, message: Message) -> None:
        """It is answered, or never will be."""
        self.messages.remove(message)
        self.nbytes -= message.nbytes
        self.calls -= len(message.jobs)

    def closing(self) -> Any:
        """A reference that is there when the device is closed."""
        return self._handle.close.remote()

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # dead already, or Ray is gone
            ray.kill(self._handle)


class Post:
    """One device. Its actor is replaced when it dies, by one that knows nothing."""

    def __init__(self, place: Place, device: DeviceOptions, options: Mapping[str, Any]) -> None:
        self.place, self._device, self._options = place, device, options
        self.actor: Actor | None = None
        self.refusals = 0
        """Actors in a row that could not open the device."""
        self.given_up: BaseException | None = None
        """Why nobody is sent here any more."""
        self.joined_later = False
        """Whether its node came into the cluster when the executor was open."""
        self.answered = 0
        self.deaths = 0

    def start(self, arrived: Arrived) -> None:
        """Send an actor, which is ready when it says so."""
        remote = on_node(ray.remote(DeviceActor), self.place.node, **self._options)
        handle = remote.remote()
        self.actor = actor = Actor(self, handle)
        opened = handle.open.remote(self.place.seat, self._device)
        opened.future().add_done_callback(lambda done: arrived(actor, done))

    def opened(self, answer: Future[Any]) -> BaseException | None:
        """The actor said whether it has its device; why not, if it has not."""
        assert self.actor is not None
        error = answer.exception()
        if error is None and isinstance(answer.result(), Failure):
            error = answer.result().error()
        if error is not None:
            self.refusals += 1
            return error
        self.refusals = 0
        self.actor.pid = answer.result()
        self.actor.ready = True
        return None

    def vacate(self) -> None:
        """Its actor is dead, or as good as that."""
        if self.actor is not None:
            self.actor.kill()
            self.actor = None
