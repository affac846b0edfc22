"""Limits: how much is under way to one actor, and what travels together."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.cluster.jobs import Job
from gpu_executor.cluster.posts import Actor

MESSAGES = 2
"""One that is run, and one whose arrays travel meanwhile; the rest waits here, where it can still
go to another actor."""
GATHERED_CALLS = 64
GATHERED_BYTES = 1 << 20
"""Of one message: there and back took 1.5 ms on two cores, and what is larger is worth its own."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one actor: calls that have no answer, and bytes that they read and write."""

    calls: int
    nbytes: int

    def leave_room(self, actor: Actor, job: Job) -> bool:
        """Whether it may be sent now; to an idle actor one may always be. One that is suspected
        has an actor for itself: if that dies too, it is known whose doing it was."""
        if not actor.ready or not actor.messages:
            return actor.ready
        if job.suspected or any(each.jobs[0].suspected for each in actor.messages):
            return False
        return (
            len(actor.messages) < MESSAGES
            and actor.calls < self.calls
            and actor.nbytes + job.nbytes <= self.nbytes
        )

    def most_together(self, actor: Actor, waiting: int, posts: int) -> int:
        """Calls of one message: as many as leave the other posts their share."""
        return max(min(round(waiting / posts), GATHERED_CALLS, self.calls - actor.calls), 1)

    def fit_together(self, actor: Actor, first: Job, job: Job, nbytes: int) -> bool:
        """Whether a job may travel with the first of a message, which has so many bytes with it."""
        return (
            job.kernel == first.kernel
            and not (first.alone or job.alone)
            and nbytes <= min(GATHERED_BYTES, self.nbytes - actor.nbytes)
        )
