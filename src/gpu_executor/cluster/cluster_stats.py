"""Statistics of a RayExecutor: plain data with a readable `str()`."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.cluster.actor_slots import ActorSlot


@dataclass(frozen=True, slots=True)
class ActorStats:
    """Statistics of one device and of the actors that have served it, one after the other."""

    node: str
    """The node's ID in Ray."""
    host: str
    device: str
    backend: str
    pid: int | None
    """Process ID of the present actor; None while no actor is ready."""
    answered: int
    """Calls that were answered from this device."""
    in_flight: int
    """Calls that were sent to the present actor and have no answer yet."""
    in_flight_bytes: int
    deaths: int
    """Actors that died here or whose device failed."""
    quarantined: str | None
    """Why the device is quarantined; None while it is in use."""
    joined_later: bool
    """Whether the node joined the cluster while the executor was open."""

    @classmethod
    def of(cls, slot: ActorSlot) -> ActorStats:
        actor, candidate = slot.actor, slot.placement.candidate
        return cls(
            node=slot.placement.node,
            host=slot.placement.host,
            device=candidate.device,
            backend=candidate.backend,
            pid=None if actor is None else actor.pid,
            answered=slot.answered,
            in_flight=0 if actor is None else actor.calls,
            in_flight_bytes=0 if actor is None else actor.nbytes,
            deaths=slot.deaths,
            quarantined=None if slot.quarantined is None else str(slot.quarantined),
            joined_later=slot.joined_later,
        )

    def __str__(self) -> str:
        text = (
            f"{self.device} by {self.backend} on {self.host}: {self.answered:,} calls answered, "
            f"{self.in_flight:,} in flight, {self.deaths:,} actors lost"
        )
        if self.joined_later:
            text += "; joined later"
        return text if self.quarantined is None else f"{text}; quarantined: {self.quarantined}"


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """All actors of an executor, and the calls that have no answer yet."""

    unanswered: int
    unanswered_bytes: int
    """Size of the inputs and results of the unanswered calls."""
    resent: int
    """How often a call was sent again, after its actor died, its device failed or its answer was
    lost."""
    actors: tuple[ActorStats, ...]

    def __str__(self) -> str:
        unanswered = f"{self.unanswered:,} calls of {self.unanswered_bytes:,} bytes have no answer"
        return "\n".join(
            [*map(str, self.actors), f"{unanswered}; {self.resent:,} calls were sent again"]
        )
