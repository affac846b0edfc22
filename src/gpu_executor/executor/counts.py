"""Counts: what a device did for an executor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Added to by whoever runs calls."""

    calls: int = 0
    batches: int = 0
    """Submitted together, of two calls or more."""
    retries: int = 0
    reopened: int = 0
    errors: int = 0
    nbytes: int = 0
    seconds: float = 0.0
