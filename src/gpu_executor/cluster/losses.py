"""Losses: what an error says about the actor that an answer was expected from."""

from __future__ import annotations

from ray import exceptions

from gpu_executor.errors import DeviceLostError, WrongResultError

GONE = (
    exceptions.RayActorError,
    exceptions.ActorUnschedulableError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
)


def actor_is_gone(error: BaseException) -> bool:
    """Dead, or out of reach. What the actor itself says is of the arrays that it was to read: a
    reference may be to the result of some other actor, which is dead."""
    return isinstance(error, GONE) and not isinstance(error, exceptions.RayTaskError)


def answer_is_lost(error: BaseException) -> bool:
    """The actor may live, but what it answered is gone, with a node or a store."""
    return isinstance(error, exceptions.ObjectLostError)


def device_is_lost(error: BaseException) -> bool:
    """The actor lives, and its device does not, or is not to be trusted."""
    return isinstance(error, DeviceLostError | WrongResultError)
