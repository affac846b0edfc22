"""What a cluster has done, as data that prints itself."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.cluster.posts import Post


@dataclass(frozen=True, slots=True)
class PostStats:
    """One device's part."""

    node: str
    host: str
    device: str
    backend: str
    pid: int | None
    """Of its actor's process; None while there is none that is ready."""
    answered: int
    in_flight: int
    in_flight_bytes: int
    deaths: int
    """Actors that it lost."""
    given_up: str | None
    """Why nobody is sent there any more, if so."""
    joined_later: bool
    """Whether its node came into the cluster when the executor was open."""

    @classmethod
    def of(cls, post: Post) -> PostStats:
        actor = post.actor
        return cls(
            node=post.place.node,
            host=post.place.host,
            device=post.place.seat.device,
            backend=post.place.seat.backend,
            pid=None if actor is None else actor.pid,
            answered=post.answered,
            in_flight=0 if actor is None else actor.calls,
            in_flight_bytes=0 if actor is None else actor.nbytes,
            deaths=post.deaths,
            given_up=None if post.given_up is None else str(post.given_up),
            joined_later=post.joined_later,
        )

    def __str__(self) -> str:
        said = (
            f"{self.device} by {self.backend} on {self.host}: {self.answered:,} answered, "
            f"{self.in_flight:,} in flight, {self.deaths:,} actors lost"
        )
        if self.joined_later:
            said += "; joined later"
        return said if self.given_up is None else f"{said}; left alone: {self.given_up}"


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """All devices, and what has no answer."""

    unanswered: int
    unanswered_bytes: int
    resent: int
    """Calls that were sent again after an actor died."""
    posts: tuple[PostStats, ...]

    def __str__(self) -> str:
        left = f"{self.unanswered:,} calls of {self.unanswered_bytes:,} bytes have no answer"
        return "\n".join([*map(str, self.posts), f"{left}; {self.resent:,} were sent again"])
