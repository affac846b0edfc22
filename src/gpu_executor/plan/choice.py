"""A choice among the ways of running a request: path, chunk, slots, queues, and why."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.plan.forecast import DataPath, QueueUse


@dataclass(frozen=True, slots=True)
class Choice:
    """What figures or thresholds decide."""

    path: DataPath
    chunk: int
    slots: int
    queues: QueueUse
    reasons: tuple[str, ...]
    """The first is the path's."""
    foreseen: float | None = None
    """Seconds for all of it, where there are figures."""


def slots_reason(slots: int, pieces: int) -> str:
    return f"slots: {slots}, so that copies and computing of {pieces:,} pieces overlap"


def asked_reason(slots: int, *, pipelined: bool | None) -> str:
    how = "asked for with pipelined=False" if pipelined is False else "asked for"
    return f"slots: {slots}, {how}"
