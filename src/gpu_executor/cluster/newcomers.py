"""Newcomers: nodes that join the cluster while an executor is open, and their devices.

A node is asked for its devices, and each gets an actor. When that has opened the device, it is a
post like the others. Nothing depends on it before: what goes wrong here is written to the log.
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

from gpu_executor.cluster.failure import Failure
from gpu_executor.cluster.places import Place, asked_for_seats, living_nodes, places_on
from gpu_executor.cluster.posts import Arrived, Post
from gpu_executor.errors import NoDeviceError
from gpu_executor.executor.seats import BackendName, Seat

log = logging.getLogger("gpu_executor.cluster")

LOOK_SECONDS = 5.0
"""From one look at the cluster's nodes to the next; it takes a millisecond."""
MOST_QUESTIONS = 3
"""To a node that does not answer. Ray may list one before it can reach it."""
ENDING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What is told when the cluster's nodes are listed."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is told when a node says which devices it has."""

    node: str
    host: str


class Newcomers:
    """For the dispatcher's thread, which is told what happens and hands it on to `take`."""

    def __init__(
        self,
        backend: BackendName,
        devices: Literal["all"] | int,
        places: Sequence[Place],
        post_at: Callable[[Place], Post],
    ) -> None:
        self._backend, self._devices, self._post_at = backend, devices, post_at
        # Also those that were left out when it opened are asked once more, when all are busy.
        self._known = {place.node for place in places}
        self._rank = min(place.seat.rank for place in places)
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._look: threading.Thread | None = None
        self._questions: set[Question] = set()
        self._unanswered: Counter[str] = Counter()
        self._joining: set[Post] = set()

    @property
    def expected(self) -> bool:
        """Whether it may be that some come soon."""
        return bool(self._look or self._questions or self._joining)

    def seconds_to_look(self) -> float | None:
        """Until the next look is due; None while there is one."""
        return None if self._look else max(self._next_look - time.monotonic(), 0.0)

    def look(self, arrived: Arrived) -> None:
        """List the cluster's nodes, if that is due."""
        if self.seconds_to_look() != 0.0:
            return
        # While Ray's head does not answer, this waits for it, and answers of actors must not.
        self._look = threading.Thread(
            target=_list_nodes, args=(arrived,), name="gpu-executor nodes", daemon=True
        )
        self._look.start()

    def take(self, subject: Look | Question, answer: Future[Any], arrived: Arrived) -> None:
        """What was asked for has come."""
        if isinstance(subject, Look):
            self._look, self._next_look = None, time.monotonic() + LOOK_SECONDS
        else:
            self._questions.remove(subject)
        error = answer.exception()
        if not ray.is_initialized():
            return
        if isinstance(subject, Look):
            if error is None:
                self._ask(answer.result(), arrived)
            else:  # the next look is soon
                log.debug("the cluster's nodes could not be listed: %s", error)
        elif error is not None:
            self._no_answer(subject, error)
        else:
            self._answered(subject, answer.result(), arrived)

    def joined(self, post: Post) -> bool:
        """Whether it is one of these, whose device is open now."""
        if post not in self._joining:
            return False
        self._joining.remove(post)
        self._rank = min(self._rank, post.place.seat.rank)
        log.info("%s joined the cluster", post.place)
        return True

    def refused(self, post: Post, error: BaseException) -> bool:
        """Whether it is one of these, whose device does not open."""
        if post not in self._joining:
            return False
        self._joining.remove(post)
        log.warning("%s joined the cluster and is left alone: %s", post.place, error)
        return True

    def end(self) -> None:
        """Nobody waits for them any more."""
        for post in self._joining:
            post.vacate()
        if self._look:
            self._look.join(ENDING_SECONDS)  # Ray may be shut down next, but not under it

    def _ask(self, nodes: dict[str, str], arrived: Arrived) -> None:
        for node in nodes.keys() - self._known:
            question = Question(node, nodes[node])
            seats = asked_for_seats(self._backend, node).future()
            seats.add_done_callback(functools.partial(arrived, question))
            self._questions.add(question)
        self._known = set(nodes)  # one that comes back has another name

    def _no_answer(self, question: Question, error: BaseException) -> None:
        self._unanswered[question.node] += 1
        if self._unanswered[question.node] < MOST_QUESTIONS:
            self._known.discard(question.node)  # asked again after the next look
        else:
            log.warning("%s joined the cluster and is left alone: %s", question.host, error)

    def _answered(self, question: Question, seats: list[Seat] | Failure, arrived: Arrived) -> None:
        if isinstance(seats, Failure):
            error = seats.error()
            # Most clusters have nodes that are for other things.
            level = logging.INFO if isinstance(error, NoDeviceError) else logging.WARNING
            log.log(level, "%s has no device to use: %s", question.host, error)
            return
        if seats[0].rank > self._rank:
            log.info("%s has devices of a lesser kind, such as %s", question.host, seats[0])
            return
        for place in places_on(question.node, question.host, seats, self._devices):
            post = self._post_at(place)
            post.joined_later = True
            post.start(arrived)
            self._joining.add(post)


def _list_nodes(arrived: Arrived) -> None:
    nodes: Future[dict[str, str]] = Future()
    try:
        nodes.set_result(living_nodes())
    except Exception as error:
        nodes.set_exception(error)
    arrived(Look(), nodes)
