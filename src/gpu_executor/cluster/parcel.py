"""Parcels: how the arrays of several calls travel to an actor in one message.

Ray puts every argument of more than 100 KB into the object store of this machine, once, and an
actor on it reads it there, without a copy. Each argument costs Ray some time, so what is small
travels together, and only large arrays and references are arguments of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array

SMALL_BYTES = 100 << 10
"""What Ray sends within the message (its `max_direct_call_object_size`)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The place of an array that is an argument of its own."""

    index: int


Calls = list[tuple["Array | Stored", ...]]


def packed(calls: Sequence[Sequence[Any]]) -> tuple[Calls, list[Any]]:
    """Small arrays by call, and what is stored."""
    stored: list[Any] = []

    def entry(each: Any) -> Array | Stored:
        if isinstance(each, np.ndarray) and each.nbytes <= SMALL_BYTES:
            return each
        stored.append(_contiguous(each) if isinstance(each, np.ndarray) else each)
        return Stored(len(stored) - 1)

    return [tuple(map(entry, arrays)) for arrays in calls], stored


def unpacked(calls: Calls, stored: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The arrays of each call; those from the object store are read-only views of it."""
    return [
        tuple(stored[each.index] if isinstance(each, Stored) else each for each in arrays)
        for arrays in calls
    ]


def _contiguous(array: Array) -> Array:
    # Others are pickled in one piece with the message, and copied out of it by whoever reads it.
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array
    return array.copy()
