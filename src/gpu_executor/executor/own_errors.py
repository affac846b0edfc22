"""Errors that several futures get: each its own, since a traceback grows where one is raised, and
holds the arrays of the calls that it passed through."""

from __future__ import annotations

import copy
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def own(error: E) -> E:
    """The same error once more, as it was before it was raised; itself where its class cannot make
    another of what it knows, so that it is seen, and not why it could not be copied."""
    try:
        another = copy.copy(error)
    except Exception:
        return error
    another.args = error.args  # which its class may have made into something else once more
    another.__cause__ = error.__cause__
    if hasattr(error, "__notes__"):
        another.__notes__ = list(error.__notes__)
    return another


def own_each(error: E, count: int) -> list[E]:
    """One for each of so many; the first is the one that was raised, with its traceback."""
    return [error, *(own(error) for _ in range(count - 1))]
